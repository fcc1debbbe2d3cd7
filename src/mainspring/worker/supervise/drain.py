"""The end of a worker: finish, hand back what cannot be finished, flush, never hang.

    drain    claims given back ── bodies finish ──(drain limit)── asked to end ──(grace)── handed back ── flush
    stop     the same, with no time for the bodies to finish

Each step has its own limit, so the whole does too.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from mainspring.common.clock import boottime
from mainspring.jobs.outcomes import Ack
from mainspring.worker.run import classify
from mainspring.worker.run.attempt import Ending, RunningAttempt

if TYPE_CHECKING:
    from mainspring.worker.config import WorkerSettings
    from mainspring.worker.loop.turn_loop import TurnLoop
    from mainspring.worker.run.dispatch import Dispatcher

log = logging.getLogger("mainspring.worker")

FINISHED, HANDED_BACK, STOPPED = 0, 3, 4
_FAST_GRACE = 2.0
_FLUSH = 0.6
"""Part of the grace that the last acks get: who stops us counts with two graces for everything."""


class WorkerDrain:
    """Waits to be told, then brings the floor to rest."""

    def __init__(self, floor: Dispatcher, turner: TurnLoop, settings: WorkerSettings, *, supervised: bool) -> None:
        self._floor = floor
        self._turner = turner
        self._supervised = supervised
        self._limit = settings.drain / 1e6
        self._grace = settings.grace / 1e6
        self.flushed = True
        """Whether every ack has reached the store."""
        self._begun = asyncio.Event()
        self._fast = asyncio.Event()

    def drain(self) -> None:
        self._turner.claiming = False
        self._turner.closing = True
        self._floor.give_back_unused(all_of_them=True)
        self._begun.set()
        self._turner.poke()

    def stop(self) -> None:
        self.drain()
        self._fast.set()

    async def begun(self) -> None:
        """Returns when the worker has been told to end."""
        await self._begun.wait()

    async def run(self) -> int:
        """Returns the exit code once everything is at rest."""
        await self._begun.wait()
        await self._rest(self._limit, unless=self._fast)
        code = HANDED_BACK if self._floor.bodies() else FINISHED
        if self._running():
            code = STOPPED if self._fast.is_set() else HANDED_BACK
            await self._end_bodies()
        for attempt in self._floor.bodies():
            self._part_with(attempt)
        self.flushed = await self._flush()
        return code if self.flushed else code or HANDED_BACK

    def _running(self) -> list[RunningAttempt]:
        """Bodies that may still end; one that was found stuck is the supervisor's."""
        return [attempt for attempt in self._floor.bodies() if not attempt.stuck]

    async def _rest(self, limit: float, unless: asyncio.Event | None = None) -> None:
        """Wait until no body runs, for at most ``limit`` seconds."""
        end = boottime() + limit
        calm = self._floor.calm
        while self._running() and (left := end - boottime()) > 0:
            calm.clear()
            waits = {asyncio.ensure_future(calm.wait())}
            if unless is not None:
                waits.add(asyncio.ensure_future(unless.wait()))
            await asyncio.wait(waits, timeout=min(left, 0.5), return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            if unless is not None and unless.is_set():
                return

    async def _end_bodies(self) -> None:
        running = self._running()
        log.warning("%d jobs did not finish in time and are handed back", len(running))
        self._floor.stop_all()
        await self._rest(min(self._grace, _FAST_GRACE) if self._fast.is_set() else self._grace)

    def _part_with(self, attempt: RunningAttempt) -> None:
        """The body does not end. A supervisor gives its job back when this process is gone; else it is done now."""
        what = (attempt.claim.id.hex(), attempt.claim.task)
        if attempt.ending is Ending.GONE:
            return
        if self._supervised:
            attempt.stuck = True
            log.error("job %s (%s) does not end; it is given back when this process is gone", *what)
            return
        log.error("job %s (%s) does not end; it is handed back while its body still runs", *what)
        for each in attempt.jobs:
            if each.ending is not Ending.GONE:
                each.ending = max(each.ending, attempt.ending)
                self._turner.report(self._parting(each))
                each.ending = Ending.GONE  # what it may still come to is not reported
        attempt.ending = Ending.GONE

    def _parting(self, attempt: RunningAttempt) -> Ack:
        run_us = attempt.run_us(boottime())
        if attempt.ending is Ending.HARD:
            return classify.timed_out(attempt, attempt.retries, run_us)
        if attempt.ending is Ending.CANCEL:
            return Ack.cancelled(attempt.lease, run_us=run_us)
        return classify.handed_back(attempt, run_us)

    async def _flush(self) -> bool:
        """Wait until every ack has reached the store; False if the store would not take them in time."""
        end = boottime() + self._grace * _FLUSH
        stuck = {each.claim.id for attempt in self._floor.bodies() if attempt.stuck for each in attempt.jobs}
        while boottime() < end:
            if not self._turner.unreported(stuck):
                return True
            self._turner.poke()
            await asyncio.sleep(0.01)
        log.error("the store did not take the last acks in time; their jobs are found again by the lease")
        return False
