"""Takes the jobs of workers that went silent. The witness rule decides who did.

A beat number that stands still can mean that its worker is silent, or that the store, the clock or
we ourselves were. So a rescuer counts only what it has witnessed: from the moment it first saw
the number it must itself have written to the store at least three times, over a whole lease of the
silent worker. A store that was down, stalled or failed over took no writes meanwhile; a process
that was stopped or suspended made none: the time between two of its writes counts for at most two
sweeps. Wall clocks play no part. The rescue itself is a compare-and-set on the number, so a beat
that came first wins.

A worker whose death the kernel proves (see ``worker/deathlock.py``) is taken at once, as crashed.

Each tick beats for its own worker: that is the write that makes it a witness.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mainspring.errors import StoreError
from mainspring.jobs.outcomes import Outcome
from mainspring.stores.base import Store
from mainspring.worker.events import failure_log
from mainspring.worker.lease import death_lock
from mainspring.worker.records import Beat, RescueResult, WorkerRow
from mainspring.worker.services.base import Service

WITNESSED = 3


class _Seen:
    """A beat number and what has been witnessed since it was first seen."""

    __slots__ = ("number", "times", "witnessed")

    def __init__(self, number: int) -> None:
        self.number = number
        self.times = 0
        self.witnessed = 0.0


class Rescuer(Service):
    """Every worker is a witness; no leader is needed."""

    every = 3.0

    def __init__(
        self,
        store: Store,
        worker: Callable[[], str],
        *,
        sweep: float = 3.0,
        now: Callable[[], float] = time.monotonic,
        taken: Callable[[str, RescueResult], None] | None = None,
    ) -> None:
        super().__init__(store)
        self._worker = worker
        self._taken = taken
        self._sweep = sweep
        self._now = now
        self._last: float | None = None
        self._seen: dict[str, _Seen] = {}

    async def tick(self) -> float:
        own = self._worker()
        (beaten,) = await self.store.beat([Beat(own)])
        if not beaten.alive:
            self._seen.clear()  # not a witness: it has no row itself
            self._last = None
            return self._sweep
        now = self._now()
        passed = 0.0 if self._last is None else min(now - self._last, 2 * self._sweep)
        self._last = now
        rows = [row for row in await self.store.workers() if row.id != own and not row.lost]
        self._seen = {row.id: self._look(row, passed) for row in rows}
        trouble: StoreError | None = None
        for row in rows:
            try:
                await self._judge(row, self._seen[row.id])
            except StoreError as error:  # somebody holds its row, say: the others are taken all the same
                trouble = error
        if trouble is not None:
            raise trouble
        return self._sweep

    def _look(self, row: WorkerRow, passed: float) -> _Seen:
        seen = self._seen.get(row.id)
        if seen is None or seen.number != row.number:
            return _Seen(row.number)
        seen.times += 1
        seen.witnessed += passed
        return seen

    async def _judge(self, row: WorkerRow, seen: _Seen) -> None:
        if seen.times >= WITNESSED and seen.witnessed >= row.lease / 1e6:
            cause = Outcome.LOST
        elif death_lock.is_dead(row.info):
            cause = Outcome.CRASHED
        else:
            return
        rescued = await self.store.rescue(row.id, row.number, cause)
        if rescued.taken:
            if self._taken is not None:
                self._taken(row.id, rescued)
            if cause is Outcome.CRASHED:
                death_lock.forget(row.info)
            count = len(rescued.ready) + len(rescued.retrying) + len(rescued.dead) + len(rescued.cancelled)
            failure_log.dead_with_worker(row.id, cause, rescued.dead)
            self.log.warning("worker %s is %s: %d of its jobs were taken back", row.id, cause, count)
