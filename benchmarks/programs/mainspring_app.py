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


@app.task
async def echo(n: int) -> int:
    return n


@app.task
async def gather(numbers: list[int]) -> None:
    record(len(numbers))


@app.task
async def last(n: int) -> None:
    record(n)


_TASKS: dict[str, Any] = {
    task.fn.__name__: task for task in (noop, noop_thread, wide, fast, tenants, apart, stamp, stamp_thread, hold, echo)
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


# ---- flows: the last job of each notes its start. An older tree to compare with may have none: imported at use. ---


def chain(n: int) -> None:
    flow: Any = echo.s(0)
    for _ in range(n - 2):
        flow = flow | echo
    (flow | last).enqueue()


def chord(n: int) -> None:
    from mainspring import group

    (group(echo.s(each) for each in range(n)) | gather).enqueue()


def batch(n: int) -> None:
    with app.flows.batch("batch", on_success=last.s(n)) as made:
        for first in range(0, n, 1000):
            made.add_many(echo.s(each) for each in range(first, min(n, first + 1000)))


def dag(n: int) -> None:
    """Layers of ten nodes; each node waits for all nodes of the layer before. Its jobs are not run."""
    from mainspring import Dag

    made = Dag()
    before: list[Any] = []
    for _ in range(n // 10):
        before = [made.add(noop.s(each), after=before) for each in range(10)]
    made.enqueue()
