"""Promotion: due jobs become ready, expired jobs end, waiting lanes are rechecked."""

from __future__ import annotations

from mainspring.jobs.records import PromoteResult
from mainspring.stores.postgres.driver.database import Database

_PROMOTE = """
select now, promoted, ended, queues, woken, next_due from {schema}.promote_v1(%(limit)s::integer, %(now)s::bigint)
"""


async def promote(db: Database, limit: int) -> PromoteResult:
    ((now, promoted, ended, queues, woken, due),) = await db.rows(_PROMOTE, {"limit": limit, "now": db.now()})
    await db.wake({*queues, *woken})
    return PromoteResult(now, promoted, len(ended), tuple(queues), due, tuple(ended))
