"""Places outside of a claim: held for a time, by whoever runs no job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mainspring.records import Bucket, Limit, Taken

from .leaving import correct_costs
from .limits import add_limits
from .parking import settle
from .places import costs_of
from .rooms import Rooms

if TYPE_CHECKING:
    from .tx import Tx


def take(tx: Tx, guest: bytes, buckets: Sequence[Bucket], ttl: int, limits: Sequence[Limit]) -> Taken:
    """Room in all of the buckets or in none; who has places keeps them for longer."""
    add_limits(tx, limits)
    until = tx.now + ttl
    if tx.run("renew_guest", (until, guest, tx.now)) > 0:
        return Taken(ok=True, now=tx.now, until=until)
    tx.run("drop_guest", (guest,))
    rooms, costs = Rooms(tx), costs_of(buckets)
    stuck = rooms.stuck(costs, costs)
    if stuck:
        moments = [rooms[name].when(costs[name]) for name in stuck]
        known = [at for at in moments if at is not None]
        return Taken(ok=False, now=tx.now, next_at=max(known) if len(known) == len(stuck) else None, full=stuck[0])
    rooms.take(costs, costs)
    rooms.write()
    tx.cursor.executemany(tx.sql["add_guest"], [(name, guest, until, cost) for name, cost in costs.items()])
    return Taken(ok=True, now=tx.now, until=until, breakers=tuple(tx.news))


def give(tx: Tx, guest: bytes, spent: Sequence[tuple[str, int]], slow: int) -> bool:
    """False for one whose time is over: it holds nothing that could be given."""
    held = {name: cost for name, cost, until in tx.all("guest", (guest,)) if until > tx.now}
    tx.run("drop_guest", (guest,))
    correct_costs(tx, held, spent, slow)
    tx.freed.update(held)
    settle(tx, Rooms(tx))
    return bool(held)
