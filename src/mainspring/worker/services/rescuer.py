"""Rescues the jobs of silent workers. The witness rule decides which worker is silent.

A heartbeat number that does not change can have two reasons: the worker is silent, or the store, the clock or this
process was. So a rescuer counts only time that it has witnessed. After it first saw the number, it must itself have
written to the store at least three times, over a whole lease of the silent worker. A store that was down, stalled or
failed over took no writes in that time; a process that was stopped or suspended made none: the time between two of its
writes counts for at most two sweeps. Wall clocks are not used. The rescue itself is a compare-and-set on the number, so
a heartbeat that came first wins.

If the kernel proves that a worker is dead (see ``worker/lease/death_lock.py``), its jobs are rescued at once, as
crashed. The proof is asked for first, also when a whole lease has passed: a lost worker is not blamed, so a job that
kills its worker would run for ever if its rescuers came late each time.

Each tick sends a heartbeat for its own worker: this is the write that makes it a witness.

The leader of the fleet runs the rescuer (``leader.py``). Only a worker of the same host has the proof of a death, so
every worker watches the lock files of its host, which costs no call of the store, and sweeps once when it finds that a
worker has died, whichever worker leads. If the leader dies, another worker leads within one sweep and
one look, and begins to witness at once. The last sweep comes when the lease that it waits for is over, so the jobs of a
worker and of the leader that died together are rescued within two sweeps and a lease.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from mainspring.breakers.records import BreakerRow
from mainspring.breakers.swap import count_lost_worker
from mainspring.errors import StoreError
from mainspring.jobs.outcomes import Outcome
from mainspring.stores.base import Store
from mainspring.worker import failure_log
from mainspring.worker.lease import death_lock
from mainspring.worker.records import Beat, RescueResult, WorkerRow
from mainspring.worker.services.base import Service

MIN_WRITES = 3
"""Writes of its own that a rescuer needs to be a witness."""


_SHORTEST = 0.1  # seconds between two sweeps


class _Sighting:
    """A heartbeat number, and the time witnessed since it was first seen."""

    __slots__ = ("number", "witnessed", "writes")

    def __init__(self, number: int) -> None:
        self.number = number
        self.writes = 0
        self.witnessed = 0.0


class Rescuer(Service):
    """``on_rescued`` gets the id of the silent worker, its jobs, and the breakers that opened. ``is_alone``: no other
    worker has to be watched."""

    every = 3.0
    ticks_first = False

    def __init__(
        self,
        store: Store,
        worker: Callable[[], str],
        *,
        sweep: float = 3.0,
        now: Callable[[], float] = time.monotonic,
        on_rescued: Callable[[str, RescueResult, Sequence[BreakerRow]], None] | None = None,
        is_alone: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(store)
        self._is_alone = is_alone
        self._host = death_lock.HostWatch(now)
        self._has_found_death = False
        self._worker = worker
        self._on_rescued = on_rescued
        self._sweep = sweep
        self._now = now
        self._last_write: float | None = None
        self._sightings: dict[str, _Sighting] = {}

    def watch_host(self) -> None:
        """Sweep now if another worker of this host has died."""
        if self._host.has_found_death():
            self._has_found_death = True
            self.tick_now()

    async def tick(self) -> float:
        if self._is_alone is not None and self._is_alone() and not self._has_found_death:
            self._sightings.clear()
            return self._sweep
        self._has_found_death = False
        own = self._worker()
        (reply,) = await self.store.beat([Beat(own)])
        if not reply.alive:
            self._sightings.clear()  # not a witness: it has no row itself
            self._last_write = None
            return self._sweep
        now = self._now()
        passed = 0.0 if self._last_write is None else min(now - self._last_write, 2 * self._sweep)
        self._last_write = now
        rows = [row for row in await self.store.workers() if row.id != own and not row.lost]
        self._sightings = {row.id: self._update(row, passed) for row in rows}
        problem: StoreError | None = None
        for row in rows:
            try:
                await self._rescue_if_gone(row, self._sightings[row.id])
            except StoreError as error:  # for example, its row is locked: the jobs of other workers are rescued anyway
                problem = error
        if problem is not None:
            raise problem
        return self._pause(rows)

    def _pause(self, rows: Sequence[WorkerRow]) -> float:
        """Seconds until the next sweep: earlier if the lease of a worker is over before, unless its heartbeat comes."""
        left = [row.lease / 1e6 - self._sightings[row.id].witnessed for row in rows]
        return min([self._sweep, *(max(_SHORTEST, each) for each in left if each < self._sweep)])

    def _update(self, row: WorkerRow, passed: float) -> _Sighting:
        seen = self._sightings.get(row.id)
        if seen is None or seen.number != row.number:
            return _Sighting(row.number)
        seen.writes += 1
        seen.witnessed += passed
        return seen

    async def _rescue_if_gone(self, row: WorkerRow, seen: _Sighting) -> None:
        if death_lock.is_dead(row.info):  # first: a proof says more than silence, also after a whole lease
            cause = Outcome.CRASHED
        elif seen.writes >= MIN_WRITES and seen.witnessed >= row.lease / 1e6:
            cause = Outcome.LOST
        else:
            return
        rescued = await self.store.rescue(row.id, row.number, cause)
        if rescued.taken:
            breakers = await count_lost_worker(self.store, rescued, cause)
            if self._on_rescued is not None:
                self._on_rescued(row.id, rescued, breakers)
            if cause is Outcome.CRASHED:
                death_lock.remove_lock(row.info)
            count = len(rescued.ready) + len(rescued.retrying) + len(rescued.dead) + len(rescued.cancelled)
            failure_log.log_dead_with_worker(row.id, cause, rescued.dead)
            self.log.warning("worker %s is %s: %d of its jobs were rescued", row.id, cause, count)
