"""Limits and buckets: the arguments and the replies of their scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from mainspring.breakers.records import BreakerRow
from mainspring.jobs.lanes import bucket_label
from mainspring.limits.records import Bucket, BucketRow, HolderRow, HoldResult, Limit, LimitRow

from .connection import Connection

_Kind = Literal["concurrency", "rate", "smooth", "breaker"]

_pack = msgspec.msgpack.Encoder().encode
_stored = msgspec.msgpack.Decoder(tuple[_Kind, int, int, int, int | bool, int, int]).decode


def packed(limits: Iterable[Limit]) -> bytes:
    return _pack(
        [(limit.name, limit.kind, limit.size, limit.per, limit.burst, limit.share, limit.span) for limit in limits]
    )


def needed(buckets: Iterable[Bucket]) -> list[tuple[str, str, int]]:
    """Each bucket once, gates first. Who names one twice means the dearer."""
    costs: dict[tuple[str, str], int] = {}
    for bucket in buckets:
        at = bucket.limit, bucket.key
        costs[at] = max(bucket.cost, costs.get(at, 0))
    return [(*at, costs[at]) for at in sorted(costs, key=lambda at: (at[1] != "", at))]


def labelled(buckets: Iterable[Bucket]) -> list[tuple[str, str, int, str]]:
    """The same, each with what lanes call it."""
    return [(*each, bucket_label(Bucket(*each))) for each in needed(buckets)]


def packed_buckets(buckets: Iterable[Bucket]) -> bytes:
    return _pack(needed(buckets))


def asked(buckets: Iterable[Bucket]) -> bytes:
    """As they are asked for, also twice."""
    return _pack([(bucket.limit, bucket.key, bucket.cost) for bucket in buckets])


def packed_costs(spent: Sequence[tuple[str, int]]) -> bytes:
    return _pack(spent)


async def declare(connection: Connection, limits: Sequence[Limit]) -> None:
    await _look_on(connection, await connection.run("declare", packed(limits)))


async def change(connection: Connection, script: str, limit: str, *words: str | int) -> bool:
    """``set_size`` or ``forget_limit``: whether there was such a limit."""
    known, left = await connection.run(script, limit, *words)
    await _look_on(connection, left)
    return bool(known)


async def _look_on(connection: Connection, left: int) -> None:
    """Until all who waited for the limit were looked at. If nobody comes to the end of it, ``promote`` does."""
    while left:
        left = await connection.run("reopen")


def limit_rows(stored: dict[bytes, bytes]) -> list[LimitRow]:
    return sorted((_limit_row(name.decode(), raw) for name, raw in stored.items()), key=lambda row: row.limit.name)


def _limit_row(name: str, raw: bytes) -> LimitRow:
    kind, size, per, burst, instead, share, span = _stored(raw)
    limit = Limit(name=name, kind=kind, size=size, per=per, burst=burst, share=share, span=span)
    return LimitRow(limit=limit, size=None if instead is False else instead)


def bucket_rows(reply: list[list[Any]]) -> list[BucketRow]:
    return [
        BucketRow(
            name=name.decode(),
            limit=limit.decode(),
            kind=kind.decode(),
            size=size,
            used=used,
            next_at=next_at,
            holders=tuple(holders),
            breaker=None if breaker is None else breaker_row(breaker),
        )
        for name, limit, kind, size, used, next_at, holders, breaker in reply
    ]


def breaker_row(said: list[Any]) -> BreakerRow:
    name, state, failures, calls, opened, until, error, tripped = said
    return BreakerRow(
        name=name.decode(),
        state=state.decode(),
        failures=failures,
        calls=calls,
        opened=opened,
        until=until,
        error=error.decode("utf-8", "replace"),
        tripped=tripped == 1,
    )


def taken(reply: list[Any]) -> HoldResult:
    now, has_room, until, next_at, full, kept, breakers, token = reply
    changed = tuple(map(breaker_row, breakers))
    return HoldResult(
        ok=has_room == 1, now=now, until=until, next_at=next_at, full=full.decode(), kept=kept == 1, breakers=changed,
        token=token,
    )  # fmt: skip


def guest_rows(reply: list[list[Any]], limit: int) -> list[HolderRow]:
    rows = sorted(reply, key=lambda row: (row[0], row[3], row[1]))
    return [
        HolderRow(holder=guest, bucket=bucket.decode(), token=token, since=since, until=until, left=left, info=info)
        for bucket, guest, token, since, until, left, info in rows[:limit]
    ]
