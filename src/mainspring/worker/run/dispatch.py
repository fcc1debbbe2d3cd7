"""The floor: from a claim to the ack of its attempt. Owns the pools, the time limits and the news."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from mainspring.common.clock import boottime
from mainspring.jobs.outcomes import Ack, Lease
from mainspring.worker.events.breaker_counts import BreakerCounts
from mainspring.worker.loop.eligibility import can_run
from mainspring.worker.run import classify
from mainspring.worker.run.attempt import Ending, RunningAttempt
from mainspring.worker.run.bulk.gather import BulkGatherer
from mainspring.worker.run.executor import Executor
from mainspring.worker.run.missing_limits import Declare, MissingLimits
from mainspring.worker.run.slots.async_slots import AsyncSlots
from mainspring.worker.run.slots.base import SlotPool
from mainspring.worker.run.slots.thread_slots import ThreadSlots
from mainspring.worker.run.timeouts import AttemptTimeouts

if TYPE_CHECKING:
    from mainspring.tasks.spec import TaskSpec
    from mainspring.worker.config import WorkerConfig
    from mainspring.worker.events.dispatcher import EventDispatcher
    from mainspring.worker.lease.shared_state import SharedState
    from mainspring.worker.loop.turn_loop import TurnLoop
    from mainspring.worker.records import CancelOrder, Claim
    from mainspring.worker.run.bulk.attempt import BulkAttempt
    from mainspring.worker.run.progress import ReportSender

log = logging.getLogger("mainspring.worker")

UNUSED_AFTER = 1.0
"""Seconds after which a claim ahead that found no slot is given back."""
_REMIND = 60.0


class Dispatcher:
    """Implements what the turner wants of the worker, and what attempts share."""

    turner: TurnLoop
    reporter: ReportSender

    def __init__(
        self,
        parts: WorkerConfig,
        board: SharedState,
        *,
        herald: EventDispatcher | None,
        on_stuck: Callable[[RunningAttempt], None],
        enrol: Callable[[], Awaitable[None]],
        declare: Declare,
        due_soon: Callable[[float], None],
    ) -> None:
        self.state: Any = None
        self.calm = asyncio.Event()
        """Set whenever a body ends: for whoever waits for the last one."""
        self.code = parts.version
        self._tasks = parts.tasks
        self._learn = parts.learn
        self._late: dict[str, TaskSpec] = {}
        self._enrol = enrol
        self.due_soon = due_soon
        self._reported: dict[str, float] = {}
        self._fit: dict[str, TaskSpec] = {}
        """Tasks of which a claim was accepted before."""
        settings = self._settings = parts.settings
        started = herald.started if herald is not None and parts.hooks.has("started") else None
        executor = Executor(board, parts.middleware, started)
        self.deadlines = AttemptTimeouts(self.bodies, settings.grace / 1e6, on_stuck)
        aio = AsyncSlots(settings.async_slots, 0, executor, self.deadlines, self.done)
        thread = ThreadSlots(settings.thread_slots, settings.async_slots, executor, self.deadlines, self.done)
        self.pools: dict[str, SlotPool] = {"async": aio, "thread": thread}
        self._gatherer = BulkGatherer(
            parts, self.pools, lambda attempt, error: self.done(attempt, executor.failed(attempt, error))
        )
        self._relaner = MissingLimits(parts.tasks.values(), self.done, executor.failed, declare)
        self._refuse = executor.refuse
        self.lines = self._gatherer.lines
        """What the bulk tasks ask for."""
        self._bulk = bool(self.lines)

    # ---- for the turner ----------------------------------------------------------------------

    def accept(self, claim: Claim, now: float) -> RunningAttempt | Ack:
        lease = Lease(claim.id, claim.token)
        spec = self._fit.get(claim.task)
        if spec is None:
            found = self._fitting(claim, lease)
            if isinstance(found, Ack):
                return found
            spec = self._fit[claim.task] = found
        return RunningAttempt(claim, spec, lease, now, self)

    def launch(self, attempts: list[RunningAttempt]) -> None:
        """Start them, those that must not wait first; gather those that share calls."""
        if self._relaner.needed:
            attempts = self._relaner.sift(attempts)
        if self._bulk:
            attempts = self._gatherer.gather(attempts)
        pressing = [attempt for attempt in attempts if attempt.pressing]
        for attempt in pressing:
            pool = self.pools[attempt.spec.kind]
            if pool.held < pool.slots:
                pool.submit(attempt)
            else:
                pool.pace.slow_down()
                self._give_back(attempt)
        for attempt in attempts:
            if not pressing or attempt not in pressing:
                self.pools[attempt.spec.kind].submit(attempt)

    def ordered(self, attempt: RunningAttempt, order: CancelOrder) -> None:
        self.deadlines.ask(attempt, Ending.CANCEL, order.reason)
        if attempt.spec.bulk is not None:
            self._withdraw(attempt)

    def taken_away(self, attempt: RunningAttempt) -> None:
        self.deadlines.ask(attempt, Ending.GONE)
        if attempt.spec.bulk is not None:
            self._withdraw(attempt)

    async def enrol(self) -> None:
        await self._enrol()

    # ---- for attempts ------------------------------------------------------------------------

    @property
    def worker(self) -> str:
        return self.turner.id

    @property
    def runs(self) -> dict[bytes, str]:
        return self.turner.runs

    def told(self, attempt: RunningAttempt, *, soon: bool = False) -> None:
        self.reporter.told(attempt, soon=soon)

    def store_now(self) -> int:
        return int(boottime() * 1e6) + self.turner.store_ahead

    def done(self, attempt: RunningAttempt, ack: Ack) -> None:
        """An attempt is over: hand on its ack, its news first; of a call the acks of its items."""
        self.calm.set()
        if attempt.many:
            for each, its in cast("BulkAttempt", attempt).settled:
                self.done(each, its)
            return
        if attempt.ending is Ending.GONE:
            return
        if attempt.spent is not None:
            ack = msgspec.structs.replace(ack, spent=tuple(attempt.spent.items()))
        if attempt.told:
            self.reporter.ended(attempt, ack)
        else:
            self.turner.report(ack)

    # ---- for the worker ----------------------------------------------------------------------

    def bodies(self) -> list[RunningAttempt]:
        """The attempts whose body runs."""
        return [attempt for pool in self.pools.values() for attempt in pool.bodies()]

    def give_back_unused(self, *, all_of_them: bool = False) -> None:
        """Hand back the claims that have waited for a slot for too long, or all that wait."""
        before = float("inf") if all_of_them else boottime() - UNUSED_AFTER
        if all_of_them:
            for attempt in self._gatherer.empty():
                self._give_back(attempt)
        for pool in self.pools.values():
            waiting = pool.waiting(before)
            if waiting:
                pool.pace.slow_down()
            for attempt in waiting:
                self._give_back(attempt)

    def fence(self) -> None:
        """The lease runs low: end the bodies that must never overlap with a re-run."""
        for attempt in self.bodies():
            if attempt.guarded:
                self.deadlines.ask(attempt, Ending.FENCE)

    def stop_all(self) -> None:
        """Ask every body to end."""
        for attempt in self.bodies():
            self.deadlines.ask(attempt, Ending.STOP)

    def close(self) -> None:
        self.deadlines.close()
        for pool in self.pools.values():
            pool.close()

    def _give_back(self, attempt: RunningAttempt) -> None:
        for each in attempt.jobs:
            each.over = True
            self.done(each, Ack.returned(each.lease))

    def _withdraw(self, attempt: RunningAttempt) -> None:
        """A job of a bulk task was cancelled or taken away: its call goes on as long as there are others."""
        if self._gatherer.withdraw(attempt):
            attempt.over = True
            self.done(attempt, self._refuse(attempt) or Ack.returned(attempt.lease))
        for call in self.bodies():
            if attempt in call.jobs and all(each.ending >= Ending.CANCEL for each in call.jobs):
                self.deadlines.ask(call, min(each.ending for each in call.jobs), attempt.reason)

    def _fitting(self, claim: Claim, lease: Lease) -> TaskSpec | Ack:
        """The task of a claim, or the ack that declines it."""
        if not isinstance(claim.task, str):  # written by something else than Mainspring
            return classify.no_name(lease, claim.task, self.code)
        spec = self._tasks.get(claim.task) or self._learned(claim.task)
        if spec is None or not can_run(spec, self._settings):
            self._cannot_run(claim, spec)
            return Ack.returned(lease, park=True)
        self._bulk = self._bulk or spec.bulk is not None
        if spec.breaker is not None and self.turner.tallies is None:
            self.turner.tallies = BreakerCounts()
        return spec

    def _learned(self, task: str) -> TaskSpec | None:
        """A task that the program declared after this worker had started."""
        found = self._late.get(task)
        if found is None and self._learn is not None and (found := self._learn(task)) is not None:
            self._late[task] = found
            self._relaner.learn(found)
        return found

    def _cannot_run(self, claim: Claim, spec: TaskSpec | None) -> None:
        now = time.monotonic()
        if now - self._reported.get(claim.task, -_REMIND) < _REMIND:
            return
        self._reported[claim.task] = now
        if spec is None:
            log.warning(
                "task %r (job %s, queue %r) is not known to this worker; its jobs stay ready for one that knows it.\n"
                '  Name its module in Mainspring(include=["..."]), or give the renamed task this name in aliases=.',
                claim.task, claim.id.hex(), claim.queue,
            )  # fmt: skip
        elif lacking := ", ".join(sorted(set(spec.needs) - set(self._settings.labels))):
            log.warning(
                "task %r (job %s, queue %r) needs a worker labelled %s; its jobs stay ready for one.\n"
                "  Start one with --labels, or serve the queue by another worker.",
                claim.task, claim.id.hex(), claim.queue, lacking,
            )  # fmt: skip
        else:
            log.warning(
                "task %r (job %s, queue %r) needs %s slots and this worker has none; its jobs stay ready.\n"
                "  Set %s_slots to 1 or more, or serve the queue by another worker.",
                claim.task, claim.id.hex(), claim.queue, spec.kind, spec.kind,
            )  # fmt: skip
