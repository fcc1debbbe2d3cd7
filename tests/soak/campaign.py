"""One run: load and deeds for a while, then rest, then the question whether every promise was kept."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from mainspring.breakers.records import BREAKER_SUFFIX as GUARD
from mainspring.client.blocking import run as blocking
from mainspring.jobs.info import build_info
from mainspring.jobs.query import Query
from mainspring.states import LIVE, Reason
from mainspring.stores.connect import connect
from mainspring.testing.history import (
    Bounds,
    History,
    JobEvent,
    Promise,
    StoredHistory,
    check,
    overlaps,
    read,
    recoveries,
)
from tests.processes import mixed
from tests.processes.fleet import LIMIT, Fleet, Line
from tests.soak.arena import Arena
from tests.soak.crew import Seat
from tests.soak.flow import AT_ONCE, BREAKER, ENDS
from tests.soak.leftovers import leftovers
from tests.soak.load import Producers
from tests.soak.locked import holdings_of
from tests.soak.nemesis import Nemesis
from tests.soak.telling import bounds_of, promise_of, runs_of, shown, troubles_of
from tests.soak.witness import Witness

MANY = 1_000_000


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How quick everything is. The defaults are those of a worker."""

    seats: int = 3
    lease: float = 15.0
    sweep: float = 3.0
    poll: float = 1.0
    fault_every: tuple[float, float] = (2.0, 6.0)

    def options(self) -> dict[str, Any]:
        return {"lease": self.lease, "sweep": self.sweep, "poll": self.poll, "concurrency": AT_ONCE}


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
    flow: dict[str, int] = {}
    """What flow control was asked to do."""
    recovery: float = 0.0
    """The longest time from a kill to the next claim, in seconds, without the store's own absence."""
    problems: list[str] = []


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
        self._stack.callback(self._nemesis.hand.close)
        self._ledger = self._producers.ledger
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
        next_fault = next_switch = time.monotonic() + draw(*self._pace.fault_every)
        while (now := time.monotonic()) < end:
            for seat in self._seats:
                seat.fill()
            if now >= next_fault:
                self._nemesis.strike()
                next_fault = now + draw(*self._pace.fault_every)
            if now >= next_switch:
                self._nemesis.switch()
                next_switch = now + self._pace.fault_every[1]
            time.sleep(0.1)
        self._nemesis.finish()

    def _settle(self) -> None:
        """Wait until no job is live. The verdict reports jobs that do not end."""
        end = time.monotonic() + max(10 * LIMIT, len(self._ledger.made) / 2)
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
        verdict.unknown = sum(call.answer == "unknown" for call in self._ledger.calls)
        verdict.faults = dict(self._nemesis.counts)
        verdict.lost, verdict.stale_writes, verdict.live_rescued = kinds["I1"], kinds["I7"], kinds["I12"]
        verdict.duplicates = kinds["I6"] + kinds["I8"] + kinds["I10"]
        verdict.flow = self._asked_of_flow_control(stored, history)
        verdict.overlaps = sum(1 for _ in overlaps(history))
        verdict.recovery = round(max(recoveries(history), default=0.0), 1)
        verdict.problems += [f"{v.invariant} {v.job}: {v.what}" for v in found]
        taken = Counter(str(event.outcome) for event in stored.events if event.outcome is not None)
        verdict.taken = {name: taken[name] for name in ("crashed", "lost", "interrupted")}
        by_job: dict[str, list[Line]] = {}
        for line in lines:
            by_job.setdefault(line.job, []).append(line)
        for row, attempts in stored.jobs:
            info = build_info(row, attempts)
            if info.final and (problem := mixed.check(info, by_job.get(str(info.id), []), kills=MANY, ends=ENDS)):
                verdict.problems.append(problem)
        verdict.problems += blocking("leftovers", self._leftovers())

    def _asked_of_flow_control(self, stored: StoredHistory, history: History) -> dict[str, int]:
        return {
            "opened": len(history.openings),
            "pauses": len(history.pauses),
            "repeated": sum(each.answer == "ok" and each.job != each.made for each in history.requests),
            "refused": sum(each.answer == "refused" for each in history.requests),
            "failed": sum(call.answer == "failed" for call in history.calls),
            "dropped": sum(row.reason is Reason.SUPERSEDED for row, _ in stored.jobs),
            "held": len(history.holdings),
            "not kept": sum(not each.kept for each in history.holdings),
        }

    async def _leftovers(self) -> list[str]:
        """What is still held although nothing is there to hold it."""
        store = connect(self._arena.url)
        try:
            await store.open()
            return await leftovers(store, (made.batch for made in self._ledger.made))
        finally:
            await store.close()

    async def _read(self) -> StoredHistory:
        store = connect(self._arena.url)
        try:
            await store.open()
            return await read(store, shown=shown)
        finally:
            await store.close()

    def _history(self, stored: StoredHistory, lines: list[Line]) -> History:
        return History(
            events=stored.events,
            listed=stored.listed,
            durability=stored.durability,
            asked="full",
            calls=tuple(self._ledger.calls),
            runs=tuple(runs_of(lines)),
            troubles=tuple(troubles_of(self._nemesis.deeds, self._pids(stored.events, lines))),
            promises=self._promises(stored.events),
            snapshots=(*self._witness.snapshots, stored.snapshot),
            limits=bounds_of(made.batch for made in self._ledger.made),
            pauses=tuple(self._nemesis.hand.pauses),
            openings=tuple(self._witness.openings.values()),
            trips={BREAKER + GUARD: tuple(self._nemesis.hand.trips)},
            requests=tuple(self._ledger.requests),
            holdings=tuple(holdings_of(lines)),
            bounds=Bounds(lease=self._pace.lease, slack=2.0, slots=max(AT_ONCE.values())),
        )

    def _pids(self, events: tuple[JobEvent, ...], lines: list[Line]) -> dict[str, int]:
        """The process of each worker: as the witness saw it, and by what its bodies wrote down."""
        by_token = {(line.job, line.token): line.pid for line in lines}
        found = {event.worker: by_token.get((event.job, event.token), 0) for event in events if event.worker}
        return {**{worker: pid for worker, pid in found.items() if pid}, **self._witness.workers}

    def _promises(self, events: tuple[JobEvent, ...]) -> dict[str, Promise]:
        born = {event.job: event.at for event in reversed(events)}
        new = (job for made in self._ledger.made for job in made.batch.jobs)
        return {id: promise_of(job, born[id]) for job in new if (id := str(UUID(bytes=job.id))) in born}
