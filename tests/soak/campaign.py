"""One run: load and deeds for a while, then rest, then the question whether every promise was kept."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from mainspring.clock import boottime
from mainspring.codec import decode_result
from mainspring.errors import StoreError
from mainspring.info import info_of
from mainspring.query import Query
from mainspring.records import JobRow, NewJob
from mainspring.states import LIVE, State
from mainspring.stores.connect import connect
from mainspring.sync import run as blocking
from mainspring.testing.history import (
    Bound,
    Bounds,
    Event,
    History,
    Promise,
    Run,
    Snapshot,
    Stored,
    Trouble,
    check,
    overlaps,
    read,
    recoveries,
)
from tests.processes import mixed
from tests.processes.fleet import LIMIT, Fleet, Line
from tests.soak.arena import Arena
from tests.soak.crew import Deed, Seat
from tests.soak.load import Producers
from tests.soak.nemesis import Nemesis

MANY = 1_000_000


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How quick everything is. The defaults are those of a worker."""

    seats: int = 3
    lease: float = 15.0
    sweep: float = 3.0
    poll: float = 1.0
    fault_every: tuple[float, float] = (2.0, 6.0)

    def options(self) -> dict[str, Any]:
        return {"lease": self.lease, "sweep": self.sweep, "poll": self.poll}


SHORT = Pace(lease=3.0, sweep=0.3, poll=0.2, fault_every=(0.5, 2.0))


class Verdict(msgspec.Struct, kw_only=True):
    """What a run came to. ``problems`` is empty when all promises held."""

    store: str
    seed: int
    seconds: float = 0.0
    jobs: int = 0
    runs: int = 0
    unknown: int = 0
    """Enqueues that were given no answer."""
    faults: dict[str, int] = {}
    taken: dict[str, int] = {}
    """Attempts that their owner did not finish, by outcome."""
    lost: int = 0
    stale_writes: int = 0
    live_rescued: int = 0
    overlaps: int = 0
    """Bodies that went on after their lease had ended and another had begun: allowed, and told."""
    duplicates: int = 0
    """Bodies that ran again although no lease had ended."""
    recovery: float = 0.0
    """The longest time from a kill to the next claim, in seconds, without the store's own absence."""
    problems: list[str] = []


class Witness(threading.Thread):
    """Looks at the store now and then: who works where, and how many jobs there are."""

    def __init__(self, url: str) -> None:
        super().__init__(name="witness")
        self.workers: dict[str, int] = {}
        """The process of each worker that was seen."""
        self.snapshots: list[Snapshot] = []
        self._url = url
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(0.3):
            with contextlib.suppress(StoreError):
                blocking("witness", self._look())

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    async def _look(self) -> None:
        store = connect(self._url, deadline=5.0)
        try:
            await store.open()
            for row in await store.workers():
                self.workers[row.id] = int(json.loads(row.info).get("pid", 0))
            counts = await store.count(Query.everything())
            self.snapshots.append(Snapshot(at=time.time(), counts=counts))
        finally:
            await store.close()


