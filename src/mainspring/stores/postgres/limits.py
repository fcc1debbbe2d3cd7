"""Limits and their buckets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from mainspring.common.text import storable
from mainspring.limits.records import Bucket, BucketRow, Limit, LimitRow
from mainspring.stores.postgres.driver.arrays import INT_MAX, numbers
from mainspring.stores.postgres.driver.database import Database
from mainspring.stores.postgres.rows import bucket_row, limit_row

_DECLARE = "select {schema}.declare_limits_v1(%(limits)s::jsonb)"
_SET_SIZE = "select {schema}.set_limit_size_v1(%(limit)s::text, %(size)s::bigint)"
_FORGET = "select {schema}.forget_limit_v1(%(limit)s::text)"
_RECHECK = "select woken, more from {schema}.recheck_changed_limits_v1()"
_LIMITS = "select name, kind, size, per, burst, share, span, set_size from {schema}.limits order by name"
_BUCKETS = """
select at, kind, size, used, next_at, holders, breaker
from {schema}.buckets_v1(%(names)b::text[], %(costs)s::bigint[], %(now)s::bigint)
"""
_LONGEST_NAME: Final = 1000
"""Bytes of a name that an index takes."""


async def declare_limits(db: Database, limits: Sequence[Limit]) -> None:
    if limits:
        await _change(db, _DECLARE, {"limits": limits_json(limits)})


async def set_limit_size(db: Database, limit: str, size: int | None) -> bool:
    return await _change(db, _SET_SIZE, {"limit": limit, "size": size})


async def forget_limit(db: Database, limit: str) -> bool:
    return await _change(db, _FORGET, {"limit": limit})


async def limits(db: Database) -> list[LimitRow]:
    return [limit_row(row) for row in await db.rows(_LIMITS)]


async def buckets(db: Database, buckets: Sequence[Bucket]) -> list[BucketRow]:
    names, costs = [stored_name(bucket) for bucket in buckets], numbers(bucket.cost for bucket in buckets)
    rows = await db.rows(_BUCKETS, {"names": names, "costs": costs, "now": db.now()})
    return [bucket_row(buckets[at - 1], row) for at, *row in rows]


async def _change(db: Database, text: str, params: dict[str, object]) -> bool:
    """Change a limit and recheck the lanes that wait for it; False if there is no such limit.

    The first statement makes the change and rechecks the first lanes. Promotions recheck the other lanes if this call
    is cut short.
    """
    known = await write_and_wake(db, text, params)
    more = known
    while more:
        ((woken, more),) = await db.rows(_RECHECK)
        await db.wake(woken)
    return known


async def write_and_wake(db: Database, text: str, params: dict[str, object]) -> bool:
    """Run a statement that returns queues to wake, or null if there is nothing to change; False for null."""
    ((woken,),) = await db.rows(text, params)
    await db.wake(woken or ())
    return woken is not None


# ---- how buckets are sent and stored ------------------------------------------------------------------


def stored_name(bucket: Bucket) -> str:
    """The name of a bucket in the tables: a key that is too long, or cannot be stored, is hashed."""
    name = bucket.name
    if storable(name) and len(name.encode()) <= _LONGEST_NAME:
        return name
    return f"{bucket.limit}=~{hashlib.blake2b(name.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"


def costs_of(buckets: Iterable[Bucket]) -> dict[str, int]:
    """What a start costs, by stored name, in the order of names.

    A bucket that is named twice counts once, with the highest cost named.
    """
    found: dict[str, int] = {}
    for bucket in buckets:
        name = stored_name(bucket)
        found[name] = max(found.get(name, 0), bucket.cost)
    return dict(sorted(found.items()))


def limits_json(limits: Sequence[Limit]) -> str | None:
    """Limits as statements take them, each name once, the last one; None for none."""
    return msgspec.json.encode(list({limit.name: limit for limit in limits}.values())).decode() if limits else None


def spent_json(spent: Sequence[tuple[str, int]]) -> str | None:
    """Real costs by limit, as statements take them; None for none."""
    return msgspec.json.encode(dict(spent)).decode() if spent else None


def is_storable_use(spent: Sequence[tuple[str, int]], slow: int) -> bool:
    return abs(slow) < INT_MAX and all(storable(limit) and abs(cost) < INT_MAX for limit, cost in spent)
