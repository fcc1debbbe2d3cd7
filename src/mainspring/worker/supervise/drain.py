"""The end of a worker: finish the running jobs, hand back the others, send the last acks, and never hang.

    drain    claims handed back ── bodies finish ──(drain limit)── asked to end ──(grace)── handed back ── last acks
    sent stop     the same, but the bodies get no time to finish

Each step has its own time limit, so the whole has one too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from mainspring.common.clock import boottime
from mainspring.common.ids import id_text
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
_KILLED = 1.0
"""Seconds to wait until the kernel has ended killed children."""
_FLUSH = 0.6
"""The part of the grace for sending the last acks. A supervisor allows two graces for the whole end."""


class WorkerDrain:
    """Waits for a drain or stop order, then ends all bodies and sends their acks."""

    def __init__(
        self, dispatcher: Dispatcher, turn_loop: TurnLoop, settings: WorkerSettings, *, supervised: bool,
        supervisor_gone: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._dispatcher = dispatcher
        self._turn_loop = turn_loop
        self._supervised = supervised
        self._supervisor_gone = supervisor_gone
        self._limit = settings.drain / 1e6
        self._grace = settings.grace / 1e6
        self.all_acked = True
        """Whether every ack has reached the store."""
        self.left_behind = 0
        """The number of jobs whose bodies do not end, and which the worker did not hand back."""
        self._begun = asyncio.Event()
        self._fast = asyncio.Event()

    def drain(self) -> None:
        """Claim no more, and let the running jobs finish."""
        self._turn_loop.claiming = False
        self._turn_loop.closing = True
        self._dispatcher.hand_back_waiting(everything=True)
        self._begun.set()
        self._turn_loop.reschedule()

    def stop(self) -> None:
        """Drain, and end the running jobs now."""
        self.drain()
        self._fast.set()

    async def wait_begun(self) -> None:
        """Wait for a drain or stop order."""
        await self._begun.wait()

    async def run(self) -> int:
        """Wait for the order and carry it out. Returns the exit code."""
        await self._begun.wait()
        await self._wait_for_bodies(self._limit, unless=self._fast)
        code = HANDED_BACK if self._dispatcher.running() else FINISHED
        if self._find_endable():
            code = STOPPED if self._fast.is_set() else HANDED_BACK
            await self._end_bodies()
        for attempt in self._dispatcher.running():
            self._leave_behind(attempt)
        self.all_acked = await self._send_last_acks()
        return code if self.all_acked else code or HANDED_BACK

    def _find_endable(self) -> list[RunningAttempt]:
        """Bodies that may still end. The supervisor kills a body that was found stuck, the worker one in a child."""
        return [attempt for attempt in self._dispatcher.running() if not attempt.stuck or attempt.child is not None]

    async def _wait_for_bodies(self, limit: float, unless: asyncio.Event | None = None) -> None:
        """Wait until no body runs, for at most ``limit`` seconds, or until ``unless`` is set."""
        end = boottime() + limit
        body_ended = self._dispatcher.body_ended
        while self._find_endable() and (left := end - boottime()) > 0:
            body_ended.clear()
            waits = {asyncio.ensure_future(body_ended.wait())}
            if unless is not None:
                waits.add(asyncio.ensure_future(unless.wait()))
            await asyncio.wait(waits, timeout=min(left, 0.5), return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            if unless is not None and unless.is_set():
                return

    async def _end_bodies(self) -> None:
        if count := sum(attempt.ending is not Ending.GONE for attempt in self._find_endable()):
            log.warning("%d jobs did not finish in time and are handed back", count)
        self._dispatcher.end_all()
        await self._wait_for_bodies(min(self._grace, _FAST_GRACE) if self._fast.is_set() else self._grace)
        if self._dispatcher.kill_child_bodies():
            await self._wait_for_bodies(_KILLED)

    def _leave_behind(self, attempt: RunningAttempt) -> None:
        """The body does not end. A supervisor gives its job back after this process; without one, hand it back now.

        If the supervisor was killed, this process kills itself, and the rescuer of another worker finds it dead.
        """
        job = (id_text(attempt.claim.id), attempt.claim.task)
        if attempt.ending is Ending.GONE:
            return
        if self._supervised:
            attempt.stuck = True
            self.left_behind += len(attempt.jobs)
            if self._supervisor_gone():
                log.error(
                    "job %s (%s) does not end; the supervisor was killed, so this process ends and the next sweep of "
                    "another worker rescues the job: at once on this host, else when the lease is over", *job,
                )  # fmt: skip
            else:
                log.error("job %s (%s) does not end; the supervisor gives it back when this process is gone", *job)
            return
        log.error("job %s (%s) does not end; it is handed back while its body still runs", *job)
        for each in attempt.jobs:
            if each.ending is not Ending.GONE:
                each.ending = max(each.ending, attempt.ending)
                self._turn_loop.add_ack(self._ack(each))
                each.ending = Ending.GONE  # a later end of the body is not reported
        attempt.ending = Ending.GONE

    def _ack(self, attempt: RunningAttempt) -> Ack:
        run_us = attempt.run_us(boottime())
        if attempt.ending is Ending.HARD:
            return classify.ack_hard_timeout(attempt, attempt.retries, run_us)
        if attempt.ending is Ending.CANCEL:
            return Ack.cancelled(attempt.lease, run_us=run_us)
        return classify.ack_handed_back(attempt, run_us)

    async def _send_last_acks(self) -> bool:
        """Wait until every ack has reached the store. False if the store did not take them in time."""
        end = boottime() + self._grace * _FLUSH
        stuck = {each.claim.id for attempt in self._dispatcher.running() if attempt.stuck for each in attempt.jobs}
        while boottime() < end:
            if not self._turn_loop.has_unreported(stuck):
                return True
            self._turn_loop.reschedule()
            await asyncio.sleep(0.01)
        log.error("the store did not take the last acks in time; other workers run these jobs again after the lease")
        return False
