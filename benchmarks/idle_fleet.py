"""What a fleet of idle workers costs its server. The figures of decisions 52 and 57.

``python -m benchmarks.idle_fleet --store postgres [--workers 1000] [--seconds 20]``

One process asks what idle workers ask, at their rate: each worker id has random moments of its own. First each kind of
call alone, then all of them. ``before`` is what the same fleet asked before decision 57. A real fleet has connections
of its own for each worker, and on PostgreSQL a process of the server for each, which this does not show: an idle
connection costs memory, and a call on it somewhat more.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import random
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import places
from benchmarks.enqueue_cost import server_time
from benchmarks.places import Place
from mainspring.common.ids import worker_id
from mainspring.jobs.lanes import KINDS, base_lane
from mainspring.stores.base import Store
from mainspring.stores.connect import StoreAddress, connect_to
from mainspring.worker.config import WorkerSettings
from mainspring.worker.loop.turn_loop import IDLE_EVERY
from mainspring.worker.loop.wakeups import poll_pause
from mainspring.worker.records import Beat, Registration, Turn, Want
from mainspring.worker.services.leader import JOBS, SCHEDULES, pause_between_looks

SETTINGS = WorkerSettings()
BEAT, POLL = SETTINGS.lease / 3e6, SETTINGS.poll / 1e6
QUEUE = "default"
TASKS = tuple(f"shop.task{n}" for n in range(5))
LANES = tuple(base_lane(QUEUE, kind) for kind in KINDS)

LEADER = ("lead", "sweep")
"""The kinds of calls that only the leader makes, beside those of every worker."""
INFO = b'{"host":"worker-1","pid":1,"facts":"' + b"x" * 500 + b'"}'

Pauses = Mapping[str, Callable[[], float]]
"""For each kind of call: the seconds from one to the next of the same worker."""


class IdleFleet:
    """Worker ids, and the calls that a worker of each makes while it has nothing to do."""

    def __init__(self, store: Store, size: int) -> None:
        self._store = store
        self._ids = [worker_id() for _ in range(size)]
        self._numbers = Counter[str]()
        self._polling = defaultdict[str, asyncio.Lock](asyncio.Lock)
        """A worker makes one turn at a time, also where the server is slow."""
        self._wants = (Want(LANES, SETTINGS.async_slots + SETTINGS.thread_slots),)
        self.calls: Mapping[str, Callable[[str], Awaitable[object]]] = {
            "look": self._look, "poll": self._poll, "heartbeat": self._beat, "second heartbeat": self._beat,
            "lead": self._look, "sweep": self._sweep,
        }  # fmt: skip
        self.made = Counter[str]()

    async def register(self) -> None:
        facts = Registration(queues=(QUEUE,), tasks=TASKS, lease=SETTINGS.lease, info=INFO)
        for start in range(0, len(self._ids), 100):
            await self._store.beat([Beat(name, facts) for name in self._ids[start : start + 100]])

    async def ask(self, pauses: Pauses, seconds: float) -> None:
        """Make the calls of all workers for so many seconds, each at its own moment."""
        began = time.monotonic()
        leader, others = self._ids[:1], self._ids[1:]
        moments = [
            (began + random.random() * pause(), kind, name)
            for kind, pause in pauses.items()
            for name in (leader if kind in LEADER else others)
        ]
        heapq.heapify(moments)
        running: set[asyncio.Task[None]] = set()
        while moments[0][0] < began + seconds:
            at, kind, name = moments[0]
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            task = asyncio.create_task(self._call(kind, name))
            running.add(task)
            task.add_done_callback(running.discard)
            heapq.heapreplace(moments, (at + pauses[kind](), kind, name))
        await asyncio.gather(*running)

    async def _call(self, kind: str, name: str) -> None:
        await self.calls[kind](name)
        self.made[kind] += 1

    async def _sweep(self, name: str) -> object:
        """The leader looks for silent workers."""
        await self._beat(name)
        return await self._store.workers()

    async def _look(self, name: str) -> object:
        return await self._store.lead(name, (JOBS, SCHEDULES), SETTINGS.sweep)

    async def _poll(self, name: str) -> object:
        async with self._polling[name]:
            self._numbers[name] += 1
            number = self._numbers[name]
            turn = Turn(worker=name, number=number, seen=number - 1, wants=self._wants, suspects=1)
            return await self._store.turn(turn)

    async def _beat(self, name: str) -> object:
        (reply,) = await self._store.beat([Beat(name)])
        assert reply.alive
        return reply


def now_and_before(size: int) -> dict[str, Pauses]:
    """The pauses of one worker of a fleet of this size."""
    leader: Pauses = {"lead": lambda: 1.0, "sweep": lambda: SETTINGS.sweep / 1e6}
    others: Pauses = {
        "look": lambda: pause_between_looks(1.0, size),
        "poll": lambda: min(IDLE_EVERY, poll_pause(POLL, size)),
        "heartbeat": lambda: BEAT,
    }
    before: Pauses = {**leader, **others, "poll": lambda: POLL, "second heartbeat": lambda: BEAT}
    alone = {f"only {kind}": {kind: pause} for kind, pause in others.items()}
    return {"only leader": leader, **alone, "all": {**leader, **others}, "before": before}


async def measure(place: Place, size: int, seconds: float, only: Sequence[str]) -> dict[str, dict[str, float]]:
    """Per cent of a core of the server and calls a second, by title."""
    store = connect_to(StoreAddress(url=place.address))
    await store.migrate()
    await store.open()
    fleet = IdleFleet(store, size)
    await fleet.register()
    found: dict[str, dict[str, float]] = {}
    for title, pauses in now_and_before(size).items():
        if only and title not in only:
            continue
        await fleet.ask(pauses, min(seconds, 2.0))  # warms up
        fleet.made.clear()
        server, began = server_time(place), time.monotonic()
        await fleet.ask(pauses, seconds)
        took = time.monotonic() - began
        used = server_time(place) - server
        calls = sum(fleet.made.values())
        each = ", ".join(f"{kind} {count / took:.0f}" for kind, count in fleet.made.items())
        print(
            f"  {title:15} {calls / took:6.0f} calls/s   {used / took * 100:6.2f} % of a core   "
            f"{used / calls * 1e6:6.1f} us a call   ({each})",
            flush=True,
        )
        found[title] = {"core": used / took * 100, "calls": calls / took}
    await store.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="What a fleet of idle workers costs its server.")
    parser.add_argument("--store", choices=("postgres", "redis"), default="postgres")
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--only", nargs="*", default=(), help="for example: all before")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON in the last line")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="idle-") as folder, places.fresh(given.store, Path(folder)) as place:
        print(f"{given.store} {place.version()}, {given.workers} idle workers", flush=True)
        found = asyncio.run(measure(place, given.workers, given.seconds, given.only))
    if given.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
