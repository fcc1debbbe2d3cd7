"""The same tasks on taskito: polling each millisecond, eight workers, batches of a hundred."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from taskito import Queue
from taskito.canvas import chain as canvas_chain
from taskito.canvas import chord as canvas_chord
from taskito.canvas import group

from benchmarks.programs.stamps import record

_ENGINE, _STORE = os.environ["BENCH_ENGINE"], os.environ["BENCH_STORE"]
_where: dict[str, Any] = {"db_path": _STORE} if _ENGINE == "sqlite" else {"backend": _ENGINE, "db_url": _STORE}
app = Queue(workers=8, scheduler_poll_interval_ms=1, scheduler_batch_size=100, **_where)


@app.task()
def noop(n: int) -> None:
    pass


@app.task()
def stamp(sent: int) -> None:
    record(sent)


@app.task()
def echo(n: int) -> int:
    return n


@app.task()
def gather(numbers: list[int]) -> None:
    record(len(numbers))


_TASKS = {"noop": noop, "stamp": stamp, "echo": echo}


def one(task: str, n: int) -> None:
    _TASKS[task].delay(n)


def many(task: str, numbers: Sequence[int]) -> None:
    app.enqueue_many(_TASKS[task].name, [(n,) for n in numbers])


def chain(n: int) -> None:
    """The producer waits for each step, and enqueues the next one."""
    canvas_chain(echo.s(0), *[echo.s() for _ in range(n - 2)], stamp.s()).apply(app)


def chord(n: int) -> None:
    """The producer waits for all members, and enqueues the callback."""
    canvas_chord(group(*[echo.s(each) for each in range(n)]), gather.s()).apply(app)
