"""Capacity that is held outside of a claim: limiters, locks and semaphores."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.limits.records import Bucket, HolderRow, HoldResult, Limit
from mainspring.stores.postgres.driver.arrays import numbers
from mainspring.stores.postgres.driver.database import Database
from mainspring.stores.postgres.limits import costs_of, limits_json, spent_json, stored_name
from mainspring.stores.postgres.rows import holder_row

_HOLD = """
select ok, now, until, next_at, full_at, kept, token, woken from {schema}.hold_v1(
    %(holder)b::bytea, %(names)b::text[], %(costs)s::bigint[], %(ttl)s::bigint, %(limits)s::jsonb, %(keep)s::bigint,
    %(info)b::bytea, %(fenced)s::boolean, %(now)s::bigint
)
"""
_RELEASE = """
select held, woken from {schema}.release_v1(%(holder)b::bytea, %(spent)s::jsonb, %(slow)s::bigint, %(now)s::bigint)
"""
_HOLDERS = """
select bucket, holder, token, since, until, remaining, info from {schema}.holders_v1(
    %(bucket)s::text, %(after)s::text, %(limit)s::integer, %(now)s::bigint
)
"""
_LAST_CHARACTER = chr(0x10FFFF)


async def hold(
    db: Database,
    holder: bytes,
    buckets: Sequence[Bucket],
    ttl: int,
    limits: Sequence[Limit],
    keep: int,
    *,
    info: bytes,
    fenced: bool,
) -> HoldResult:
    costs = costs_of(buckets)
    params = {
        "holder": holder, "names": list(costs), "costs": numbers(costs.values()), "ttl": ttl,
        "limits": limits_json(limits), "keep": keep, "info": info, "fenced": fenced, "now": db.now(),
    }  # fmt: skip
    ((ok, now, until, next_at, full_at, kept, token, woken),) = await db.rows(_HOLD, params)
    await db.wake(woken)
    return HoldResult(
        ok=ok,
        now=now,
        until=until,
        next_at=next_at,
        full=_name_at(buckets, list(costs), full_at),
        kept=kept,
        token=token,
    )


async def release(db: Database, holder: bytes, spent: Sequence[tuple[str, int]], slow: int) -> bool:
    params = {"holder": holder, "spent": spent_json(spent), "slow": slow, "now": db.now()}
    ((held, woken),) = await db.rows(_RELEASE, params)
    await db.wake(woken)
    return bool(held)


async def holders(db: Database, of: Bucket | str, limit: int) -> list[HolderRow]:
    first, after = (stored_name(of), None) if isinstance(of, Bucket) else (of, of + _LAST_CHARACTER)
    rows = await db.rows(_HOLDERS, {"bucket": first, "after": after, "limit": limit, "now": db.now()})
    return [holder_row(row, of.name if isinstance(of, Bucket) else row[0]) for row in rows]


def _name_at(buckets: Sequence[Bucket], names: Sequence[str], at: int | None) -> str:
    """The name of the bucket at a position of ``names``, counted from 1; empty for None."""
    if at is None:
        return ""
    return {stored_name(bucket): bucket.name for bucket in buckets}[names[at - 1]]
