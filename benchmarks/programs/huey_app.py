"""The same tasks on huey, with its defaults."""

from __future__ import annotations

import os
from collections.abc import Sequence

from huey import RedisHuey, SqliteHuey

from benchmarks.programs.stamps import record

_STORE = os.environ["BENCH_STORE"]
_FILL = os.environ.get("BENCH_FILL") == "1"  # only to prepare a drain quickly: no sync for each commit
if os.environ["BENCH_ENGINE"] == "redis":
    app = RedisHuey("bench", url=_STORE)
else:
    app = SqliteHuey(filename=_STORE, fsync=False if _FILL else None)


@app.task()
def noop(n: int) -> None:
    pass


@app.task()
def stamp(sent: int) -> None:
    record(sent)


_TASKS = {"noop": noop, "stamp": stamp}


def one(task: str, n: int) -> None:
    _TASKS[task](n)


def many(task: str, numbers: Sequence[int]) -> None:
    """It has no bulk call."""
    for n in numbers:
        _TASKS[task](n)
