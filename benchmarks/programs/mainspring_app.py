"""The tasks on Mainspring, with its defaults; the durability is said by the caller."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

from benchmarks.programs.stamps import first_start, record
from mainspring import Concurrency, Mainspring, Rate

durability: Any = os.environ["BENCH_DURABILITY"]
address = os.environ["BENCH_STORE"]
app = Mainspring(address if "://" in address else "sqlite:///" + address, durability=durability)


@app.task
async def noop(n: int) -> None:
    pass


@app.task(limit=Concurrency(100_000))
async def wide(n: int) -> None:
    pass


@app.task(limit=Rate(1_000_000, per="1s"))
async def fast(n: int) -> None:
    pass


@app.task(limit=Rate(1_000, per="1s"))
async def paced(n: int) -> None:
    pass


@app.task(limit=Concurrency(100, by=lambda n: str(n % 10_000)))
async def tenants(n: int) -> None:
    pass


@app.task(limit=Concurrency(1, by="n"))
async def apart(n: int) -> None:
    pass


@app.task
def noop_thread(n: int) -> None:
    pass


@app.task
async def stamp(sent: int) -> None:
    record(sent)


@app.task
def stamp_thread(sent: int) -> None:
    record(sent)


@app.task
async def hold(n: int) -> None:
    """Its first start lasts until its process is killed."""
    if first_start(n):
        await asyncio.sleep(600)


_TASKS: dict[str, Any] = {
    task.fn.__name__: task for task in (noop, noop_thread, wide, fast, tenants, apart, stamp, stamp_thread, hold)
}


def one(task: str, n: int) -> None:
    _TASKS[task].enqueue(n)


def many(task: str, numbers: Sequence[int]) -> None:
    call = _TASKS[task].s
    app.enqueue_many([call(n) for n in numbers])


async def aone(task: str, n: int) -> None:
    await _TASKS[task].aenqueue(n)


def lifespan() -> Mainspring:
    """Open while it is used."""
    return app
