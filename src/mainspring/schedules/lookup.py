"""Reading schedules: one by its name, or the whole set."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mainspring.common.clock import to_datetime
from mainspring.errors import InvalidOption, did_you_mean
from mainspring.jobs.actions import store_now
from mainspring.limits.records import Bucket
from mainspring.schedules.info import GroupInfo, ScheduleInfo, ScheduleStatus, infos_of
from mainspring.schedules.plan import SchedulePlan, is_between_two, some_of
from mainspring.schedules.service import seen_by
from mainspring.schedules.sync import plan_or_nothing
from mainspring.schedules.update import decoded

if TYPE_CHECKING:
    from mainspring.stores.base import Store


async def plans_of(store: Store, names: Sequence[str] = ()) -> dict[str, SchedulePlan]:
    """The schedules of these names, or every one, by name; without those that this version cannot read."""
    found = {row.name: plan_or_nothing(row) for row in await store.schedules(names)}
    return {name: plan for name, plan in found.items() if plan is not None}


async def plan_of(store: Store, name: str) -> tuple[SchedulePlan, int]:
    """One schedule, and the store's time."""
    rows = await store.schedules([name])
    if not rows:
        raise unknown(name, [row.name for row in await store.schedules()])
    return decoded(rows[0]), await store_now(store)


async def info_of(store: Store, name: str) -> ScheduleInfo:
    """One schedule. The others are read only where some belong to it: there may be thousands."""
    plan, _ = await plan_of(store, name)
    definition = plan.definition
    if definition.depends_on or definition.blocked_by or any(is_between_two(limit) for limit in definition.limits):
        found = {info.name: info for info in (await status(store)).schedules}
        if name not in found:  # it went just now
            raise unknown(name, found)
        return found[name]
    [info] = infos_of({name: plan}, await seen_by(store, [run.job for run in plan.open]), ())
    return info


async def status(store: Store) -> ScheduleStatus:
    """The whole set as it stands."""
    plans = await plans_of(store)
    links = await store.dependencies() if plans else []
    seen = await seen_by(store, [run.job for plan in plans.values() for run in plan.open])
    groups: dict[str, list[str]] = defaultdict(list)
    for name, plan in plans.items():
        if plan.definition.group:
            groups[plan.definition.group].append(name)
    limits = {name: some_of(name, 1).name for name in groups}
    rows = (
        {row.limit: row for row in await store.buckets([Bucket(limit) for limit in limits.values()])} if groups else {}
    )
    return ScheduleStatus(
        at=to_datetime(await store_now(store)),
        schedules=tuple(infos_of(plans, seen, links)),
        groups=tuple(
            GroupInfo(
                name=name,
                max_concurrent=rows[limit].size if limit in rows else None,
                running=rows[limit].used if limit in rows else 0,
                schedules=tuple(groups[name]),
            )
            for name, limit in sorted(limits.items())
        ),
    )


def unknown(name: str, known: Iterable[str]) -> InvalidOption:
    """A schedule that the store does not know."""
    hint = "Schedules of the code are stored by workers that start; mainspring schedules ls shows them all."
    return InvalidOption("schedule", name, f"is not known to the store{did_you_mean(name, known)}", hint=hint)
