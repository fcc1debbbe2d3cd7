"""The same tasks on dramatiq's Redis broker, with its default middleware."""

from __future__ import annotations

import os
from collections.abc import Sequence

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.programs.stamps import record

dramatiq.set_broker(RedisBroker(url=os.environ["BENCH_STORE"]))


@dramatiq.actor
def noop(n: int) -> None:
    pass


@dramatiq.actor
def stamp(sent: int) -> None:
    record(sent)


_TASKS = {"noop": noop, "stamp": stamp}


def one(task: str, n: int) -> None:
    _TASKS[task].send(n)


def many(task: str, numbers: Sequence[int]) -> None:
    """It has no bulk call."""
    for n in numbers:
        _TASKS[task].send(n)
