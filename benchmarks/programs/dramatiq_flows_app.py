"""Flows of dramatiq on its Redis broker: pipelines, which pass results on, and groups with a completion callback.

The callback of a group gets no results: it only starts after all members.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import dramatiq
from dramatiq import group, pipeline
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import GroupCallbacks
from dramatiq.rate_limits.backends import RedisBackend as LimitBackend
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend as ResultBackend

from benchmarks.programs.stamps import record

_STORE = os.environ["BENCH_STORE"]
broker = RedisBroker(url=_STORE)
broker.add_middleware(Results(backend=ResultBackend(url=_STORE)))
broker.add_middleware(GroupCallbacks(LimitBackend(url=_STORE)))
dramatiq.set_broker(broker)


@dramatiq.actor
def noop(n: int) -> None:
    pass


@dramatiq.actor(store_results=True)
def echo(n: int) -> int:
    return n


@dramatiq.actor
def last(n: int) -> None:
    record(n)


_TASKS = {"noop": noop, "echo": echo}


def many(task: str, numbers: Sequence[int]) -> None:
    """It has no bulk call."""
    for n in numbers:
        _TASKS[task].send(n)


def chain(n: int) -> None:
    pipeline([echo.message(0), *[echo.message() for _ in range(n - 2)], last.message()]).run()


def chord(n: int) -> None:
    members = group([echo.message(each) for each in range(n)])
    members.add_completion_callback(last.message(n))
    members.run()
