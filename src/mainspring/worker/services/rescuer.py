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
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mainspring.errors import StoreError
from mainspring.jobs.outcomes import Outcome
from mainspring.stores.base import Store
from mainspring.worker import failure_log
from mainspring.worker.lease import death_lock
from mainspring.worker.records import Beat, RescueResult, WorkerRow
from mainspring.worker.services.base import Service

MIN_WRITES = 3
"""Writes of its own that a rescuer needs to be a witness."""


class _Sighting:
    """A heartbeat number, and the time witnessed since it was first seen."""

    __slots__ = ("number", "witnessed", "writes")

    def __init__(self, number: int) -> None:
        self.number = number
        self.writes = 0
        self.witnessed = 0.0


class Rescuer(Service):
    """Every worker runs one; no leader is needed. ``on_rescued`` gets the id of the silent worker and its jobs."""

    every = 3.0

    def __init__(
        self,
        store: Store,
        worker: Callable[[], str],
        *,
        sweep: float = 3.0,
        now: Callable[[], float] = time.monotonic,
        on_rescued: Callable[[str, RescueResult], None] | None = None,
    ) -> None:
        super().__init__(store)
        self._worker = worker
        self._on_rescued = on_rescued
        self._sweep = sweep
        self._now = now
        self._last_write: float | None = None
        self._sightings: dict[str, _Sighting] = {}

    async def tick(self) -> float:
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
        return self._sweep

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
            if self._on_rescued is not None:
                self._on_rescued(row.id, rescued)
            if cause is Outcome.CRASHED:
                death_lock.remove_lock(row.info)
            count = len(rescued.ready) + len(rescued.retrying) + len(rescued.dead) + len(rescued.cancelled)
            failure_log.log_dead_with_worker(row.id, cause, rescued.dead)
            self.log.warning("worker %s is %s: %d of its jobs were rescued", row.id, cause, count)
