"""The same tasks on chancy: default plugins, the asyncio executor, a hundred jobs at once. As a program it works."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from chancy import Chancy, Job, Queue, Worker

from benchmarks.programs import produce
from benchmarks.programs.stamps import record

_log = logging.getLogger("chancy.bench")
_log.setLevel(logging.WARNING)
app = Chancy(os.environ["BENCH_STORE"], log=_log)


async def noop(*, n: int) -> None:
    pass


async def stamp(*, n: int) -> None:
    record(n)


_TASKS = {"noop": noop, "stamp": stamp}


def _job(task: str, n: int) -> Job:
    return Job.from_func(_TASKS[task], kwargs={"n": n})


@asynccontextmanager
async def lifespan() -> AsyncIterator[None]:
    async with app:
        await app.migrate()
        await app.declare(
            Queue("default", concurrency=100, executor=Chancy.Executor.Async, eager_polling=True, polling_interval=1)
        )
        yield


async def aone(task: str, n: int) -> None:
    await app.push(_job(task, n))


async def amany(task: str, numbers: Sequence[int]) -> None:
    async for _ in app.push_many([_job(task, n) for n in numbers]):
        pass


async def work() -> None:
    async with lifespan(), Worker(app) as worker:
        await worker.wait_for_shutdown()


if __name__ == "__main__":
    from benchmarks.programs import chancy_app  # its jobs name their functions by import path

    produce.run(chancy_app.work())
