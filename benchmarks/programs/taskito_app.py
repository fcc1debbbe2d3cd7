"""The same tasks on taskito: polling each millisecond, eight workers, batches of a hundred."""

from __future__ import annotations

import os
from collections.abc import Sequence

from taskito import Queue

from benchmarks.programs.stamps import record

app = Queue(db_path=os.environ["BENCH_STORE"], workers=8, scheduler_poll_interval_ms=1, scheduler_batch_size=100)


@app.task()
def noop(n: int) -> None:
    pass


@app.task()
def stamp(sent: int) -> None:
    record(sent)


_TASKS = {"noop": noop, "stamp": stamp}


def one(task: str, n: int) -> None:
    _TASKS[task].delay(n)


def many(task: str, numbers: Sequence[int]) -> None:
    app.enqueue_many(_TASKS[task].name, [(n,) for n in numbers])
