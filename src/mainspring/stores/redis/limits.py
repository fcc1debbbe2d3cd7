"""Limits and their buckets: the arguments and the replies of the scripts.

Capacity, rates and waiting lanes are in ``lua/_limits.lua``, ``_limits_rates.lua``, ``_limits_capacity.lua`` and
``_limits_waiting.lua``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from mainspring.breakers.counting import breaker_row
from mainspring.jobs.lanes import bucket_label
from mainspring.limits.records import Bucket, BucketRow, Limit, LimitRow

from .breakers import stored_breaker
from .driver.client import RedisClient

_Kind = Literal["concurrency", "rate", "smooth", "breaker"]

_pack = msgspec.msgpack.Encoder().encode
_stored = msgspec.msgpack.Decoder(tuple[_Kind, int, int, int, int | bool, int, int]).decode

# ---- arguments ----------------------------------------------------------------------------------


def pack_limits(limits: Iterable[Limit]) -> bytes:
    return _pack(
        [(limit.name, limit.kind, limit.size, limit.per, limit.burst, limit.share, limit.span) for limit in limits]
    )


def needed(buckets: Iterable[Bucket]) -> list[tuple[str, str, int]]:
    """Limit, key and cost of each bucket, unkeyed limits first. A bucket named twice counts once, at its highest
    cost."""
    costs: dict[tuple[str, str], int] = {}
    for bucket in buckets:
        at = bucket.limit, bucket.key
        costs[at] = max(bucket.cost, costs.get(at, 0))
    return [(*at, costs[at]) for at in sorted(costs, key=lambda at: (at[1] != "", at))]


def labelled(buckets: Iterable[Bucket]) -> list[tuple[str, str, int, str]]:
    """The same, each with its label in the names of lanes."""
    return [(*each, bucket_label(Bucket(*each))) for each in needed(buckets)]


def pack_buckets(buckets: Iterable[Bucket]) -> bytes:
    return _pack(needed(buckets))


# ---- calls --------------------------------------------------------------------------------------


async def declare_limits(client: RedisClient, limits: Sequence[Limit]) -> None:
    await _recheck(client, await client.run("declare_limits", pack_limits(limits)))


async def set_limit_size(client: RedisClient, limit: str, size: int | None) -> bool:
    known, left = await client.run("set_limit_size", limit, "" if size is None else size)
    await _recheck(client, left)
    return bool(known)


async def forget_limit(client: RedisClient, limit: str) -> bool:
    known, left = await client.run("forget_limit", limit)
    await _recheck(client, left)
    return bool(known)


async def _recheck(client: RedisClient, left: int) -> None:
    """Recheck the lanes that wait for a changed limit, in slices. ``promote`` does the rest if this caller stops."""
    while left:
        left = await client.run("recheck_limits")


async def limits(client: RedisClient) -> list[LimitRow]:
    stored = await client.command("HGETALL", client.key("limits"))
    return sorted((_limit_row(name.decode(), raw) for name, raw in stored.items()), key=lambda row: row.limit.name)


def _limit_row(name: str, raw: bytes) -> LimitRow:
    kind, size, per, burst, instead, share, span = _stored(raw)
    limit = Limit(name=name, kind=kind, size=size, per=per, burst=burst, share=share, span=span)
    return LimitRow(limit=limit, size=None if instead is False else instead)


async def buckets(client: RedisClient, buckets: Sequence[Bucket]) -> list[BucketRow]:
    """One row for each bucket that is asked for, also if it is asked for twice."""
    asked = _pack([(bucket.limit, bucket.key, bucket.cost) for bucket in buckets])
    return [_bucket_row(*row) for row in await client.run("buckets", asked)]


def _bucket_row(
    name: bytes,
    limit: bytes,
    kind: bytes,
    size: int,
    used: int,
    next_at: int | None,
    holders: list[bytes],
    breaker: Any,
) -> BucketRow:
    return BucketRow(
        name=name.decode(),
        limit=limit.decode(),
        kind=kind.decode(),
        size=size,
        used=used,
        next_at=next_at,
        holders=tuple(holders),
        breaker=None if breaker is None else breaker_row(stored_breaker(breaker)),
    )
