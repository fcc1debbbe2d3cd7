"""The same tasks on taskito: polling each millisecond, eight workers, batches of a hundred."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from taskito import Queue

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


_TASKS = {"noop": noop, "stamp": stamp}


def one(task: str, n: int) -> None:
    _TASKS[task].delay(n)


def many(task: str, numbers: Sequence[int]) -> None:
    app.enqueue_many(_TASKS[task].name, [(n,) for n in numbers])
