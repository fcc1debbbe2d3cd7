"""The same tasks on celery, with Redis as broker and as result backend."""

from __future__ import annotations

import os
from collections.abc import Sequence

from celery import Celery, group
from celery import chain as canvas_chain
from celery import chord as canvas_chord

from benchmarks.programs.stamps import record

_STORE = os.environ["BENCH_STORE"]
app = Celery("bench", broker=_STORE, backend=_STORE)
app.conf.update(worker_prefetch_multiplier=100, broker_connection_retry_on_startup=True, task_store_eager_result=True)


@app.task(ignore_result=True)
def noop(n: int) -> None:
    pass


@app.task
def echo(n: int) -> int:
    return n


@app.task
def gather(numbers: list[int]) -> None:
    record(len(numbers))


@app.task
def last(n: int) -> None:
    record(n)


_TASKS = {"noop": noop, "echo": echo}


def many(task: str, numbers: Sequence[int]) -> None:
    """It has no bulk call; one connection is used for all."""
    with app.producer_or_acquire() as producer:
        for n in numbers:
            _TASKS[task].apply_async((n,), producer=producer)


def chain(n: int) -> None:
    canvas_chain(echo.s(0), *[echo.s() for _ in range(n - 2)], last.s()).apply_async()


def chord(n: int) -> None:
    canvas_chord(group(echo.s(each) for each in range(n)), gather.s()).apply_async()
