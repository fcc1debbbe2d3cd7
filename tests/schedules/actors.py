"""The callers of the store in a simulation: schedulers, whose calls pass one by one, and operators."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from mainspring.errors import StoreUnavailable
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobBatch
from mainspring.schedules.records import ScheduleSwap, SwapResult
from mainspring.schedules.service import Scheduler
from mainspring.states import Action
from mainspring.stores.base import Store

if TYPE_CHECKING:
    from tests.schedules.simulation import Simulation

R = TypeVar("R")
Fate = Literal["done", "lost", "unheard"]
"""Of a call: it went well, the request never arrived, or the reply did not."""


class Wire:
    """The store as one scheduler reaches it: each call waits until the simulation lets it through."""

    engine, url = "sqlite", "sqlite://"

    def __init__(self, simulation: Simulation) -> None:
        self._of = simulation
        self.gate: asyncio.Future[Fate] | None = None

    async def due_schedules(self, limit: int = 1000) -> Any:
        return await self._pass(lambda: self._of.store.due_schedules(limit))

    async def schedules(self, names: Any = ()) -> Any:
        return await self._pass(lambda: self._of.store.schedules(names))

    async def find(self, query: Query, **options: Any) -> Any:
        return await self._pass(lambda: self._of.store.find(query, **options))

    async def act(self, action: Action, query: Query, **_: Any) -> Any:
        assert action is Action.CANCEL
        return await self._pass(lambda: self._of.cancel(query.ids or ()))

    async def swap_schedule(self, asked: ScheduleSwap, batch: JobBatch | None = None) -> SwapResult:
        return await self._pass(lambda: self._of.swap_schedule(asked, batch, "scheduler"))

    async def _pass(self, call: Callable[[], Awaitable[R]]) -> R:
        self.gate = asyncio.get_running_loop().create_future()
        self._of.idle.set()
        fate = await self.gate
        if fate == "lost":
            raise StoreUnavailable("the request was lost")
        said = await call()
        if fate == "unheard":
            raise StoreUnavailable("the reply was lost")
        return said


class Actor:
    """One scheduler, in the middle of a tick or between two."""

    def __init__(self, simulation: Simulation) -> None:
        self.wire = Wire(simulation)
        self.scheduler = Scheduler(cast("Store", self.wire))
        self.task: asyncio.Task[float] | None = None

    def start(self, idle: asyncio.Event) -> None:
        self.task = asyncio.create_task(self.scheduler.tick())
        self.task.add_done_callback(lambda _: idle.set())


class ByHand:
    """A store for what operators exchange."""

    def __init__(self, simulation: Simulation, by: str) -> None:
        self._of = simulation
        self._by = by

    async def swap_schedule(self, asked: ScheduleSwap, batch: JobBatch | None = None) -> SwapResult:
        return await self._of.swap_schedule(asked, batch, self._by)
