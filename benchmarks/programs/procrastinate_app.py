"""The same tasks on procrastinate: a hundred jobs at once. Run as a program it works."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from procrastinate import App, PsycopgConnector

from benchmarks.programs import produce
from benchmarks.programs.stamps import record

app = App(connector=PsycopgConnector(conninfo=os.environ["BENCH_STORE"], min_size=4, max_size=20))


@app.task(name="noop")
async def noop(n: int) -> None:
    pass


@app.task(name="stamp")
async def stamp(n: int) -> None:
    record(n)


_TASKS = {"noop": noop, "stamp": stamp}


@asynccontextmanager
async def lifespan() -> AsyncIterator[None]:
    async with app.open_async():
        if not await app.check_connection_async():
            await app.schema_manager.apply_schema_async()
        yield


async def aone(task: str, n: int) -> None:
    await _TASKS[task].defer_async(n=n)


async def amany(task: str, numbers: Sequence[int]) -> None:
    await _TASKS[task].batch_defer_async(*[{"n": n} for n in numbers])


async def work() -> None:
    async with lifespan():
        await app.run_worker_async(concurrency=100)


if __name__ == "__main__":
    produce.run(work())
