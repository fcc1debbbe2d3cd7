"""The same tasks on taskiq with the stream broker, which acknowledges a job when it has run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from taskiq_redis import RedisStreamBroker

from benchmarks.programs.stamps import record

broker = RedisStreamBroker(os.environ["BENCH_STORE"], xread_count=100)


@broker.task
async def noop(n: int) -> None:
    pass


@broker.task
async def stamp(sent: int) -> None:
    record(sent)


_TASKS = {"noop": noop, "stamp": stamp}
_AT_ONCE = 50


@asynccontextmanager
async def lifespan() -> AsyncIterator[None]:
    """Makes the consumer group as well: a worker sees what comes after it."""
    await broker.startup()
    yield
    await broker.shutdown()


async def aone(task: str, n: int) -> None:
    await _TASKS[task].kiq(n)


async def amany(task: str, numbers: Sequence[int]) -> None:
    """It has no bulk call; some at once are its quickest way."""
    for start in range(0, len(numbers), _AT_ONCE):
        await asyncio.gather(*[_TASKS[task].kiq(n) for n in numbers[start : start + _AT_ONCE]])
