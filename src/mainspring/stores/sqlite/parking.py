"""Lanes with keys that wait, out of the line, on a bucket without room.

For each bucket with so many places free, so many lanes of each group that name it stand in line, or none is parked on
it: whoever frees places opens lanes, and whoever takes one out of the line without using a place opens another
(:mod:`.keyed`). By group, since nobody may be asking for the lanes of another. The first by priority and the first by
age are opened, as a claim may ask for either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mainspring.breakers.records import is_breaker

from .breakers import hear_all
from .places import queue_of
from .rooms import Rooms

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .tx import Tx

MANY = 100
"""Lanes that are opened for one bucket and group at a time."""
SLICE = 200
"""Lanes that are opened in one step of work that has no other end."""
BELOW_ALL = -(1 << 40)
_encode = msgspec.json.encode


class Parked(NamedTuple):
    """A row, as the statements return it."""

    team: str
    rank: int
    seq: int
    lane: str
    buckets: str
    vtime: float | None


def settle(tx: Tx, rooms: Rooms) -> None:
    """Jobs and guests have left buckets: who waited for their places is woken, or stands in line again."""
    hear_all(tx, rooms)
    for name in _waited_for(tx):
        size = rooms.size_of(name)
        if size is None or size.kind == "concurrency":  # no end gives a start back
            let_in(tx, rooms, name)
    tx.freed.clear()


def _waited_for(tx: Tx) -> list[str]:
    """The buckets that somebody has left but breakers, and those with a key on which no lane is parked."""
    keyed = [name for name in tx.freed if "=" in name]
    waited = {name for (name,) in tx.all("waited_for", (_encode(keyed).decode(),))} if keyed else ()
    return sorted(name for name in tx.freed if name in waited or not ("=" in name or is_breaker(name)))


def let_in(tx: Tx, rooms: Rooms, bucket: str) -> None:
    """There may be room in the bucket."""
    if "=" in bucket:
        found = [Parked(*row) for row in tx.all("parked", (bucket, MANY))]
        n = min(rooms[bucket].most(), MANY) if found else 0
        if n > 0:
            _open_by_group(tx, bucket, found, n)
    elif rooms[bucket].most() > 0:
        tx.woken.update(queue for (queue,) in tx.all("waits", (bucket,)))


def look_again(tx: Tx, bucket: str) -> None:
    """Whoever waits for the bucket is to learn when there may be room: one of each group is enough."""
    if "=" in bucket:
        _open_by_group(tx, bucket, [Parked(*row) for row in tx.all("parked", (bucket, MANY))], 1)
    else:
        tx.woken.update(queue for (queue,) in tx.all("waits", (bucket,)))


def _open_by_group(tx: Tx, bucket: str, found: list[Parked], n: int) -> None:
    groups = sorted({row.team for row in found})
    if len(found) < MANY:
        for group in groups:
            open_lanes(tx, _first([row for row in found if row.team == group], n))
        return
    group = ""
    while following := tx.first("parked_group", (bucket, group)):
        (group,) = following
        open_lanes(tx, first_parked(tx, bucket, group, n))


def first_parked(tx: Tx, bucket: str, group: str, n: int) -> list[Parked]:
    """The ``n`` lanes of a group parked on the bucket that come first, by priority and by age."""
    found: list[Parked] = []
    rank = BELOW_ALL
    while lower := tx.first("parked_rank", (bucket, group, rank)):
        (rank,) = lower
        found += [Parked(*row) for row in tx.all("parked_at_rank", (bucket, group, rank, n))]
    return _first(found, n)


def _first(rows: list[Parked], n: int) -> list[Parked]:
    by_age = sorted(rows, key=lambda row: row.seq)[:n]
    return list(dict.fromkeys(rows[:n] + by_age))


def open_lanes(tx: Tx, rows: Iterable[Parked]) -> None:
    _open(tx, [(row.lane, row.rank) for row in rows])


def _open(tx: Tx, lanes: Sequence[tuple[str, int]]) -> None:
    tx.cursor.executemany(tx.sql["open_lane"], lanes)
    tx.woken.update(queue_of(lane) for lane, _ in lanes)


def open_due(tx: Tx, group: str) -> None:
    """Lanes whose moment has come stand in line again."""
    due = tx.all("due_lanes", (group, tx.now, SLICE))
    if due:
        _open(tx, due)


def stir(tx: Tx, limit: str) -> bool:
    """Look again at whatever waits for a limit: True if there is more to open."""
    tx.woken.update(queue for (queue,) in tx.all("waits", (limit,)))
    lanes = tx.all("parked_on_limit", (limit + "=", limit + ">", SLICE))
    _open(tx, lanes)
    more = len(lanes) == SLICE
    tx.run("stir" if more else "stilled", (limit,))
    return more
