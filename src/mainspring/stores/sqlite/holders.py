"""Capacity outside of a claim, held for a time: limiters, locks, semaphores and elections."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mainspring.limits.records import HOLDER_REST, Bucket, HolderRow, HoldResult, Limit

from .lanes import costs_of
from .limits import add_limits
from .limits.buckets import Capacities
from .limits.capacity import ConcurrencyCapacity
from .limits.waiting import correct_costs, recheck_bucket, settle_released

if TYPE_CHECKING:
    from .driver.transaction import Tx

ABOVE_ALL_TEXTS = chr(0x10FFFF)
_encode = msgspec.json.encode


class HoldRequest(NamedTuple):
    """The arguments of :meth:`mainspring.stores.base.Store.hold`."""

    holder: bytes
    buckets: Sequence[Bucket]
    ttl: int
    limits: Sequence[Limit]
    keep: int
    info: bytes
    fenced: bool


def hold(tx: Tx, request: HoldRequest) -> HoldResult:
    """Take capacity in all of the buckets or in none. A holder that has capacity already keeps it for longer."""
    add_limits(tx, request.limits)
    renewed = tx.all("renew_holder", (tx.now + request.ttl, request.holder, tx.now))
    if renewed:
        token, until = renewed[0]
        return HoldResult(ok=True, now=tx.now, until=until, token=token)
    tx.run("drop_holder", (request.holder,))
    if not request.buckets:
        return HoldResult(ok=False, now=tx.now)
    costs = costs_of(request.buckets)
    reserved = _drop_reservations(tx, costs)
    capacities = Capacities(tx)
    full = capacities.full(costs, costs)
    if full:
        return _refuse(tx, request, capacities, full, reserved)
    return _take(tx, request, capacities, costs)


def _take(tx: Tx, request: HoldRequest, capacities: Capacities, costs: dict[str, int]) -> HoldResult:
    capacities.take(costs, costs)
    capacities.write()
    token = _next_fencing_token(tx, costs) if request.fenced else 0
    until = tx.now + request.ttl
    rows = [(name, request.holder, until, cost, token, tx.now, request.info) for name, cost in costs.items()]
    tx.cursor.executemany(tx.sql["add_holder"], rows)
    return HoldResult(ok=True, now=tx.now, until=until, token=token)


def _refuse(
    tx: Tx, request: HoldRequest, capacities: Capacities, full: list[str], reserved: dict[str, int]
) -> HoldResult:
    is_kept = _reserve(tx, capacities, full, reserved, request.keep)
    costs = costs_of(request.buckets)
    moments = [capacities[name].fits_at(costs[name]) for name in full]
    known = [at for at in moments if at is not None]
    next_at = max(known) if len(known) == len(full) else None
    return HoldResult(ok=False, now=tx.now, next_at=next_at, full=full[0], kept=is_kept)


def _drop_reservations(tx: Tx, names: Collection[str]) -> dict[str, int]:
    """Capacity that is reserved for holders is there for this one. Returns the reserved buckets and until when."""
    found = tx.all("drop_reservations", (_encode(list(names)).decode(),))
    return {name: until for name, until in found if until > tx.now}


def _reserve(tx: Tx, capacities: Capacities, full: Sequence[str], reserved: dict[str, int], keep: int) -> bool:
    """Reserve the next free capacity in the full buckets, and reserve again what was reserved before.

    Returns whether every full bucket has a reservation.
    """
    if keep > 0 and all(isinstance(capacities[name], ConcurrencyCapacity) for name in full):
        wanted = [name for name in full if not tx.first("reservations_are_paused", (name, tx.now))]
        for name in wanted:
            if name not in reserved:
                recheck_bucket(tx, name)
        reserved |= {name: max(reserved.get(name, 0), tx.now + keep) for name in wanted}
    tx.cursor.executemany(tx.sql["add_reservation"], reserved.items())
    return reserved.keys() >= set(full)


def _next_fencing_token(tx: Tx, buckets: Iterable[str]) -> int:
    """A number that is larger than every token of these buckets before."""
    token = tx.now
    for name in buckets:
        last = tx.first("last_fencing_token", (name,))
        token = max(token, 0 if last is None else last[0] + 1)
    tx.cursor.executemany(tx.sql["put_fencing_token"], [(name, token) for name in buckets])
    return token


def release(tx: Tx, holder: bytes, spent: Sequence[tuple[str, int]], slow: int) -> bool:
    """Release the capacity of a holder. False if its time is over: then it holds nothing."""
    held = {name: cost for name, cost, until in tx.all("buckets_of_holder", (holder,)) if until > tx.now}
    tx.run("drop_holder", (holder,))
    if held:
        pauses = [(name, tx.now + HOLDER_REST) for name in _drop_reservations(tx, held)]
        tx.cursor.executemany(tx.sql["pause_reservations"], pauses)
    correct_costs(tx, held, spent, slow)
    tx.released.update(held)
    settle_released(tx, Capacities(tx))
    return bool(held)


def holders(tx: Tx, of: Bucket | str, limit: int) -> list[HolderRow]:
    if isinstance(of, Bucket):
        rows = tx.all("holders_in_bucket", (of.name, tx.now, limit))
    else:
        rows = tx.all("holders_by_prefix", (of, of + ABOVE_ALL_TEXTS, tx.now, limit))
    return [
        HolderRow(holder=holder, bucket=bucket, token=token, since=since, until=until, left=until - tx.now, info=info)
        for bucket, holder, token, since, until, info in rows
    ]
