"""Places outside of a claim: held for a time, by whoever runs no job."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mainspring.limits.records import HOLDER_REST, Bucket, HolderRow, HoldResult, Limit

from .leaving import correct_costs
from .limits import add_limits
from .parking import look_again, settle
from .places import costs_of
from .room import Places
from .rooms import Rooms

if TYPE_CHECKING:
    from .tx import Tx

_encode = msgspec.json.encode


class Asked(NamedTuple):
    """What a guest asks for."""

    guest: bytes
    buckets: Sequence[Bucket]
    ttl: int
    limits: Sequence[Limit]
    keep: int
    info: bytes
    fenced: bool


def take(tx: Tx, asked: Asked) -> HoldResult:
    """Room in all of the buckets or in none; who has places keeps them for longer."""
    add_limits(tx, asked.limits)
    guest, until = asked.guest, tx.now + asked.ttl
    renewed = tx.all("renew_guest", (until, guest, tx.now))
    if renewed:
        token, until = renewed[0]
        return HoldResult(ok=True, now=tx.now, until=until, token=token)
    tx.run("drop_guest", (guest,))
    if not asked.buckets:
        return HoldResult(ok=False, now=tx.now)
    costs = costs_of(asked.buckets)
    kept = _no_more_kept(tx, costs)
    rooms = Rooms(tx)
    stuck = rooms.stuck(costs, costs)
    if stuck:
        is_kept = _keep(tx, rooms, stuck, kept, asked.keep)
        moments = [rooms[name].when(costs[name]) for name in stuck]
        known = [at for at in moments if at is not None]
        next_at = max(known) if len(known) == len(stuck) else None
        return HoldResult(ok=False, now=tx.now, next_at=next_at, full=stuck[0], kept=is_kept)
    rooms.take(costs, costs)
    rooms.write()
    token = _number(tx, costs) if asked.fenced else 0
    rows = [(name, guest, until, cost, token, tx.now, asked.info) for name, cost in costs.items()]
    tx.cursor.executemany(tx.sql["add_guest"], rows)
    return HoldResult(ok=True, now=tx.now, until=until, breakers=tuple(tx.news), token=token)


def _no_more_kept(tx: Tx, names: Collection[str]) -> dict[str, int]:
    """A place that is kept for guests is there for this one; where there are such places, and until when."""
    found = tx.all("kept_places", (_encode(list(names)).decode(),))
    return {name: until for name, until in found if until > tx.now}


def _keep(tx: Tx, rooms: Rooms, stuck: Sequence[str], kept: dict[str, int], keep: int) -> bool:
    """The next places in these are kept, and those that were; whether there is one in each."""
    if keep > 0 and all(isinstance(rooms[name], Places) for name in stuck):
        asked = [name for name in stuck if not tx.first("resting", (name, tx.now))]
        for name in asked:
            if name not in kept:
                look_again(tx, name)
        kept |= {name: max(kept.get(name, 0), tx.now + keep) for name in asked}
    tx.cursor.executemany(tx.sql["keep_place"], kept.items())
    return kept.keys() >= set(stuck)


def give(tx: Tx, guest: bytes, spent: Sequence[tuple[str, int]], slow: int) -> bool:
    """False for one whose time is over: it holds nothing that could be given."""
    held = {name: cost for name, cost, until in tx.all("guest", (guest,)) if until > tx.now}
    tx.run("drop_guest", (guest,))
    if held:
        tx.cursor.executemany(tx.sql["rest"], [(name, tx.now + HOLDER_REST) for name in _no_more_kept(tx, held)])
    correct_costs(tx, held, spent, slow)
    tx.freed.update(held)
    settle(tx, Rooms(tx))
    return bool(held)


def guests(tx: Tx, of: Bucket | str, limit: int) -> list[HolderRow]:
    if isinstance(of, Bucket):
        rows = tx.all("guests_in", (of.name, tx.now, limit))
    else:
        rows = tx.all("guests_from", (of, of + chr(0x10FFFF), tx.now, limit))
    return [
        HolderRow(holder=guest, bucket=bucket, token=token, since=since, until=until, left=until - tx.now, info=info)
        for bucket, guest, token, since, until, info in rows
    ]


def _number(tx: Tx, buckets: Iterable[str]) -> int:
    """Larger than any that these buckets gave."""
    token = tx.now
    for name in buckets:
        last = tx.first("last_number", (name,))
        token = max(token, 0 if last is None else last[0] + 1)
    tx.cursor.executemany(tx.sql["put_number"], [(name, token) for name in buckets])
    return token
