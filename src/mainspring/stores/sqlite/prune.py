"""Let go of what retention no longer asks for.

What is old is looked up by reading, however much has to be passed over; it is deleted in short turns of writing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mainspring.jobs.records import Retention
from mainspring.stores.base import NUMBERS_KEPT

from .act import SLICE, forget
from .parking import settle
from .rooms import Rooms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .tx import Row, Tx

REMEMBERED = 86_400_000_000
"""Microseconds for which the repeat of a batch and the number of a schedule that went are remembered: nothing holds a
first try back for a day."""

IDLE = 200
"""Lanes and rates that are let go at a time."""
_names = msgspec.json.Decoder(tuple[str, ...]).decode


class Old(NamedTuple):
    """A job that can go, if it is still the one that ended then: somebody may have retried it meanwhile."""

    table: str
    job: bytes
    finished: int


def old(tx: Tx, retention: Retention, limit: int) -> list[Old]:
    """Up to ``limit`` jobs past their retention whose unique window is not running: the oldest first."""
    horizons = (
        ("old_by_keep", "finished", tx.now),
        ("old_finished", "finished", _horizon(tx, "finished", retention.keep, retention.keep_count, retention)),
        ("old_dead", "dead", _horizon(tx, "dead", retention.keep_dead, retention.keep_dead_count, retention)),
    )
    found: list[Old] = []
    for name, table, before in horizons:
        rows = tx.all(name, {"before": before, "now": tx.now, "limit": max(limit - len(found), 0)})
        found += [Old(table, job, finished) for job, finished in rows]
    return found


def _horizon(tx: Tx, table: str, keep: int, count: int, retention: Retention) -> int:
    """Jobs that ended before this go: by age, or because there are too many, but none that is too young."""
    before = max(tx.now - keep, _crowd(tx, table, count))
    return min(before, tx.now - retention.keep_at_least)


def _crowd(tx: Tx, table: str, count: int) -> int:
    """When the last of the ``count`` youngest ended; of those that ended with it none is too many."""
    if count <= 0:
        return tx.now + 1
    last = tx.first("last_kept_" + table, (count - 1,))
    return last[0] if last is not None else 0


def drop(tx: Tx, jobs: Sequence[Old]) -> tuple[int, int]:
    """Forget the first of these, for about 2 ms: how many were looked at, how many went."""
    until = time.perf_counter() + SLICE
    looked = gone = 0
    for table, job, finished in jobs:
        looked += 1
        if tx.first("still_" + table, (job, finished)):
            forget(tx, job, table)
            gone += 1
        if time.perf_counter() > until:
            break
    return looked, gone


def tidy(tx: Tx, retention: Retention) -> None:
    """Workers long lost, batches long repeated, schedules long gone, groups without lanes, rates and guests that are
    over, old numbers."""
    tx.run("drop_workers", (tx.now - retention.keep_workers,))
    tx.run("drop_retried", (tx.now - REMEMBERED,))
    tx.run("drop_schedules", (tx.now - REMEMBERED,))
    tx.run("drop_groups")
    tx.run("drop_clocks")
    tx.run("drop_rates", (tx.now,))
    tx.run("drop_guests", (tx.now,))
    tx.run("drop_numbers", (tx.now - NUMBERS_KEPT,))


class Idle(NamedTuple):
    """Lanes without jobs, with their priority and keys, and buckets of rates whose last window is over."""

    lanes: list[Row]
    buckets: list[Row]


def idle(tx: Tx) -> Idle:
    return Idle(tx.all("empty_lanes", (IDLE,)), tx.all("old_starts", (tx.now, IDLE)))


def drop_idle(tx: Tx, found: Idle) -> None:
    """Each is looked at again; the places that a lane was in line for go to others."""
    for lane, rank, buckets in found.lanes:
        if tx.run("drop_lane", (lane, rank)):
            tx.freed.update(_names(buckets))
    tx.cursor.executemany(tx.sql["forget_starts"], found.buckets)
    settle(tx, Rooms(tx))
