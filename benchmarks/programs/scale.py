"""Turns on the store itself: ``scale COUNT``. Prints the cost of a claim with its ack, empty, queued, finished."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

from mainspring.ids import new_id
from mainspring.lanes import base_lane
from mainspring.outcomes import Ack, Lease
from mainspring.records import Beat, Claim, NewJob, Registration, Want
from mainspring.stores.base import Batch, Store, Turn
from mainspring.stores.connect import connect

WORKER = "scale"
LANE = base_lane("default", "async")
BATCH = 64
TURNS = 150
REPEATS = 6


class Bench:
    """One worker's turns, numbered."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.number = 0
        self.held: tuple[Claim, ...] = ()

    async def fill(self, count: int) -> None:
        for start in range(0, count, 2000):
            jobs = [_job() for _ in range(min(2000, count - start))]
            await self.store.enqueue(Batch(id=new_id().bytes, jobs=tuple(jobs)))

    async def turn(self, n: int) -> int:
        """Ack what is held, claim up to ``n``."""
        self.number += 1
        acks = tuple([Ack.succeeded(Lease(claim.id, claim.token), b"null") for claim in self.held])
        wants = (Want((LANE,), n),) if n else ()
        turned = await self.store.turn(
            Turn(worker=WORKER, number=self.number, seen=self.number - 1, acks=acks, wants=wants)
        )
        if turned.lost or turned.stale:
            raise SystemExit(f"turn {self.number}: lost={turned.lost} stale={len(turned.stale)}")
        self.held = turned.claims
        return len(turned.claims)

    async def cost(self) -> dict[str, float]:
        """Microseconds a job, the least of some repeats: other load on the machine only adds."""
        walls, cpus = [], []
        for _ in range(REPEATS):
            await self.turn(BATCH)
            began, used, jobs = time.perf_counter(), time.process_time(), 0
            for _ in range(TURNS):
                jobs += await self.turn(BATCH)
            walls.append((time.perf_counter() - began) / jobs * 1e6)
            cpus.append((time.process_time() - used) / jobs * 1e6)
            await self.turn(0)
        return {"wall": min(walls), "cpu": min(cpus)}

    async def drain(self) -> None:
        while await self.turn(1000):
            pass


def _job() -> NewJob:
    return NewJob(id=new_id().bytes, task="bench.noop", queue="default", kind="async", record=b'{"v":1,"args":{"n":1}}')


async def main(count: int) -> None:
    store = connect("sqlite:///" + os.environ["BENCH_STORE"], durability="normal", deadline=60)
    await store.open()
    await store.beat([Beat(WORKER, Registration(queues=("default",), tasks=("bench.noop",)))])
    bench = Bench(store)
    measured = (TURNS + 2) * REPEATS * BATCH
    await bench.fill(measured)
    found = {"empty": await bench.cost()}
    await bench.drain()
    await bench.fill(count + measured)
    found["queued"] = await bench.cost()
    await bench.drain()
    await bench.fill(measured)
    found["finished"] = await bench.cost()
    await store.close()
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