class Campaign:
    """``run`` does all of it and returns the verdict."""

    def __init__(self, arena: Arena, folder: Path, seed: int, pace: Pace = SHORT) -> None:
        self.history = History()
        """What the run was, once it is over."""
        self._arena = arena
        self._pace = pace
        self._folder = folder
        self._verdict = Verdict(store=arena.name, seed=seed)
        self._stack = contextlib.ExitStack()
        self._fleet = Fleet(arena.url, folder)
        self._stack.callback(self._fleet.close)
        wires = [self._stack.enter_context(arena.wire()) for _ in range(pace.seats)]
        self._seats = [Seat(self._fleet, wire, pace.options(), apart=n % 2 == 1) for n, wire in enumerate(wires)]
        clients = self._stack.enter_context(arena.wire())
        self._nemesis = Nemesis(arena, self._seats, clients, seed, pace.lease)
        self._producers = Producers(clients.url if clients else arena.url, folder)
        self._stack.callback(self._producers.close)
        self._witness = Witness(arena.url)

    def run(self, seconds: float) -> Verdict:
        began = time.monotonic()
        with self._stack:
            self._witness.start()
            self._producers.start()
            try:
                self._disturb(began + seconds)
            finally:
                self._producers.stop()
                self._witness.stop()
            self._settle()
            self._verdict.seconds = round(time.monotonic() - began, 1)
            self._judge()
        return self._verdict

    def _disturb(self, end: float) -> None:
        draw = self._nemesis.draw
        next_fault = time.monotonic() + draw(*self._pace.fault_every)
        while (now := time.monotonic()) < end:
            for seat in self._seats:
                seat.fill()
            if now >= next_fault:
                self._nemesis.strike()
                next_fault = now + draw(*self._pace.fault_every)
            time.sleep(0.1)
        self._nemesis.finish()

    def _settle(self) -> None:
        """Until nothing is live any more; what will not end is told by the verdict."""
        end = time.monotonic() + max(10 * LIMIT, len(self._producers.made) / 2)
        while time.monotonic() < end and blocking("live", self._live()):
            for seat in self._seats:
                seat.fill()
            time.sleep(0.2)

    async def _live(self) -> int:
        """How many jobs have not ended, in one snapshot: a job on its way from state to state counts once."""
        store = connect(self._arena.url)
        try:
            await store.open()
            counts = await store.count(Query.everything())
            return sum(counts[state] for state in LIVE)
        finally:
            await store.close()

    # ---- the end ----------------------------------------------------------------------------

    def _judge(self) -> None:
        stored = blocking("read", self._read())
        lines = self._fleet.journal()
        history = self.history = self._history(stored, lines)
        verdict = self._verdict
        found = check(history)
        kinds = Counter(violation.invariant for violation in found)
        verdict.jobs = len(stored.jobs)
        verdict.runs = len(history.runs)
        verdict.unknown = sum(call.answer == "unknown" for call in self._producers.calls)
        verdict.faults = dict(self._nemesis.counts)
        verdict.lost, verdict.stale_writes, verdict.live_rescued = kinds["I1"], kinds["I7"], kinds["I12"]
        verdict.duplicates = kinds["I6"] + kinds["I8"] + kinds["I10"]
        verdict.overlaps = sum(1 for _ in overlaps(history))
        verdict.recovery = round(max(recoveries(history), default=0.0), 1)
        verdict.problems += [f"{v.invariant} {v.job}: {v.what}" for v in found]
        taken = Counter(str(event.outcome) for event in stored.events if event.outcome is not None)
        verdict.taken = {name: taken[name] for name in ("crashed", "lost", "interrupted")}
        by_job: dict[str, list[Line]] = {}
        for line in lines:
            by_job.setdefault(line.job, []).append(line)
        for row, attempts in stored.jobs:
            info = info_of(row, attempts)
            if info.final and (problem := mixed.check(info, by_job.get(str(info.id), []), kills=MANY)):
                verdict.problems.append(problem)

    async def _read(self) -> Stored:
        store = connect(self._arena.url)
        try:
            await store.open()
            return await read(store, shown=shown)
        finally:
            await store.close()

    def _history(self, stored: Stored, lines: list[Line]) -> History:
        return History(
            events=stored.events,
            listed=stored.listed,
            durability=stored.durability,
            asked="full",
            calls=tuple(self._producers.calls),
            runs=tuple(runs_of(lines)),
            troubles=tuple(troubles_of(self._nemesis.deeds, self._pids(stored.events, lines))),
            promises=self._promises(stored.events),
            snapshots=(*self._witness.snapshots, stored.snapshot),
            limits=self._limits(),
            bounds=Bounds(lease=self._pace.lease, slack=2.0),
        )

    def _pids(self, events: tuple[Event, ...], lines: list[Line]) -> dict[str, int]:
        """The process of each worker: as the witness saw it, and by what its bodies wrote down."""
        by_token = {(line.job, line.token): line.pid for line in lines}
        found = {event.worker: by_token.get((event.job, event.token), 0) for event in events if event.worker}
        return {**{worker: pid for worker, pid in found.items() if pid}, **self._witness.workers}

    def _limits(self) -> dict[str, Bound]:
        """Of every bucket that a job names."""
        batches = [made.batch for made in self._producers.made]
        declared = {limit.name: limit for batch in batches for limit in batch.limits}
        named = {bucket for batch in batches for job in batch.jobs for bucket in job.buckets}
        return {
            bucket.name: Bound(size=declared[bucket.limit].size, per=declared[bucket.limit].per / 1e6)
            for bucket in named
        }

    def _promises(self, events: tuple[Event, ...]) -> dict[str, Promise]:
        born = {event.job: event.at for event in reversed(events)}
        new = (job for made in self._producers.made for job in made.batch.jobs)
        return {id: promise_of(job, born[id]) for job in new if (id := str(UUID(bytes=job.id))) in born}


RETRIES = {"again": 1, "quitter": 5, "early": 5}


def promise_of(job: NewJob, born: float) -> Promise:
    return Promise(
        retries=RETRIES.get(job.task, 0),
        early=job.early,
        not_before=born + job.delay / 1e6 if job.delay else None,
        expires=None if job.expires_in is None else born + job.expires_in / 1e6,
        buckets=tuple(bucket.name for bucket in job.buckets),
    )


def shown(row: JobRow) -> int | None:
    """Most bodies of the load return their token."""
    if row.state is not State.SUCCEEDED or row.result is None:
        return None
    result = decode_result(row.result)
    return result if isinstance(result, int) else None


def runs_of(lines: list[Line]) -> list[Run]:
    """The runs that bodies wrote down, by the wall clock."""
    wall = time.time() - boottime()
    ends = {(line.job, line.token): line.at + wall for line in lines if line.word == "END"}
    return [
        Run(job=line.job, token=line.token, began=line.at + wall, ended=ends.get((line.job, line.token)))
        for line in lines
        if line.word == "START"
    ]


def troubles_of(deeds: list[Deed], pids: dict[str, int]) -> list[Trouble]:
    """What was done to processes, as what was done to their workers."""
    workers: dict[int, list[str]] = {}
    for worker, pid in pids.items():
        workers.setdefault(pid, []).append(worker)
    found = []
    for deed in deeds:
        names = [worker for pid in deed.pids for worker in workers.get(pid, ())] if deed.pids else [""]
        found += [Trouble(what=deed.what, worker=name, began=deed.began, ended=deed.ended) for name in set(names)]  # type: ignore[arg-type]  # a deed's word is one of them
    return found
