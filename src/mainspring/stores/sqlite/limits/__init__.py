"""Limits by name: declared by code, changed at run time, read by users.

A limit has buckets: one without a key, or one for each key. A job names buckets and starts only while each of them has
capacity for it. The size of a bucket is that of its limit at the moment of the claim.

| module | holds |
|---|---|
| ``capacity``, ``rates`` | the capacity of one bucket, by the kind of its limit |
| ``buckets`` | the capacities of a transaction by bucket name |
| ``waiting`` | lanes with keys that are parked on a bucket without capacity; releasing capacity opens them |

A running job whose limits have no keys uses them by its own row (``FLAG_UNKEYED_ONLY``), so that a claim writes nothing
else. Any other limited job has a row in ``job_holds`` for each bucket. Capacity outside of a claim is in
:mod:`..holders`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mainspring.breakers.counting import breaker_row
from mainspring.breakers.records import is_breaker
from mainspring.limits.records import Bucket, BucketRow, Limit, LimitRow

from .buckets import Capacities
from .capacity import BreakerCapacity, BucketCapacity, ConcurrencyCapacity
from .waiting import recheck_limit, recheck_limits

if TYPE_CHECKING:
    from mainspring.stores.sqlite.driver.database import SqliteDatabase
    from mainspring.stores.sqlite.driver.transaction import Tx


def add_limits(tx: Tx, limits: Sequence[Limit]) -> None:
    """Store the limits that do not exist yet."""
    tx.cursor.executemany(tx.sql["add_limit"], [_values(limit) for limit in limits])


def _values(limit: Limit) -> tuple[str, str, int, int, int, int, int]:
    return limit.name, limit.kind, limit.size, limit.per, limit.burst, limit.share, limit.span


# ---- contract methods: changes ---------------------------------------------------------------------------


async def declare_limits(database: SqliteDatabase, limits: Sequence[Limit]) -> None:
    await _change(database, lambda tx: _declare(tx, limits))


async def set_limit_size(database: SqliteDatabase, limit: str, size: int | None) -> bool:
    return await _change(database, lambda tx: _set_size(tx, limit, size))


async def forget_limit(database: SqliteDatabase, limit: str) -> bool:
    return await _change(database, lambda tx: _forget(tx, limit))


async def _change(database: SqliteDatabase, work: Callable[[Tx], bool]) -> bool:
    """Run the change, then open parked lanes in slices. A promotion opens the rest if the caller is interrupted."""
    known = await database.write(work)
    while await database.write(recheck_limits):
        pass
    return known


def _declare(tx: Tx, limits: Sequence[Limit]) -> bool:
    for limit in limits:
        if tx.run("set_limit", _values(limit)) > 0:
            recheck_limit(tx, limit.name)
    return True


def _set_size(tx: Tx, limit: str, size: int | None) -> bool:
    if not tx.run("override_limit", (size, limit)):
        return False
    recheck_limit(tx, limit)
    return True


def _forget(tx: Tx, limit: str) -> bool:
    if not tx.run("drop_limit", (limit,)):
        return False
    if is_breaker(limit):
        tx.run("drop_breaker", (limit,))
    recheck_limit(tx, limit)
    return True


# ---- contract methods: reads -----------------------------------------------------------------------------


def limits(tx: Tx) -> list[LimitRow]:
    return [
        LimitRow(
            limit=Limit(name=name, kind=kind, size=size, per=per, burst=burst, share=share, span=span), size=override
        )
        for name, kind, size, per, burst, share, span, override in tx.all("limits")
    ]


def buckets(tx: Tx, buckets: Sequence[Bucket]) -> list[BucketRow]:
    capacities = Capacities(tx)
    return [_row(tx, capacities, each) for each in buckets if capacities.limit_of(each.name) is not None]


def _row(tx: Tx, capacities: Capacities, bucket: Bucket) -> BucketRow:
    capacity = capacities[bucket.name]
    jobs = tx.all("jobs_in_bucket", (bucket.name, capacities.running.lane_names(bucket.name)))
    return BucketRow(
        name=bucket.name,
        limit=bucket.limit,
        kind=capacity.kind,
        size=capacity.size,
        used=_used(tx, capacity, bucket.name),
        next_at=None if capacity.fits(bucket.cost) else capacity.fits_at(bucket.cost),
        holders=tuple(job for job, _ in jobs),
        breaker=breaker_row(capacity.stored) if isinstance(capacity, BreakerCapacity) else None,
    )


def _used(tx: Tx, capacity: BucketCapacity, name: str) -> int:
    """While the bucket is full, a reservation of its next free capacity is not part of what is used."""
    is_over = isinstance(capacity, ConcurrencyCapacity) and capacity.used > capacity.size
    return capacity.used - 1 if is_over and tx.first("has_reservation", (name, tx.now)) else capacity.used
