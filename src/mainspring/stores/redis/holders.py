"""Holders: capacity outside of a claim, for limiters and locks. See ``lua/_holders.lua``."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.limits.records import Bucket, HolderRow, HoldResult, Limit

from .driver.client import RedisClient
from .limits import pack_buckets, pack_limits

_pack = msgspec.msgpack.Encoder().encode


async def hold(
    client: RedisClient,
    holder: bytes,
    buckets: Sequence[Bucket],
    ttl: int,
    limits: Sequence[Limit],
    keep: int,
    *,
    info: bytes,
    fenced: bool,
) -> HoldResult:
    words = pack_buckets(buckets), pack_limits(limits), keep, info, int(fenced)
    now, ok, until, next_at, full, kept, token = await client.run("hold", holder, ttl, *words)
    return HoldResult(
        ok=ok == 1,
        now=now,
        until=until,
        next_at=next_at,
        full=full.decode(),
        kept=kept == 1,
        token=token,
    )


async def release(client: RedisClient, holder: bytes, spent: Sequence[tuple[str, int]], slow: int) -> bool:
    return bool(await client.run("release", holder, _pack(spent), slow))


async def holders(client: RedisClient, of: Bucket | str, limit: int) -> list[HolderRow]:
    """By bucket, then by the beginning of the hold."""
    words = (of.name, "") if isinstance(of, Bucket) else ("", of)
    rows = sorted(await client.run("holders", *words), key=lambda row: (row[0], row[3], row[1]))
    return [
        HolderRow(holder=holder, bucket=bucket.decode(), token=token, since=since, until=until, left=left, info=info)
        for bucket, holder, token, since, until, left, info in rows[:limit]
    ]
