"""Turns on the store itself: ``fair URL MOST [SERVER_PID]``. Prints what fair keys get beside a flood, as JSON.

``calm``: many keys, each with a backlog, enqueued anew as it is claimed. ``flooded``: the same behind the flood of one
more. Waits are counted in claims between enqueue and start. Costs are of a claim with its ack: of ``plain`` jobs,
the same with many keys waiting in another queue (``beside``), and of jobs that all have keys of their own
(``keys``, ``most``).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterable

import psutil

from mainspring.common.ids import new_id
from mainspring.jobs.lanes import base_lane
from mainspring.jobs.outcomes import Ack, Lease
from mainspring.jobs.records import JobBatch, NewJob
from mainspring.queues.records import FairKey
from mainspring.stores.base import Store
from mainspring.stores.connect import connect
from mainspring.worker.records import Beat, Claim, Registration, Turn, Want

KEYS = 10_000
FLOOD = 100_000
BATCH = 64
TURNS = 100
REPEATS = 3


class Bench:
    """One worker's turns, numbered; and the claims, counted."""

    def __init__(self, store: Store, server: int | None) -> None:
        self.store = store
        self.server = server
        self.number = 0
        self.claimed = 0
        self.held: tuple[Claim, ...] = ()

    async def fill(self, queue: str, keys: Iterable[str | None]) -> None:
        jobs = [_job(queue, key, self.claimed) for key in keys]
        for start in range(0, len(jobs), 1000):
            await self.store.enqueue(JobBatch(id=new_id().bytes, jobs=tuple(jobs[start : start + 1000])))

    async def turn(self, queue: str, n: int) -> tuple[Claim, ...]:
        """Ack what is held, claim up to ``n``."""
        self.number += 1
        acks = tuple([Ack.succeeded(Lease(claim.id, claim.token), b"null") for claim in self.held])
        want = Want((base_lane(queue, "async"),), n)
        turned = await self.store.turn(
            Turn(worker="fair", number=self.number, seen=self.number - 1, acks=acks, wants=(want,) if n else ())
        )
        self.held = turned.claims
        self.claimed += len(turned.claims)
        return turned.claims

    async def drain(self, queue: str) -> None:
        while await self.turn(queue, 1000):
            pass

    async def cost(self, queue: str, key: str = "") -> float:
        """Microseconds a job of the engine's processor, the least of some repeats: other load only adds."""
        costs = []
        for repeat in range(REPEATS):
            if not key:
                await self.fill(queue, [None] * BATCH * (TURNS + 1))
            elif key != "waiting":
                await self.fill(queue, (f"{key} {repeat} {n}" for n in range(BATCH * (TURNS + 1))))
            await self.turn(queue, BATCH)
            began, jobs = self.used(), 0
            for _ in range(TURNS):
                jobs += len(await self.turn(queue, BATCH))
            costs.append((self.used() - began) / jobs * 1e6)
            await self.turn(queue, 0)
        return min(costs)

    def used(self) -> float:
        """Seconds of the server for its clients, or of this process where there is none."""
        if self.server is None:
            return time.process_time()
        main = psutil.Process(self.server)
        clients = [main, *[child for child in main.children() if "[local]" in " ".join(child.cmdline())]]
        return sum(times.user + times.system for times in (each.cpu_times() for each in clients))

    async def others(self, queue: str, flood: int) -> dict[str, float]:
        """What keys other than that of the flood get, and how long they wait."""
        await self.fill(queue, ["flood"] * flood)
        for _ in range(2):
            await self.fill(queue, map(str, range(KEYS)))
        first, waits, gone = self.claimed, list[int](), 0
        while self.claimed - first < 4 * KEYS:
            before = self.claimed
            claims = await self.turn(queue, BATCH)
            told = [claim.record.decode().split() for claim in claims]
            waits += [before + n - int(at) for n, (key, at) in enumerate(told) if key != "flood"]
            gone += sum(key == "flood" for key, _ in told)
            await self.fill(queue, [key for key, _ in told if key != "flood"])
        waits = sorted(waits[2 * KEYS :])
        return {"share": 100 * (1 - gone / (self.claimed - first)), "p99": waits[int(len(waits) * 0.99)]}


def _job(queue: str, key: str | None, claimed: int) -> NewJob:
    fair = None if key is None else FairKey(key)
    record = f"{(key or '-').split()[0]} {claimed}".encode()
    return NewJob(id=new_id().bytes, task="bench.noop", queue=queue, kind="async", fair=fair, record=record)


async def main(url: str, most: int, server: int | None) -> None:
    store = connect(url, durability="normal", deadline=60)
    await store.open()
    await store.beat([Beat("fair", Registration(queues=("calm", "flooded", "plain"), tasks=("bench.noop",)))])
    bench = Bench(store, server)
    found: dict[str, object] = {"plain": await bench.cost("plain")}
    found["calm"] = await bench.others("calm", 0)
    found["flooded"] = await bench.others("flooded", FLOOD)
    found["beside"] = await bench.cost("plain")
    found["keys"] = await bench.cost("keys", "key")
    began = bench.used()
    for start in range(0, most, 10_000):
        await bench.fill("most", (f"{n} each" for n in range(start, min(start + 10_000, most))))
    found["enqueue"] = (bench.used() - began) / most * 1e6
    found["most"] = await bench.cost("most", "waiting")
    await store.close()
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None))
