"""Storing the schedules of the code: how much it costs, and when several versions start together."""

from __future__ import annotations

from typing import Any, cast

import pytest

from mainspring.jobs.records import JobBatch
from mainspring.schedules.records import ScheduleSwap, SwapResult
from mainspring.schedules.sync import CodeSchedules, SyncResult, sync
from mainspring.stores.base import Store
from tests.schedules.scheduled import Counting, plan_of
from tests.unit.schedule_samples import definition

pytestmark = pytest.mark.row("S8")


async def test_the_number_of_calls_does_not_grow_with_the_schedules(store: Store) -> None:
    """When nothing has changed, a fleet with many schedules starts as fast as a fleet with few."""
    wanted = {f"s{n:02}": definition(depends_on=(f"s{n - 1:02}",) if n % 2 else ()) for n in range(20)}
    assert len((await sync(store, CodeSchedules(wanted, "1"))).added) == 20
    calls: list[str] = []
    assert await sync(cast("Store", Counting(store, calls)), CodeSchedules(wanted, "1")) == SyncResult()
    assert len(calls) < 6


class Overtaken:
    """A store at which newer code stores its schedules just before the first exchange of older code arrives."""

    def __init__(self, store: Store, newer: CodeSchedules) -> None:
        self._store = store
        self._newer: CodeSchedules | None = newer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def swap_schedule(self, swap: ScheduleSwap, batch: JobBatch | None = None) -> SwapResult:
        newer, self._newer = self._newer, None
        if newer is not None:
            await sync(self._store, newer)
        return await self._store.swap_schedule(swap, batch)


async def test_dependencies_of_newer_code_stay_when_older_code_was_slower(store: Store) -> None:
    both = {"old": definition(), "new": definition()}
    older = CodeSchedules({**both, "s": definition(depends_on=("old",))}, "1")
    newer = CodeSchedules({**both, "s": definition(depends_on=("new",))}, "2")
    await sync(store, CodeSchedules(both, "1"))
    assert "s" in (await sync(cast("Store", Overtaken(store, newer)), older)).left
    plan = await plan_of(store, "s")
    assert (plan.definition.depends_on, plan.used) == (("new",), {"new": 0})
