"""The worker: one process that claims jobs and runs them. Puts the parts together and takes them down."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from mainspring.common.clock import boottime
from mainspring.limits.records import Limit
from mainspring.schedules.plan import ScheduleNews
from mainspring.schedules.service import Scheduler
from mainspring.stores.base import Store
from mainspring.worker import roles
from mainspring.worker.config import WorkerConfig
from mainspring.worker.events.dispatcher import EventDispatcher
from mainspring.worker.events.names import MovedJob
from mainspring.worker.introduction import described, introduce
from mainspring.worker.lease.shared_state import ORDERED, STUCK, Phase, SharedState
from mainspring.worker.lifespan import Lifespans
from mainspring.worker.loop.demand import Demand
from mainspring.worker.loop.eligibility import lane_kinds
from mainspring.worker.loop.outage import Outage
from mainspring.worker.loop.turn_loop import TurnLoop
from mainspring.worker.loop.wakeups import hear_of_the_end, hear_of_work
from mainspring.worker.records import Registration
from mainspring.worker.registration import (
    Heartbeats,
    MakeHeartbeats,
    declare_limits,
    declare_queues,
    declare_schedules,
    enrol,
    say_goodbye,
)
from mainspring.worker.run.attempt import Ending, RunningAttempt
from mainspring.worker.run.dispatch import Dispatcher
from mainspring.worker.run.progress import ReportSender
from mainspring.worker.services.base import Service
from mainspring.worker.services.promoter import Promoter
from mainspring.worker.services.pruner import Pruner
from mainspring.worker.services.rescuer import Rescuer
from mainspring.worker.supervise import kill_rules
from mainspring.worker.supervise.drain import WorkerDrain

log = logging.getLogger("mainspring.worker")

TICK = 0.5
_HOOKS = 0.4
"""Part of the grace in which hooks hear of the last events: what the last acks leave of it."""
_ENDS = {0: "all finished", 3: "the rest was handed back", 4: "fast, what ran was handed back"}


class Worker:
    """Serves its queues until it is drained, stopped or, with ``until_empty``, out of work.

    ``beater`` makes what keeps the lease while the loop is busy. ``supervised``: somebody kills and
    replaces this process when a body will not end, and gives back what then still runs. ``info`` is
    added to what the worker says of itself.
    ``drain``, ``stop``, ``told``, ``on_lost`` and ``on_lease_low`` may be called from any thread.
    """

    def __init__(
        self,
        parts: WorkerConfig,
        store: Store,
        *,
        board: SharedState,
        beater: MakeHeartbeats | None = None,
        info: Mapping[str, object] | None = None,
        supervised: bool = False,
    ) -> None:
        self._outage = Outage(log)
        self.beater: Heartbeats | None = None
        if beater is not None:
            self.beater = beater(
                self.registration, lambda: self.id, on_lost=self.on_lost, on_lease_low=self.on_lease_low,
                outage=self._outage,
            )  # fmt: skip
        self.supervised = supervised
        self._loud = logging.INFO if supervised else logging.DEBUG  # a program that holds a worker knows of it
        self._info = dict(info or {})
        self._parts = parts = roles.fitted(parts)
        self._store = store
        self._board = board
        self._over = False
        self._lifespans = Lifespans(parts.lifespans, parts.settings.grace / 1e6)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turner: TurnLoop | None = None
        self._began = 0.0
        self._floor: Dispatcher | None = None
        self._demand: Demand | None = None
        self._herald: EventDispatcher | None = None
        self._stopping: WorkerDrain | None = None
        self._scheduler: Scheduler | None = None
        self._asked: list[str] = []  # drain or stop that came before there was a loop
        self._started = asyncio.Event()
        self._crew: list[asyncio.Task[Any]] = []

    # ---- use ---------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The worker's name in the store; a new one after it was given up for lost."""
        return self._turner.id if self._turner else ""

    async def run(self) -> int:
        """Work until told to end. 0: all finished; 3: handed back at the limit or replaced; 4: stopped fast."""
        self._loop = asyncio.get_running_loop()
        self._board.phase = Phase.STARTING
        tick = self._loop.create_task(self._tick())
        try:
            await self._store.open()
            self._build()
            code = await self._serve() if await self._admitted() else 0
        finally:
            tick.cancel()
            await self._take_down()
        log.log(self._loud, "worker %s stopped: %s", self.id, _ENDS.get(code, code))
        return code

    async def wait_started(self) -> None:
        """Returns when the worker is registered and about to claim."""
        await self._started.wait()

    def drain(self) -> None:
        """Claim no more, finish what runs; at the drain limit hand back the rest."""
        self._ask("drain")

    def stop(self) -> None:
        """End the bodies now and hand them back."""
        self._ask("stop")

    def on_lost(self) -> None:
        """The store said that this worker's id is lost."""
        if self._turner is not None:
            self._in_loop(self._turner.hear)

    def on_lease_low(self) -> None:
        """No beat was confirmed for long: end what must not overlap with a re-run."""
        if self._floor is not None:
            self._in_loop(self._floor.fence)

    def told(self, jobs: Sequence[MovedJob]) -> None:
        """A supervisor gave back the jobs of a dead sibling: hooks hear of it here."""
        if self._herald is not None:
            self._herald.moved(jobs)

    def registration(self) -> Registration:
        """What the worker says of itself."""
        return introduce(self._parts, {**self._info, "claiming": self.claims})

    @property
    def claims(self) -> bool:
        """Whether its turns come through, or it has not begun to make any."""
        if self._turner is None or not self._began:
            return True
        turned = max(self._began, self._turner.turned_at)
        return kill_rules.claims(boottime(), turned, self._parts.settings.lease / 1e6)

    # ---- up ----------------------------------------------------------------------------------

    def _build(self) -> None:
        parts, settings = self._parts, self._parts.settings
        self._board.slots = max(1, settings.async_slots + settings.thread_slots)
        herald = self._herald = EventDispatcher(parts, self._store) if parts.hooks else None
        floor = Dispatcher(
            parts, self._board, herald=herald,
            on_stuck=self._on_stuck, enrol=self._enrol, declare=self._declare, due_soon=self._due_soon,
        )  # fmt: skip
        demand = self._demand = Demand(
            settings.queues, settings.concurrency, floor.pools,
            kinds=lane_kinds(parts), weights=parts.weights, lines=floor.lines,
        )  # fmt: skip
        self._turner = floor.turner = TurnLoop(self._store, demand, floor, self._outage)
        self._turner.herald = herald
        floor.reporter = ReportSender(self._store, lambda: self.id, self._turner.report, self._outage)
        self._floor = floor
        self._promoter = Promoter(self._store, self._turner.wake, expired=herald.expired if herald else None)
        taken = herald.rescued if herald else None
        rescuer = Rescuer(self._store, lambda: self.id, sweep=settings.sweep / 1e6, taken=taken)
        self._services: list[Service] = [self._promoter, rescuer]
        if roles.SCHEDULER in settings.roles:
            scheduler = self._scheduler = Scheduler(self._store, told=self._of_schedule if herald else None)
            self._turner.ended = scheduler.ended
            self._services += [scheduler, Pruner(self._store, parts.retention)]
        for service in self._services:
            service.trouble.outage = self._outage
        self._stopping = WorkerDrain(floor, self._turner, settings, supervised=self.supervised)
        for asked in self._asked:
            self._begin_end(asked)

    async def _admitted(self) -> bool:
        """Set up and registered; False if it was told to end before that was through."""
        assert self._stopping is not None
        entering, told = asyncio.create_task(self._enter()), asyncio.create_task(self._stopping.begun())
        try:
            await asyncio.wait({entering, told}, return_when=asyncio.FIRST_COMPLETED)
            if not entering.done():
                return False
            entering.result()
            return True
        finally:
            entering.cancel()
            told.cancel()
            await asyncio.gather(entering, told, return_exceptions=True)

    async def _enter(self) -> None:
        assert self._floor is not None
        self._floor.state = await self._lifespans.start()
        if self.beater is not None:
            self.beater.start()
            await self.beater.wait_registered()
        else:
            await self._enrol()
        limits = {limit.name: limit for spec in self._parts.tasks.values() for limit in spec.limits}
        limits |= {limit.name: limit for limit in self._parts.limits}
        await declare_limits(self._store, tuple(limits.values()), self._outage)
        rows = await declare_queues(self._store, self._parts.queues, self._outage)
        if self._parts.schedules is not None:
            await declare_schedules(self._store, self._parts.schedules, self._outage)
        assert self._demand is not None
        if any(row.settings.order == "lifo" and row.name in self._parts.settings.queues for row in rows):
            self._demand.ask_apart()

    async def _enrol(self) -> None:
        """Register the current id, however long it takes."""
        assert self._turner is not None
        await enrol(self._turner, self._store, self.registration, self._board, self.beater, self._outage)

    def _declare(self, limits: tuple[Limit, ...]) -> asyncio.Task[None]:
        """Those of a task that came later."""
        declaring = asyncio.create_task(declare_limits(self._store, limits, self._outage))
        self._crew.append(declaring)
        return declaring

    async def _serve(self) -> int:
        assert self._turner is not None
        assert self._floor is not None
        assert self._stopping is not None
        turner = asyncio.create_task(self._turner.run())
        self._crew = [turner]
        self._join(self._floor.reporter.run())
        if roles.WORKER in self._parts.settings.roles:
            self._join(hear_of_work(self._store, self._turner, self._parts, self._outage))
        for service in self._services:
            self._join(service.run())
        if self._parts.settings.until_empty:
            self._join(self._hear_of_the_end())
        if self._board.phase == Phase.STARTING:
            self._board.phase = Phase.RUNNING
        self._board.tried = self._began = boottime()
        self._started.set()
        log.log(self._loud, "worker %s started: %s", self.id, described(self._parts))
        ending = asyncio.create_task(self._stopping.run())
        self._crew.append(ending)
        await asyncio.wait({turner, ending}, return_when=asyncio.FIRST_COMPLETED)
        if turner.done() and not ending.done() and (error := turner.exception()) is not None:
            log.critical("the turner ended by an error of its own: %r", error)
            raise error
        return await ending

    async def _hear_of_the_end(self) -> None:
        """Once what was due when it started has been fired."""
        assert self._turner is not None
        if self._scheduler is not None:
            await self._scheduler.first_tick.wait()
        await hear_of_the_end(self._store, self._turner, self._parts, self._outage, self.drain)

    def _join(self, work: Coroutine[Any, Any, None]) -> None:
        self._crew.append(asyncio.create_task(work))

    # ---- while it runs -----------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            self._board.ticked = boottime()
            if self._turner is not None and self._turner.tried_at:
                self._board.tried = self._turner.tried_at
            if self._floor is not None:
                self._floor.give_back_unused()
            await asyncio.sleep(TICK)

    def _of_schedule(self, name: str, news: ScheduleNews, now: int) -> None:
        """Something happened to a schedule under the eyes of this worker's scheduler."""
        if self._herald is not None:
            self._herald.scheduled(name, news, now, self.id)

    def _due_soon(self, seconds: float) -> None:
        """A job is due before the promoter would look again."""
        asyncio.get_running_loop().call_later(seconds, self._promoter.hurry)

    def _on_stuck(self, attempt: RunningAttempt) -> None:
        """A body did not end within the grace."""
        assert self._stopping is not None
        if attempt.ending not in (Ending.HARD, Ending.CANCEL):
            return
        what = f"job {attempt.claim.id.hex()} ({attempt.claim.task})"
        if not self.supervised:
            log.error("%s does not end; its slot stays occupied until it does: nobody can replace this worker", what)
            return
        log.error("%s does not end: this worker finishes its other jobs and is replaced", what)
        for each in attempt.jobs:
            if each.slot >= 0:
                self._board.mark(each.slot, STUCK | ORDERED if attempt.ending is Ending.CANCEL else STUCK)
        self._board.phase = Phase.REPLACE
        self._stopping.drain()

    # ---- down --------------------------------------------------------------------------------

    def _ask(self, how: str) -> None:
        self._asked.append(how)
        self._in_loop(lambda: self._begin_end(how))

    def _begin_end(self, how: str) -> None:
        if self._stopping is None or self._over:
            return  # told again once it is built; or its board may be gone
        if self._board.phase != Phase.REPLACE:
            self._board.phase = Phase.DRAINING
        if how == "drain":
            self._stopping.drain()
        else:
            self._stopping.stop()

    def _in_loop(self, call: Callable[[], None]) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it is over anyway
                self._loop.call_soon_threadsafe(call)

    async def _take_down(self) -> None:
        for task in self._crew:
            task.cancel()
        await asyncio.gather(*self._crew, return_exceptions=True)
        if self._floor is not None:
            self._floor.stop_all()  # there are none left, unless run() itself was cancelled
            self._floor.close()
        if self._herald is not None:
            await self._herald.close(_HOOKS * self._parts.settings.grace / 1e6)
        await self._lifespans.stop()
        if self.beater is not None:
            self.beater.stop()
        if self._stopping is not None and self._stopping.flushed and not self._left_to_supervisor():
            await say_goodbye(self._store, self.id, min(1.0, self._parts.settings.grace / 1e6))
        if self._board.phase != Phase.REPLACE:
            self._board.phase = Phase.DONE
        self._over = True

    def _left_to_supervisor(self) -> bool:
        """A body still runs: its job is given back by whoever sees this process end."""
        return self.supervised and self._floor is not None and bool(self._floor.bodies())
