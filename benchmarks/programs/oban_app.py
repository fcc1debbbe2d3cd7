"""The same tasks on oban: a hundred jobs at once. Run as a program it works."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from oban import Job, Oban, worker
from oban.schema import install

from benchmarks.programs import produce
from benchmarks.programs.stamps import record


@worker()
class Noop:
    async def process(self, job: Job) -> None:
        pass


@worker()
class Stamp:
    async def process(self, job: Job) -> None:
        record(job.args["n"])


_TASKS = {"noop": Noop, "stamp": Stamp}
_oban: list[Oban] = []


@asynccontextmanager
async def lifespan(queues: Mapping[str, int] | None = None) -> AsyncIterator[None]:
    pool = await Oban.create_pool(os.environ["BENCH_STORE"])
    await install(pool)
    async with Oban(pool=pool, queues=dict(queues or {})) as oban:
        _oban.append(oban)
        yield
    await pool.close()


async def aone(task: str, n: int) -> None:
    await _oban[0].enqueue(_TASKS[task].new({"n": n}))


async def amany(task: str, numbers: Sequence[int]) -> None:
    await _oban[0].enqueue_many([_TASKS[task].new({"n": n}) for n in numbers])


async def work() -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with lifespan({"default": 100}):
        await ended.wait()


if __name__ == "__main__":
    from benchmarks.programs import oban_app  # its jobs name their workers by import path

    produce.run(oban_app.work())
