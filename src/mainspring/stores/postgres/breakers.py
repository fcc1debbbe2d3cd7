"""Breakers."""

from __future__ import annotations

from mainspring.breakers.records import BreakerRow
from mainspring.stores.postgres.driver.database import Database
from mainspring.stores.postgres.limits import write_and_wake
from mainspring.stores.postgres.rows import breaker_row

_TRIP = "select {schema}.trip_breaker_v1(%(name)s::text, %(span)s::bigint, %(now)s::bigint)"
_REPORT = """
select changed, woken from {schema}.report_breaker_v1(
    %(name)s::text, %(started)s::bigint, %(good)s::bigint, %(fault)s::text, %(now)s::bigint
)
"""


async def trip_breaker(db: Database, breaker: str, span: int | None) -> bool:
    return await write_and_wake(db, _TRIP, {"name": breaker, "span": span, "now": db.now()})


async def reset_breaker(db: Database, breaker: str) -> bool:
    return await trip_breaker(db, breaker, 0)


async def report_breaker(db: Database, breaker: str, started: int, good: int, fault: str) -> BreakerRow | None:
    params = {"name": breaker, "started": started, "good": good, "fault": fault, "now": db.now()}
    ((changed, woken),) = await db.rows(_REPORT, params)
    await db.wake(woken)
    return None if changed is None else breaker_row(changed)
