"""The worker: one process that claims jobs and runs them. Builds its parts, runs them and shuts them down."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from mainspring.breakers.records import BreakerRow
from mainspring.common.clock import boottime
from mainspring.common.duration import format_duration
from mainspring.jobs.outcomes import Outcome
from mainspring.limits.records import Limit
from mainspring.schedules.plan import ScheduleNews
from mainspring.stores.base import Store
from mainspring.worker import failure_log, registration, roles
from mainspring.worker.config import WorkerConfig
from mainspring.worker.eligibility import lane_kinds
from mainspring.worker.events.dispatcher import EventDispatcher
from mainspring.worker.events.names import MovedJob, moved_by_acks, moved_by_rescue
from mainspring.worker.job_lines import job_lines_at
from mainspring.worker.lease.shared_state import ON_LOOP, ORDERED, STUCK, Phase, RunningBody, SharedState
from mainspring.worker.lifespan import Lifespans
from mainspring.worker.loop.demand import Demand
from mainspring.worker.loop.left_jobs import LeftJobs
from mainspring.worker.loop.loop_watch import LoopWatch
from mainspring.worker.loop.turn_loop import TurnLoop
from mainspring.worker.loop.wakeups import wait_until_empty, wake_on_new_jobs
from mainspring.worker.records import Registration, RescueResult
from mainspring.worker.registration import Heartbeats, MakeHeartbeats
from mainspring.worker.retry_log import Outage
from mainspring.worker.run.attempt import Ending, RunEnvironment, RunningAttempt
from mainspring.worker.run.dispatch import Dispatcher
from mainspring.worker.run.forked import guard_loop
from mainspring.worker.run.place import find_place
from mainspring.worker.run.progress import ReportSender
from mainspring.worker.run.slots.lending import SlotLender
from mainspring.worker.supervise import kill_rules
from mainspring.worker.supervise.blame import ack_early_jobs_of_crash
from mainspring.worker.supervise.drain import WorkerDrain
from mainspring.worker.supervise.signals import Exit

log = logging.getLogger("mainspring.worker")

TICK = 0.5
_HOOKS = 0.4
"""The part of the grace in which hooks get the last events: sending the last acks takes the rest."""
_CHILDREN = 0.5
"""The part of the grace that the children of process slots get to end."""
_BROKEN = "user code ended its event loop"
_ENDS = {
    0: "the jobs that it had started are finished",
    3: "unfinished jobs were handed back",
    4: "stopped fast, running jobs were handed back",
}


class BackgroundService(Protocol):
    """A service that runs in the background of a worker, until it is cancelled."""

    async def run(self) -> None: ...


class ServiceHost(NamedTuple):
    """What background services may use of their worker. The callbacks are None for a worker without hooks."""

    config: WorkerConfig
    store: Store
    worker_id: Callable[[], str]
    outage: Outage
    on_ready: Callable[[], None]
    """Jobs became ready."""
    on_expired: Callable[[Sequence[bytes]], None] | None
    """These jobs expired."""
    on_rescued: Callable[[str, RescueResult, Sequence[BreakerRow]], None] | None
    """The jobs of this worker were rescued."""
    on_schedule_news: Callable[[str, ScheduleNews, int], None] | None
    """Something happened to this schedule, at this time of the store."""


class WorkerServices(NamedTuple):
    """The background services of one worker, and what the worker calls."""

    services: Sequence[BackgroundService]
    promote_now: Callable[[], None]
    """A job is due now."""
    on_runs_ended: Callable[[Collection[str]], None] | None = None
    """Runs of these schedules have ended."""
    runs_settled: Callable[[], bool] | None = None
    """Whether the reported ends of runs have been taken in, with the runs that they start."""
    wait_schedules_fired: Callable[[], Awaitable[object]] | None = None
    """Waits until the schedules that were due at the start have been fired."""
    fleet: Callable[[], int] = lambda: 1
    """About how many workers the store has."""


MakeServices = Callable[[ServiceHost], WorkerServices]


class Worker:
    """Serves its queues until it is drained or stopped, or, with ``until_empty`` or ``burst``, until no job is left.

    ``services`` builds its background services. ``heartbeats`` builds what keeps the lease while the event loop is
    busy. ``supervised``: a supervisor kills and replaces this process when a body does not end, and gives back the jobs
    that still run then, unless it was killed itself (``supervisor_gone``); ``report_stuck`` tells it the job, the token
    and the place of such a body. ``info`` is added to the worker's registration. Any thread may call ``drain``,
    ``stop``, ``on_jobs_moved``, ``on_lost`` and ``on_lease_low``.
    """

    def __init__(
        self,
        config: WorkerConfig,
        store: Store,
        *,
        shared_state: SharedState,
        services: MakeServices,
        heartbeats: MakeHeartbeats | None = None,
        info: Mapping[str, object] | None = None,
        supervised: bool = False,
        supervisor_gone: Callable[[], bool] = lambda: False,
        report_stuck: Callable[[bytes, int, str], None] | None = None,
    ) -> None:
        self._outage = Outage(log)
        self._config = config = roles.apply_roles(config)
        self._environment = RunEnvironment(config.version)
        self._environment.app = config.app
        self.heartbeats: Heartbeats | None = None
        if heartbeats is not None:
            self.heartbeats = heartbeats(
                self.registration, lambda: self.id, on_lost=self.on_lost, on_lease_low=self.on_lease_low,
                outage=self._outage, check_loop=self.check_loop,
            )  # fmt: skip
        self.supervised = supervised
        self._supervisor_gone = supervisor_gone
        self._log_level = logging.INFO if supervised else logging.DEBUG  # a program knows of its own embedded worker
        self._info = dict(info or {})
        self._report_stuck = report_stuck
        self._store = store
        self._shared_state = shared_state
        self._make_services = services
        self._lifespans = Lifespans(config.lifespans, config.settings.grace / 1e6)
        self._ended = False
        self._stopping = False  # a drain or stop order came: the worker claims no more
        self._broken = False  # user code has ended the event loop
        self._crashed: list[RunningBody] = []
        self._left: LeftJobs | None = None  # set when no job is left to wait for, with until_empty or burst
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn_loop: TurnLoop | None = None
        self._serving_since = 0.0
        self._dispatcher: Dispatcher | None = None
        self._demand: Demand | None = None
        self._events: EventDispatcher | None = None
        self._loop_watch: LoopWatch | None = None
        self._drain: WorkerDrain | None = None
        self._early_orders: list[str] = []  # drain or stop, called before the worker was built
        self._started = asyncio.Event()
        self._tasks: list[asyncio.Task[Any]] = []

    # ---- use ---------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The worker's id in the store. The worker takes a new one after the store declared it lost."""
        return self._environment.worker

    async def run(self) -> int:
        """Work until the worker must end. Returns the exit code.

        0: the started jobs finished; 3: jobs were handed back at the drain limit, or the worker is replaced; 4: stopped
        fast; 6: with ``until_empty`` or ``burst``, jobs are left that no live worker can run.
        """
        self._loop = asyncio.get_running_loop()
        self._shared_state.phase = Phase.STARTING
        tick = self._loop.create_task(self._tick())
        with guard_loop(self._loop):
            try:
                await self._store.open()
                self._build()
                code = await self._serve() if await self._start_unless_ended() else 0
            finally:
                tick.cancel()
                await self._shut_down()
        return self._report_end(code)

    async def wait_started(self) -> None:
        """Wait until the worker is registered and about to claim."""
        await self._started.wait()

    def drain(self) -> None:
        """Claim no more, and finish the running jobs; at the drain limit hand back the rest."""
        self._order("drain")

    def stop(self) -> None:
        """End the running jobs now, and hand them back."""
        self._order("stop")

    def on_lost(self) -> None:
        """The store has declared this worker's id lost."""
        if self._turn_loop is not None:
            self._call_in_loop(self._turn_loop.turn_now)

    def on_lease_low(self) -> None:
        """No heartbeat was confirmed for too long: end the bodies that must not overlap with a re-run."""
        if self._dispatcher is not None:
            self._call_in_loop(self._dispatcher.fence_guarded)

    async def check_loop(self, connect: Callable[[], Awaitable[Store]]) -> None:
        """Look whether the event loop runs. Not on the event loop itself."""
        if self._loop_watch is not None and not self._ended:
            await self._loop_watch.check(connect)

    def on_jobs_moved(self, jobs: Sequence[MovedJob]) -> None:
        """The supervisor gave back the jobs of a dead worker: this worker calls the hooks."""
        if self._events is not None:
            self._events.on_jobs_moved(jobs)

    def on_loop_broken(self) -> None:
        """User code has ended the event loop, which does not run now: stop when it runs again.

        The jobs whose bodies ran on the loop count as crashed, as if the process had died. Bodies in threads are handed
        back.
        """
        if self._turn_loop is not None and not self._broken:
            self._broken = True
            self._crashed = [body for body in self._shared_state.jobs() if body.flags & ON_LOOP]
            self._turn_loop.abandon_bodies_of_loop()
        self._order("stop")

    def registration(self) -> Registration:
        """The worker's row in the store."""
        more = {"stopping": True} if self._stopping else {}
        return registration.build_registration(self._config, {**self._info, "claiming": self.turns_succeed, **more})

    @property
    def turns_succeed(self) -> bool:
        """Whether the store answers its turns; True before the first turn."""
        if self._turn_loop is None or not self._serving_since:
            return True
        turned = max(self._serving_since, self._turn_loop.turned_at)
        return kill_rules.turns_succeed(boottime(), turned, self._config.settings.lease / 1e6)

    # ---- start -------------------------------------------------------------------------------

    def _build(self) -> None:
        config, settings, environment = self._config, self._config.settings, self._environment
        self._shared_state.slots = max(1, settings.async_slots + settings.thread_slots)
        environment.job_lines = job_lines_at(config.logs.jobs)
        events = self._events = EventDispatcher(config, self._store) if config.hooks else None
        dispatcher = self._dispatcher = Dispatcher(
            config, self._shared_state, environment,
            on_started=events.on_started if events is not None and config.hooks.has("started") else None,
            on_stuck=self._on_stuck, declare_limits=self._declare_limits, store=self._store,
        )  # fmt: skip
        self._demand = Demand(
            settings.queues, settings.concurrency, dispatcher.pools, max_jobs=settings.max_jobs,
            lane_kinds=lane_kinds(config), weights=config.weights, separate=dispatcher.separate_lanes,
        )  # fmt: skip
        turn_loop = self._turn_loop = TurnLoop(
            self._store, self._demand, dispatcher, environment, self._outage,
            register=self._register, due_soon=self._on_due_soon, events=events,
        )  # fmt: skip
        dispatcher.add_ack = turn_loop.add_ack
        environment.lender = SlotLender(
            dispatcher.pools, config.limits, on_lent=turn_loop.on_slot_lent, on_returned=self._demand.count_claim
        )
        dispatcher.start_pools(environment.lender)
        environment.reports = ReportSender(self._store, environment, turn_loop.add_ack, self._outage)
        self._services = self._make_services(
            ServiceHost(
                config, self._store, lambda: self.id, self._outage,
                on_ready=turn_loop.wake,
                on_expired=events.on_expired if events else None,
                on_rescued=events.on_rescued if events else None,
                on_schedule_news=self._on_schedule_news if events else None,
            )
        )  # fmt: skip
        turn_loop.on_runs_ended = self._services.on_runs_ended
        self._drain = WorkerDrain(
            dispatcher, turn_loop, settings, supervised=self.supervised, supervisor_gone=self._supervisor_gone
        )
        self._loop_watch = LoopWatch(
            self._shared_state, turn_loop, dispatcher, supervised=self.supervised, on_overdue=self._on_blocked_overdue
        )
        for order in self._early_orders:
            self._begin_end(order)

    async def _start_unless_ended(self) -> bool:
        """Set up and register. False if a drain or stop order came before that was done."""
        assert self._drain is not None
        starting, ended = asyncio.create_task(self._start()), asyncio.create_task(self._drain.wait_begun())
        try:
            await asyncio.wait({starting, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                return False
            starting.result()
            return True
        finally:
            starting.cancel()
            ended.cancel()
            await asyncio.gather(starting, ended, return_exceptions=True)

    async def _start(self) -> None:
        config, store, outage = self._config, self._store, self._outage
        self._environment.state = await self._lifespans.start()
        if self.heartbeats is not None:
            self.heartbeats.start()
            await self.heartbeats.wait_registered()
        else:
            await self._register()
        limits = {limit.name: limit for spec in config.tasks.values() for limit in spec.limits}
        limits |= {limit.name: limit for limit in config.limits}
        await registration.declare_limits(store, tuple(limits.values()), outage)
        await registration.record_program(store, config, outage)
        rows = await registration.declare_queues(store, config.queues, outage)
        await registration.declare_schedules(store, config, outage)
        registration.warn_of_unknown_hook_tasks(config)
        registration.warn_of_replaced_caps(config)
        registration.report_bad_signatures(config)
        await registration.warn_of_missing_slots(store, config, outage)
        await registration.warn_of_unmatched_routes(store, config, outage)
        await registration.warn_of_unknown_queues(store, config, {row.name for row in rows}, outage)
        assert self._demand is not None
        if any(row.settings.order == "lifo" and row.name in config.settings.queues for row in rows):
            self._demand.share_by_weight()

    async def _register(self) -> None:
        """Register the current id. Retries until the store answers."""
        await registration.register(
            self._environment, self._store, self.registration, self._shared_state, self.heartbeats, self._outage
        )

    def _declare_limits(self, limits: tuple[Limit, ...]) -> asyncio.Task[None]:
        """Store the limits of a task that was declared after the worker started."""
        declaring = asyncio.create_task(registration.declare_limits(self._store, limits, self._outage))
        self._tasks.append(declaring)
        return declaring

    async def _serve(self) -> int:
        assert self._turn_loop is not None
        assert self._drain is not None
        turns = asyncio.create_task(self._turn_loop.run())
        self._tasks = [turns]
        self._run_beside(self._environment.reports.run())
        if roles.WORKER in self._config.settings.roles:
            fleet = self._services.fleet
            self._run_beside(wake_on_new_jobs(self._store, self._turn_loop, self._config, self._outage, fleet))
        for service in self._services.services:
            self._run_beside(service.run())
        if self._config.settings.ends_when_empty:
            self._run_beside(self._drain_when_empty())
        if self._shared_state.phase == Phase.STARTING:
            self._shared_state.phase = Phase.RUNNING
        self._shared_state.tried = self._serving_since = boottime()
        self._started.set()
        log.log(self._log_level, "worker %s started: %s", self.id, registration.describe_worker(self._config))
        ending = asyncio.create_task(self._drain.run())
        self._tasks.append(ending)
        await asyncio.wait({turns, ending}, return_when=asyncio.FIRST_COMPLETED)
        if turns.done() and not ending.done() and (error := turns.exception()) is not None:
            if self.supervised:  # an embedded worker logs its own end
                log.critical("the turn loop failed with an unexpected error: %r", error)
            raise error
        return await ending

    async def _drain_when_empty(self) -> None:
        """Schedules that were due at the start are fired first."""
        assert self._turn_loop is not None
        if self._services.wait_schedules_fired is not None:
            await self._services.wait_schedules_fired()
        self._left = await wait_until_empty(
            self._store, self._turn_loop, self._config, self._outage, self._services.runs_settled
        )
        self.drain()

    def _run_beside(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    # ---- while it runs -----------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            self._shared_state.ticked = boottime()
            if self._turn_loop is not None and self._turn_loop.tried_at:
                self._shared_state.tried = self._turn_loop.tried_at
            if self._dispatcher is not None:
                self._dispatcher.hand_back_waiting()
            await asyncio.sleep(TICK)

    def _on_schedule_news(self, name: str, news: ScheduleNews, now: int) -> None:
        if self._events is not None:
            self._events.on_schedule_news(name, news, now, self.id)

    def _on_due_soon(self, seconds: float) -> None:
        """A job is due before the promoter would tick again."""
        asyncio.get_running_loop().call_later(seconds, self._services.promote_now)

    def _on_stuck(self, attempt: RunningAttempt) -> None:
        """A body did not end within the grace."""
        assert self._drain is not None
        if attempt.ending not in (Ending.HARD, Ending.CANCEL):
            return
        cause = "was cancelled"
        if attempt.ending is Ending.HARD:
            cause = f"ran longer than its timeout of {format_duration(attempt.timeout / 1e6)}"
        place = find_place(attempt)
        if not self.supervised:
            consequence = "its slot stays occupied until it does, for an embedded worker cannot be replaced"
            failure_log.log_stuck_body(attempt, cause, place, consequence)
            return
        consequence = "this worker finishes its other jobs, and the supervisor replaces it"
        failure_log.log_stuck_body(attempt, cause, place, consequence)
        self._report_place(attempt, place)
        for each in attempt.jobs:
            if each.slot >= 0:
                self._shared_state.mark(each.slot, STUCK | ORDERED if attempt.ending is Ending.CANCEL else STUCK)
        self._shared_state.phase = Phase.REPLACE
        self._drain.drain()

    def _report_place(self, attempt: RunningAttempt, place: str) -> None:
        if self._report_stuck is not None and place:
            for each in attempt.jobs:
                self._report_stuck(each.claim.id, each.claim.token, place)

    def _on_blocked_overdue(self, attempt: RunningAttempt, place: str) -> None:
        """A body has blocked the event loop past its hard limit. Not on the event loop."""
        self._report_place(attempt, place)
        job = f"job {UUID(bytes=attempt.claim.id)} ({attempt.claim.task})"
        log.error("%s blocks the event loop past its time limit: the supervisor replaces this worker", job)
        assert self._drain is not None
        self._call_in_loop(self._drain.drain)

    # ---- end ---------------------------------------------------------------------------------

    def _order(self, order: str) -> None:
        self._early_orders.append(order)
        self._call_in_loop(lambda: self._begin_end(order))

    def _begin_end(self, order: str) -> None:
        if self._drain is None or self._ended:
            return  # called again when the worker is built; or the shared state may be closed
        self._stopping = True
        if self.heartbeats is not None:
            self.heartbeats.wake()  # the row of the worker says so from now on
        if self._shared_state.phase != Phase.REPLACE:
            self._shared_state.phase = Phase.DRAINING
        if order == "drain":
            self._drain.drain()
        else:
            self._drain.stop()

    def _call_in_loop(self, call: Callable[[], None]) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the worker has ended
                self._loop.call_soon_threadsafe(call)

    async def _shut_down(self) -> None:
        settings = self._config.settings
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._dispatcher is not None:
            self._dispatcher.end_all()  # no body runs any more, unless run() itself was cancelled
        retiring = self._drain is not None and self._drain.all_acked and not self._left_to_supervisor()
        if retiring and self._broken:
            await self._retire_broken()
        if self._events is not None:
            await self._events.close(_HOOKS * settings.grace / 1e6)
        if self._dispatcher is not None:
            await self._dispatcher.close_children(_CHILDREN * settings.grace / 1e6)
        await self._lifespans.stop()
        if self.heartbeats is not None:
            self.heartbeats.stop()
        if retiring and not self._broken:
            await registration.retire(self._store, self.id, min(1.0, settings.grace / 1e6))
        if self._dispatcher is not None:
            self._dispatcher.close()
        if self._shared_state.phase != Phase.REPLACE:
            self._shared_state.phase = Phase.DONE
        self._ended = True

    async def _retire_broken(self) -> None:
        """Give back the jobs that ran on the event loop when user code ended it, as crashed."""
        acks = ack_early_jobs_of_crash(self._crashed, self.id, self._config.version)
        limit = min(1.0, self._config.settings.grace / 1e6)
        if self.heartbeats is not None:
            self.heartbeats.stop()  # a heartbeat after the retirement would find the worker lost
        given = await registration.retire(self._store, self.id, limit, Outcome.CRASHED, acks)
        if given is None or not given.taken:
            return
        failure_log.log_dead_with_worker(self.id, _BROKEN, given.dead, acks)
        log.warning(
            "worker %s ended (%s): %d of its jobs are ready again, %d retry later, %d are dead",
            self.id, _BROKEN, len(given.ready), len(given.retrying), len(given.dead) + len(acks),
        )  # fmt: skip
        if self._events is not None:
            self._events.on_jobs_moved([*moved_by_acks(self.id, acks), *moved_by_rescue(self.id, given)])

    def _report_end(self, code: int) -> int:
        """Log the end and what is left. Returns the exit code."""
        left = self._left
        if left is None or code != Exit.CLEAN:
            behind = 0 if self._drain is None else self._drain.left_behind
            more = f", except {behind:,} that {'does' if behind == 1 else 'do'} not end" if behind else ""
            log.log(self._log_level, "worker %s stopped: %s%s", self.id, _ENDS.get(code, code), more)
            return code
        said = "; ".join(filter(None, left)) or "all jobs finished"
        log.log(logging.WARNING if left.stuck else self._log_level, "worker %s stopped: %s", self.id, said)
        return Exit.LEFT if left.stuck else code

    def _left_to_supervisor(self) -> bool:
        """A body still runs: the supervisor gives its job back after this process has ended."""
        return self.supervised and self._dispatcher is not None and bool(self._dispatcher.running())
