"""Schedules that wait for the success of other schedules."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.schedules.records import ScheduleDependency, ScheduleDependencyRow
from mainspring.stores.postgres.driver.database import Database
from mainspring.stores.shared.constants import DEPENDENTS_SHOWN

_SET = """
select {schema}.set_dependencies_v1(%(names)b::text[], %(schedule)b::text[], %(after)b::text[], %(now)s::bigint)
"""
_DEPENDENCIES = """
select p.name, array(select d.after from {schema}.dependencies d where d.schedule = p.name order by d.after),
    array(select d.noted from {schema}.dependencies d where d.schedule = p.name order by d.after),
    array(
        select j.id from {schema}.jobs j where j.held_schedule = p.name and j.held_place is not null
        order by j.held_place limit %(shown)s::integer
    )
from {schema}.dependents p order by p.name
"""


async def set_dependencies(db: Database, dependencies: Sequence[ScheduleDependency]) -> None:
    after = {each.name: each.after for each in dependencies}
    pairs = [(name, other) for name, others in after.items() for other in others]
    params = {
        "names": list(after), "schedule": [name for name, _ in pairs], "after": [other for _, other in pairs],
        "now": db.now(),
    }  # fmt: skip
    ((woken,),) = await db.rows(_SET, params)
    await db.wake(woken)


async def dependencies(db: Database) -> list[ScheduleDependencyRow]:
    return [
        ScheduleDependencyRow(name=name, after=tuple(zip(after, noted, strict=True)), waiting=tuple(waiting))
        for name, after, noted, waiting in await db.rows(_DEPENDENCIES, {"shown": DEPENDENTS_SHOWN})
    ]
