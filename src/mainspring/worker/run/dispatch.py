"""From a claim to the ack of its attempt: accepts claims, starts them in slots, and passes on their acks."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from mainspring.breakers.records import BREAKER_SUFFIX
from mainspring.common.clock import boottime
from mainspring.common.ids import id_text
from mainspring.jobs.outcomes import Ack, Lease
from mainspring.pools.records import ChildTarget
from mainspring.worker.eligibility import can_run, pool_lane_kinds, served_pools
from mainspring.worker.events.breaker_counts import BreakerCounts
from mainspring.worker.run import classify
from mainspring.worker.run.attempt import Ending, RunEnvironment, RunningAttempt
from mainspring.worker.run.bulk.gather import BulkGatherer, BulkLanes
from mainspring.worker.run.executor import Executor
from mainspring.worker.run.flows.inputs import InputLoader
from mainspring.worker.run.missing_limits import DeclareLimits, MissingLimits
from mainspring.worker.run.rate_slots import RateSlots, windows_of
from mainspring.worker.run.slots.async_slots import AsyncSlots
from mainspring.worker.run.slots.base import PoolLanes, SlotPool
from mainspring.worker.run.slots.process_slots import PoolLauncher, ProcessSlots
from mainspring.worker.run.slots.thread_slots import ThreadSlots
from mainspring.worker.run.timeouts import AttemptTimeouts

if TYPE_CHECKING:
    from mainspring.stores.base import Store
    from mainspring.tasks.spec import TaskSpec
    from mainspring.worker.config import WorkerConfig
    from mainspring.worker.lease.shared_state import SharedState
    from mainspring.worker.records import Claim
    from mainspring.worker.run.bulk.attempt import BulkAttempt
    from mainspring.worker.run.slots.lending import SlotLender

log = logging.getLogger("mainspring.worker")

UNUSED_AFTER = 1.0
"""Seconds after which a job that was claimed ahead and found no slot is handed back."""
_REMIND_AFTER = 60.0
"""Seconds between two log lines about a task that this worker cannot run."""


class Dispatcher:
    """Owns the slots, the time limits and the bulk calls of a worker.

    ``on_started`` is called for each body that starts, in its thread. ``on_stuck`` is called for a body that was asked
    to end and did not end within the grace. ``declare_limits`` stores the limits of a task that was declared late.
    """

    add_ack: Callable[[Ack], None]
    """Reports the end of an attempt to the turn loop, which is built after the dispatcher."""

    def __init__(
        self,
        config: WorkerConfig,
        shared_state: SharedState,
        environment: RunEnvironment,
        *,
        on_started: Callable[[RunningAttempt], None] | None,
        on_stuck: Callable[[RunningAttempt], None],
        declare_limits: DeclareLimits,
        store: Store,
    ) -> None:
        self.body_ended = asyncio.Event()
        """Set whenever a body ends."""
        self.breaker_counts: BreakerCounts | None = None
        """What the worker has to count for breakers, once a job that names a breaker was claimed."""
        self._environment = environment
        self._job_lines = environment.job_lines
        self._tasks = config.tasks
        self._learn = config.learn
        self._late_tasks: dict[str, TaskSpec] = {}
        self._logged: dict[str, float] = {}
        self._accepted: dict[str, TaskSpec] = {}
        """Tasks of which a claim was accepted before."""
        settings = self._settings = config.settings
        bounds = [bound for spec in config.tasks.values() for bound in spec.bounds]
        self._rate_slots = RateSlots(windows_of(bounds, config.limits))
        executor = Executor(shared_state, config.middleware, on_started, self._rate_slots)
        self._on_stuck = on_stuck
        self.timeouts = AttemptTimeouts(self.running, settings.grace / 1e6, self._end_stuck)
        aio = AsyncSlots(settings.async_slots, 0, executor, self.timeouts, self.finish)
        thread = self._threads = ThreadSlots(
            settings.thread_slots, settings.async_slots, executor, self.timeouts, self.finish
        )
        self.pools: dict[str, SlotPool] = {"async": aio, "thread": thread}
        self._processes = self._make_process_slots(config, shared_state, executor)
        self.pools |= self._processes
        self._refuse = executor.refuse
        self._missing_limits = MissingLimits(config.tasks.values(), self.finish, executor.ack_failure, declare_limits)
        self._gatherer = BulkGatherer(
            config, self.pools, lambda attempt, error: self.finish(attempt, executor.ack_failure(attempt, error))
        )
        self._inputs = InputLoader(store, self.pools, self._start_loaded, self.finish, executor.ack_failure)
        # Jobs enqueued by name are asked for with the other slots; a worker without these asks for them here.
        by_name = () if settings.async_slots or settings.thread_slots else ("any",)
        pool_lanes = [
            PoolLanes(slots, (*pool_lane_kinds(pool.settings.name, config), *(() if place else by_name)), pool)
            for place, (slots, pool) in enumerate(self._processes.items())
        ]
        self.separate_lanes: tuple[BulkLanes | PoolLanes, ...] = (*self._gatherer.lanes, *pool_lanes)
        """The lanes of bulk tasks and of process slots, which ask for their jobs separately."""
        self._has_bulk = bool(self._gatherer.lanes)

    def _make_process_slots(
        self, config: WorkerConfig, shared_state: SharedState, executor: Executor
    ) -> dict[str, ProcessSlots]:
        """The process slots of each pool that the tasks of this worker need, by the name of the slots."""
        served = served_pools(config)
        if not served:
            return {}
        launcher = PoolLauncher(_target_maker(config), shared_state, config.settings.grace / 1e6, set())
        return {
            f"process:{name}": ProcessSlots(settings, launcher, executor, self.timeouts, self.finish, self._environment)
            for name, settings in served.items()
        }

    # ---- for the turn loop -------------------------------------------------------------------

    def accept(self, claim: Claim, now: float) -> RunningAttempt | Ack:
        """The attempt for a claim, or the ack that declines it."""
        lease = Lease(claim.id, claim.token)
        spec = self._accepted.get(claim.task)
        if spec is None:
            found = self._find_task(claim, lease)
            if isinstance(found, Ack):
                return found
            spec = self._accepted[claim.task] = found
        return RunningAttempt(claim, spec, lease, now, self._environment)

    def start(self, attempts: list[RunningAttempt]) -> None:
        """Start the attempts, those that must not wait first. Jobs of bulk tasks wait for their calls to fill."""
        if self._missing_limits.is_needed:
            attempts = self._missing_limits.hand_back_unlimited(attempts)
        attempts = self._inputs.take(attempts)
        if self._has_bulk:
            attempts = self._gatherer.gather(attempts)
        urgent = [attempt for attempt in attempts if attempt.needs_slot_now]
        for attempt in urgent:
            pool = self.pools[attempt.spec.slots]
            if pool.held < pool.slots:
                pool.submit(attempt)
            else:
                pool.claim_ahead.reset()
                self._hand_back(attempt)
        for attempt in attempts:
            if not urgent or not attempt.needs_slot_now:
                spec = attempt.spec
                self.pools[spec.slots if spec.pool else spec.kind].submit(attempt)

    def cancel(self, attempt: RunningAttempt, reason: str) -> None:
        """A cancel order came."""
        self.timeouts.request_end(attempt, Ending.CANCEL, reason)
        if attempt.spec.bulk is not None:
            self._withdraw(attempt)

    def abandon(self, attempt: RunningAttempt) -> None:
        """Another worker has the job: end the body, and report nothing."""
        self.timeouts.request_end(attempt, Ending.GONE)
        if attempt.spec.bulk is not None:
            self._withdraw(attempt)

    # ---- for the slots -----------------------------------------------------------------------

    def finish(self, attempt: RunningAttempt, ack: Ack) -> None:
        """An attempt has ended: send its reports, then its ack. For a bulk call, the acks of its items."""
        self.body_ended.set()
        if attempt.is_bulk:
            for item, item_ack in cast("BulkAttempt", attempt).settled:
                self.finish(item, item_ack)
            return
        if attempt.ending is Ending.GONE:
            return
        if self._job_lines is not None:
            self._job_lines.log_end(attempt, ack)
        if attempt.actual_cost is not None:
            ack = _with_cost(attempt, ack)
        if attempt.has_reports:
            self._environment.reports.send_then_ack(attempt, ack)
        else:
            self.add_ack(ack)

    # ---- while the event loop is blocked: any thread -----------------------------------------

    def uncollected_ends(self) -> list[tuple[RunningAttempt, Ack]]:
        """The ends of thread bodies that the blocked loop has not collected, each with its ack."""
        found: list[tuple[RunningAttempt, Ack]] = []
        for attempt, ack in self._threads.uncollected():
            found += cast("BulkAttempt", attempt).settled if attempt.is_bulk else [(attempt, ack)]
        return [(attempt, _with_cost(attempt, ack)) for attempt, ack in found if attempt.ending is not Ending.GONE]

    def find_running_task(self, task: object) -> RunningAttempt | None:
        """The attempt whose body is this asyncio task."""
        return next((attempt for attempt in self.pools["async"].running() if attempt.task is task), None)

    def enforce_thread_limits(self, now: float) -> None:
        """Raise the time-outs that are due in thread bodies."""
        for attempt in self._threads.running():
            if attempt.check_at <= now and not attempt.ending:
                self.timeouts.check(attempt, now)

    def stop_threads(self) -> bool:
        """Start no further thread body. True once every thread body has ended. The loop hands back the claims that have
        not started, if it runs again."""
        for attempt in self._threads.take_waiting(float("inf")):
            self.timeouts.loop.call_soon_threadsafe(self._hand_back, attempt)
        return self._threads.unfinished <= 0

    # ---- for the worker ----------------------------------------------------------------------

    def running(self) -> list[RunningAttempt]:
        """The attempts whose body runs."""
        return [attempt for pool in self.pools.values() for attempt in pool.running()]

    def hand_back_waiting(self, *, everything: bool = False) -> None:
        """Hand back the claims that have waited for a slot for too long; with ``everything``, all that wait."""
        before = float("inf") if everything else boottime() - UNUSED_AFTER
        if everything:
            for attempt in self._gatherer.take_all():
                self._hand_back(attempt)
            self._inputs.hand_back()
        for pool in self.pools.values():
            waiting = pool.take_waiting(before)
            if waiting:
                pool.claim_ahead.reset()
            for attempt in waiting:
                self._hand_back(attempt)

    def fence_guarded(self) -> None:
        """The lease is low: end the bodies that must never overlap with a re-run."""
        for attempt in self.running():
            if attempt.guarded:
                self.timeouts.request_end(attempt, Ending.FENCE)

    def end_all(self) -> None:
        """Ask every body to end."""
        for attempt in self.running():
            self.timeouts.request_end(attempt, Ending.STOP)

    def start_pools(self, lender: SlotLender) -> None:
        """Start the children of process slots that are kept ready."""
        for pool in self._processes.values():
            pool.lender = lender
            pool.start()

    def kill_child_bodies(self) -> bool:
        """Kill the children whose bodies still run. False if there is none."""
        left = [attempt for attempt in self.running() if attempt.child is not None]
        for attempt in left:
            self._end_stuck(attempt)
        return bool(left)

    async def close_children(self, grace: float) -> None:
        """Let the children of process slots end."""
        await asyncio.gather(*(pool.close_children(grace) for pool in self._processes.values()))

    def close(self) -> None:
        """Release the timer and the idle threads, and kill the children that are left."""
        self.timeouts.close()
        for pool in self.pools.values():
            pool.close()

    # ---- private -----------------------------------------------------------------------------

    def _end_stuck(self, attempt: RunningAttempt) -> None:
        """A body was asked to end and did not end within the grace. In a child, it is killed with the child."""
        if attempt.child is not None:
            self._processes[attempt.spec.slots].kill_body(attempt)
        else:
            self._on_stuck(attempt)

    def _hand_back(self, attempt: RunningAttempt) -> None:
        for each in attempt.jobs:
            each.finished = True
            self.finish(each, Ack.returned(each.lease))

    def _start_loaded(self, attempt: RunningAttempt) -> None:
        """The results of other jobs, which are arguments of this job, have been read."""
        for each in self._gatherer.gather([attempt]) if self._has_bulk else [attempt]:
            self.pools[each.spec.slots].submit(each)

    def _withdraw(self, attempt: RunningAttempt) -> None:
        """A job of a bulk task was cancelled or abandoned. Its call continues as long as it has other jobs."""
        if self._gatherer.withdraw(attempt):
            attempt.finished = True
            self.finish(attempt, self._refuse(attempt) or Ack.returned(attempt.lease))
        for call in self.running():
            if attempt in call.jobs and all(each.ending >= Ending.CANCEL for each in call.jobs):
                ending = min(each.ending for each in call.jobs)
                self.timeouts.request_end(call, ending, attempt.ending_reason)

    def _find_task(self, claim: Claim, lease: Lease) -> TaskSpec | Ack:
        """The task of a claim, or the ack that declines the claim."""
        if not isinstance(claim.task, str):  # written by another program than Mainspring
            return classify.ack_unnamed_task(lease, claim.task, self._environment.code)
        spec = self._tasks.get(claim.task) or self._find_late_task(claim.task)
        if spec is None or not can_run(spec, self._settings):
            self._log_cannot_run(claim, spec)
            return Ack.returned(lease, park=True)
        self._has_bulk = self._has_bulk or spec.bulk is not None
        if self.breaker_counts is None and (spec.breaker is not None or BREAKER_SUFFIX in claim.lane):
            self.breaker_counts = BreakerCounts()
        return spec

    def _find_late_task(self, task: str) -> TaskSpec | None:
        """A task that the program declared after this worker had started."""
        found = self._late_tasks.get(task)
        if found is None and self._learn is not None and (found := self._learn(task)) is not None:
            self._late_tasks[task] = found
            self._missing_limits.add_late_task(found)
            self._rate_slots.add(windows_of(found.bounds))
        return found

    def _log_cannot_run(self, claim: Claim, spec: TaskSpec | None) -> None:
        now = time.monotonic()
        if now - self._logged.get(claim.task, -_REMIND_AFTER) < _REMIND_AFTER:
            return
        self._logged[claim.task] = now
        if spec is None:
            log.warning(
                "this worker does not know task %r (job %s, queue %r); "
                "the jobs of the task stay ready for a worker that knows it.\n"
                '  Name its module in Mainspring(include=["..."]), or give the renamed task this name in aliases=.',
                claim.task, id_text(claim.id), claim.queue,
            )  # fmt: skip
        elif lacking := ", ".join(sorted(set(spec.needs) - set(self._settings.labels))):
            log.warning(
                "task %r (job %s, queue %r) needs a worker with the label %s; "
                "the jobs of the task stay ready for such a worker.\n"
                "  Start a worker with --labels, or let another worker serve the queue.",
                claim.task, id_text(claim.id), claim.queue, lacking,
            )  # fmt: skip
        else:
            log.warning(
                "task %r (job %s, queue %r) needs %s slots, and this worker has none; "
                "the jobs of the task stay ready for another worker.\n"
                "  Set %s_slots to 1 or more, or let another worker serve the queue.",
                claim.task, id_text(claim.id), claim.queue, spec.kind, spec.kind,
            )  # fmt: skip


def _target_maker(config: WorkerConfig) -> Callable[[str, int], ChildTarget]:
    """Makes the first message for a child. Raises ``TaskNotImportable`` if a child cannot import the app."""
    assert config.find_target is not None
    target = config.find_target()

    def make(pool: str, line: int) -> ChildTarget:
        path = tuple(folder or str(Path.cwd()) for folder in sys.path)
        return ChildTarget(
            target=target, path=path, address=config.store, logs=config.logs, pool=pool,
            grace=config.settings.grace, line=line,
        )  # fmt: skip

    return make


def _with_cost(attempt: RunningAttempt, ack: Ack) -> Ack:
    """The ack with the real cost of the attempt, if the handler has given it."""
    if attempt.actual_cost is None:
        return ack
    return msgspec.structs.replace(ack, spent=tuple(attempt.actual_cost.items()))
