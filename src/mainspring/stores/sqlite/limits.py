"""Limits by name: declared by code, changed at run time, looked at by people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mainspring.breakers.records import is_breaker
from mainspring.limits.records import Bucket, BucketRow, Limit, LimitRow

from .parking import stir
from .room import Places, Room
from .rooms import Rooms
from .switches import Guard

if TYPE_CHECKING:
    from .tx import Tx


def add_limits(tx: Tx, limits: Sequence[Limit]) -> None:
    """Make those that are not there."""
    tx.cursor.executemany(tx.sql["add_limit"], [_values(limit) for limit in limits])


def _values(limit: Limit) -> tuple[str, str, int, int, int, int, int]:
    return limit.name, limit.kind, limit.size, limit.per, limit.burst, limit.share, limit.span


def declare(tx: Tx, limits: Sequence[Limit]) -> None:
    for limit in limits:
        if tx.run("set_limit", _values(limit)) > 0:
            stir(tx, limit.name)


def set_size(tx: Tx, limit: str, size: int | None) -> bool:
    if not tx.run("override", (size, limit)):
        return False
    stir(tx, limit)
    return True


def forget_limit(tx: Tx, limit: str) -> bool:
    if not tx.run("forget_limit", (limit,)):
        return False
    if is_breaker(limit):
        tx.run("drop_breaker", (limit,))
    stir(tx, limit)
    return True


def stir_on(tx: Tx) -> bool:
    """Go on opening the lanes that wait for limits which were changed; True while there are more."""
    return any([stir(tx, limit) for (limit,) in tx.all("stirred")])  # noqa: C419  # each of them


def limits(tx: Tx) -> list[LimitRow]:
    return [
        LimitRow(
            limit=Limit(name=name, kind=kind, size=size, per=per, burst=burst, share=share, span=span), size=override
        )
        for name, kind, size, per, burst, share, span, override in tx.all("limits")
    ]


def buckets(tx: Tx, asked: Sequence[Bucket]) -> list[BucketRow]:
    rooms = Rooms(tx)
    return [_row(tx, rooms, each) for each in asked if rooms.size_of(each.name) is not None]


def _used(tx: Tx, room: Room, name: str) -> int:
    """While all places are taken, the next one that is kept for guests is none of them."""
    over = isinstance(room, Places) and room.used > room.size and tx.first("has_kept_place", (name, tx.now))
    return room.used - 1 if over else room.used


def _row(tx: Tx, rooms: Rooms, bucket: Bucket) -> BucketRow:
    room = rooms[bucket.name]
    return BucketRow(
        name=bucket.name,
        limit=bucket.limit,
        kind=room.kind,
        size=room.size,
        used=_used(tx, room, bucket.name),
        next_at=None if room.fits(bucket.cost) else room.when(bucket.cost),
        holders=tuple(job for job, _ in tx.all("holders", (bucket.name, rooms.running.names(bucket.name)))),
        breaker=room.switch if isinstance(room, Guard) else None,
    )
