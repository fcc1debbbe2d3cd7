"""Short functions for the tests of the scheduler: schedules in a store, and the results of their occurrences."""

from __future__ import annotations

from typing import Any

from mainspring.jobs.query import Query
from mainspring.schedules.plan import (
    OccurrenceRecord,
    ScheduleNews,
    SchedulePlan,
    ScheduleStep,
    decode,
    decode_run,
    encode,
    new_plan,
)
from mainspring.schedules.records import ScheduleSwap
from mainspring.schedules.swap import swap_row
from mainspring.stores.base import Store
from tests.unit.schedule_samples import T0, definition


async def put(store: Store, name: str = "s", plan: SchedulePlan | None = None, **options: Any) -> None:
    made = plan or new_plan(definition(**options), T0)
    said = await store.swap_schedule(ScheduleSwap(name=name, rev=0, doc=encode(made), look=made.due))
    assert said.ok


async def plan_of(store: Store, name: str = "s") -> SchedulePlan:
    (found,) = await store.schedules([name])
    return decode(found.doc)


async def records(store: Store, name: str = "s") -> list[OccurrenceRecord]:
    """Oldest first."""
    return [decode_run(run) for run in reversed(await store.schedule_runs(name, 1000))]


async def what(store: Store, name: str = "s") -> list[str]:
    return [record.what for record in await records(store, name)]


async def jobs(store: Store) -> int:
    return sum((await store.count(Query.everything())).values())


async def asked(store: Store, made: ScheduleStep, name: str = "s") -> None:
    (found,) = await store.schedules([name])
    assert (await swap_row(store, found, made)).ok


class Heard(list[tuple[str, ScheduleNews]]):
    def __call__(self, name: str, news: ScheduleNews, now: int) -> None:
        assert now
        self.append((name, news))


class Counting:
    """A store whose calls are noted."""

    def __init__(self, store: Store, calls: list[str]) -> None:
        self._store, self._calls = store, calls

    def __getattr__(self, name: str) -> Any:
        self._calls.append(name)
        return getattr(self._store, name)
