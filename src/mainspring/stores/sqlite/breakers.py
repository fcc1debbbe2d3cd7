"""Breakers: their rows, which are exchanged by compare-and-set. The rules are in :mod:`mainspring.breakers.counting`.

How many jobs a breaker lets through is in :class:`.limits.capacity.BreakerCapacity`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from mainspring.breakers.records import FOREVER, BreakerSwap, StoredBreaker, is_breaker

if TYPE_CHECKING:
    from .driver.database import SqliteDatabase
    from .driver.transaction import Tx

BREAKER = "breaker"
"""The kind of a limit that is a breaker."""


def read_breaker(tx: Tx, name: str) -> StoredBreaker | None:
    """None for a breaker that is not declared."""
    row = tx.first("breaker", (name,))
    return None if row is None else StoredBreaker(tx.now, *row)


async def swap_breakers(database: SqliteDatabase, swaps: Sequence[BreakerSwap]) -> list[StoredBreaker]:
    """A read does not need the write lock."""
    if any(swap.rev for swap in swaps):
        return await database.write(lambda tx: swap_in(tx, swaps))
    return await database.read(lambda tx: swap_in(tx, swaps))


def swap_in(tx: Tx, swaps: Sequence[BreakerSwap]) -> list[StoredBreaker]:
    """Exchange or read the rows of these breakers in a transaction."""
    for swap in swaps:
        if swap.rev:
            _write(tx, swap)
    found = [read_breaker(tx, swap.name) for swap in swaps]
    return [breaker for breaker in found if breaker is not None]


def _write(tx: Tx, swap: BreakerSwap) -> None:
    until = None if swap.open_for is None else min(tx.now + swap.open_for, FOREVER) if swap.open_for else 0
    values = {**msgspec.structs.asdict(swap), "until": until, "now": tx.now}
    written = tx.run("swap_breaker" if swap.expected else "add_breaker", values)
    if written and swap.open_for is not None:
        wake_waiting_queues(tx, swap.name)


def wake_freed_probes(tx: Tx) -> None:
    """Wake the queues that wait for a half open breaker whose probe has ended."""
    for name in sorted(filter(is_breaker, tx.released)):
        if tx.first("breaker_is_half_open", (name, tx.now)):
            wake_waiting_queues(tx, name)


def wake_waiting_queues(tx: Tx, bucket: str) -> None:
    """Wake the queues in which a job waits for this breaker or unkeyed limit."""
    tx.woken.update(queue for (queue,) in tx.all("take_waiting_queues", (bucket,)))
