"""Schedules on the store itself: ``schedules URL SECONDS [SERVER_PID]``. Prints what they cost, as JSON.

``tick``: a look that finds nothing due among 10,000 schedules. ``cpu``: the share of a processor that a scheduler takes
while one of them is due each second, ``server`` that of the server; another process runs the jobs. ``herd``: from the
moment at which 1,000 schedules are due until there is a job of each.

``schedules URL work`` is that other process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time

import psutil

from benchmarks.processes import tree_cpu
from mainspring.jobs.lanes import base_lane
from mainspring.jobs.outcomes import Ack, Lease
from mainspring.jobs.query import Query
from mainspring.jobs.records import NewJob
from mainspring.schedules.plan import TEMPLATE, Definition, encode, new_plan
from mainspring.schedules.records import ScheduleSwap
from mainspring.schedules.rules import Every, make_window
from mainspring.schedules.service import Scheduler
from mainspring.stores.base import Store
from mainspring.stores.connect import connect
from mainspring.worker.records import Beat, Registration, Turn, Want

COUNT = 10_000
HERD = 1_000
TICKS = 200
SECOND = 1_000_000


async def put(store: Store, queue: str, names: list[str], step: int) -> int:
    """Schedules of which one is due each ``step``, from two seconds after the last one is there; when that is."""
    begin = (await store.due_schedules(1)).now + (2 + len(names) // 200) * SECOND
    job = NewJob(id=TEMPLATE.bytes, task="bench.noop", queue=queue, kind="async")
    definition = Definition(job=job, rule=make_window(Every(COUNT * SECOND)))
    for start in range(0, len(names), 50):
        swaps = []
        for n, name in enumerate(names[start : start + 50], start=start):
            plan = new_plan(definition, begin + n * step - COUNT * SECOND)
            swaps.append(store.swap_schedule(ScheduleSwap(name=name, rev=0, doc=encode(plan), look=plan.due)))
        await asyncio.gather(*swaps)
    return begin


async def until(store: Store, moment: int) -> None:
    while (left := moment - (await store.due_schedules(1)).now) > 0:  # noqa: ASYNC110 - it is the store's clock that is waited for
        await asyncio.sleep(left / 1e6)


class Meter:
    """Processor time of this process, and of the server for its clients."""

    def __init__(self, server: int | None) -> None:
        self._server = server

    def own(self) -> float:
        return time.process_time()

    def server(self) -> float:
        return 0.0 if self._server is None else tree_cpu(psutil.Process(self._server))


async def measure(url: str, seconds: float, meter: Meter) -> dict[str, float]:
    store = connect(url, durability="normal", deadline=60)
    await store.open()
    begin = await put(store, "some", [f"some-{n:05}" for n in range(COUNT)], SECOND)
    scheduler = Scheduler(store)
    await scheduler.tick()
    began = meter.own()
    for _ in range(TICKS):
        await store.due_schedules(200)
    found = {"tick": (meter.own() - began) / TICKS * 1e6}
    worker = await asyncio.create_subprocess_exec(sys.executable, "-m", __spec__.name, url, "work")
    running = asyncio.create_task(scheduler.run())
    await until(store, begin + SECOND)
    began, served, wall = meter.own(), meter.server(), time.monotonic()
    await asyncio.sleep(seconds)
    wall = time.monotonic() - wall
    found |= {"cpu": (meter.own() - began) / wall * 100, "server": (meter.server() - served) / wall * 100}
    worker.terminate()
    await worker.wait()
    moment = await put(store, "herd", [f"herd-{n:04}" for n in range(HERD)], 0)
    await until(store, moment)
    made = 0
    while made < HERD:
        made = sum((await store.count(Query(queues=("herd",)))).values())
        await asyncio.sleep(0.02)
    found["herd"] = ((await store.due_schedules(1)).now - moment) / 1e6
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    await store.close()
    return found


async def work(url: str) -> None:
    """Run jobs as they come, for as long as somebody lets it."""
    store = connect(url, durability="normal", deadline=60)
    await store.open()
    await store.beat([Beat("worker", Registration(queues=("some",), tasks=("bench.noop",), lease=3600 * SECOND))])
    number, acks = 0, tuple[Ack, ...]()
    while True:
        number += 1
        wants = (Want((base_lane("some", "async"),), 50),)
        turned = await store.turn(Turn(worker="worker", number=number, seen=number - 1, acks=acks, wants=wants))
        acks = tuple([Ack.succeeded(Lease(claim.id, claim.token), b"null") for claim in turned.claims])
        await asyncio.sleep(0.0 if acks else 0.2)


if __name__ == "__main__":
    if sys.argv[2] == "work":
        asyncio.run(work(sys.argv[1]))
    else:
        pid = int(sys.argv[3]) if len(sys.argv) > 3 else None
        print(json.dumps(asyncio.run(measure(sys.argv[1], float(sys.argv[2]), Meter(pid)))))
