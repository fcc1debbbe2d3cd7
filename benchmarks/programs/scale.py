"""Turns on the store itself: ``scale URL COUNT [SERVER_PID]``. Prints what a claim with its ack costs, as JSON.

``empty``, beside COUNT jobs ``queued``, beside COUNT jobs ``finished`` and, on PostgreSQL, beside the ``dead`` rows
that COUNT jobs leave behind while somebody holds a snapshot.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import psutil

from mainspring.common.ids import new_id
from mainspring.jobs.lanes import base_lane
from mainspring.jobs.outcomes import Ack, Lease
from mainspring.jobs.records import JobBatch, NewJob
from mainspring.stores.base import Store
from mainspring.stores.connect import connect, engine_of
from mainspring.worker.records import Beat, Claim, Registration, Turn, Want

WORKER = "scale"
LANE = base_lane("default", "async")
BATCH = 64
TURNS = 150
REPEATS = 6


class Bench:
    """One worker's turns, numbered."""

    def __init__(self, store: Store, server: int | None) -> None:
        self.store = store
        self.server = server
        self.number = 0
        self.held: tuple[Claim, ...] = ()

    async def fill(self, count: int) -> None:
        for start in range(0, count, 1000):
            jobs = [_job() for _ in range(min(1000, count - start))]
            await self.store.enqueue(JobBatch(id=new_id().bytes, jobs=tuple(jobs)))

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
        walls, cpus, servers = [], [], []
        for _ in range(REPEATS):
            await self.turn(BATCH)
            began, used, served, jobs = time.perf_counter(), time.process_time(), self.served(), 0
            for _ in range(TURNS):
                jobs += await self.turn(BATCH)
            walls.append((time.perf_counter() - began) / jobs * 1e6)
            cpus.append((time.process_time() - used) / jobs * 1e6)
            servers.append((self.served() - served) / jobs * 1e6)
            await self.turn(0)
        return {"wall": min(walls), "cpu": min(cpus), "server": min(servers)}

    def served(self) -> float:
        """Seconds of the server for its clients; what it does for itself, such as vacuum, comes when it likes."""
        if self.server is None:
            return 0.0
        main = psutil.Process(self.server)
        clients = [main, *[child for child in main.children() if "[local]" in " ".join(child.cmdline())]]
        return sum(times.user + times.system for times in (process.cpu_times() for process in clients))

    async def drain(self) -> None:
        while await self.turn(1000):
            pass


def _job() -> NewJob:
    return NewJob(id=new_id().bytes, task="bench.noop", queue="default", kind="async", record=b'{"v":1,"args":{"n":1}}')


async def main(url: str, count: int, server: int | None) -> None:
    store = connect(url, durability="normal", deadline=60)
    await store.open()
    await store.beat([Beat(WORKER, Registration(queues=("default",), tasks=("bench.noop",)))])
    bench = Bench(store, server)
    measured = (TURNS + 2) * REPEATS * BATCH
    await bench.fill(measured)
    found = {"empty": await bench.cost()}
    await bench.drain()
    await bench.fill(count + measured)
    found["queued"] = await bench.cost()
    await bench.drain()
    await bench.fill(measured)
    found["finished"] = await bench.cost()
    if engine_of(url) == "postgres":
        async with snapshot(url) as dead:
            await bench.fill(count)
            await bench.drain()
            await bench.fill(measured)
            found["dead"] = await bench.cost() | {"rows": await dead()}
    await store.close()
    print(json.dumps(found))


@contextlib.asynccontextmanager
async def snapshot(url: str) -> AsyncIterator[Callable[[], Awaitable[int]]]:
    """Hold one, so that no dead row can be removed; gives a count of them."""
    import psycopg

    async with (
        await psycopg.AsyncConnection.connect(url) as holder,
        await psycopg.AsyncConnection.connect(url, autocommit=True) as asker,
    ):
        await holder.execute("set transaction isolation level repeatable read")
        await holder.execute("select count(*) from mainspring.workers")

        async def dead() -> int:
            cursor = await asker.execute(
                "select n_dead_tup from pg_stat_user_tables where schemaname = 'mainspring' and relname = 'jobs'"
            )
            row = await cursor.fetchone()
            return row[0] if row else 0

        yield dead


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None))
