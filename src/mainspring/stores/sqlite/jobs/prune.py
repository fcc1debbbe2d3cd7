"""Delete what retention does not keep.

Old jobs are found by reading, however many rows have to be passed over. They are deleted in short write transactions.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mainspring.jobs.records import Retention
from mainspring.stores.base import NUMBERS_KEPT
from mainspring.stores.shared.constants import DAY
from mainspring.stores.sqlite.limits.buckets import Capacities
from mainspring.stores.sqlite.limits.waiting import settle_released

from .actions import SLICE_SECONDS, delete_ended
from .finish import flow_mark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.stores.sqlite.driver.database import SqliteDatabase
    from mainspring.stores.sqlite.driver.transaction import Row, Tx

REMEMBERED = DAY
"""Microseconds for which a retried batch and the number of a deleted schedule are remembered. No first try is delayed
for a day."""
IDLE_SLICE = 200
"""Lanes, and buckets of rates, that one call of prune deletes."""
_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode


async def prune(database: SqliteDatabase, retention: Retention, limit: int) -> int:
    left = await database.read(lambda tx: find_prunable(tx, retention, limit))
    deleted = 0
    while left:
        looked, dropped = await database.write(partial(_delete_jobs, jobs=left))
        deleted += dropped
        left = left[looked:]
    idle = await database.read(_find_idle)
    if any(idle):
        await database.write(partial(_delete_idle, idle=idle))
    await database.write(lambda tx: _tidy(tx, retention))
    return deleted


# ---- jobs --------------------------------------------------------------------------------------------------


class PrunableJob(NamedTuple):
    """A job to delete, if it is still the one that ended at this moment: it may have been retried meanwhile."""

    table: str
    job: bytes
    finished: int
    root: bytes | None = None
    """The root of the flow that is deleted with all of its jobs, this one among them."""


def find_prunable(tx: Tx, retention: Retention, limit: int) -> list[PrunableJob]:
    """Up to ``limit`` jobs past their retention that hold no unique key any more, the oldest first."""
    horizons = (
        ("prunable_by_keep", "finished", tx.now),
        ("prunable_finished", "finished", _horizon(tx, "finished", retention.keep, retention.keep_count, retention)),
        ("prunable_dead", "dead", _horizon(tx, "dead", retention.keep_dead, retention.keep_dead_count, retention)),
    )
    found: list[PrunableJob] = []
    for name, table, before in horizons:
        rows = tx.all(name, {"before": before, "now": tx.now, "limit": max(limit - len(found), 0)})
        for job, finished, is_join in rows:
            found += _find_flow(tx, job, limit - len(found)) if is_join else ()
            found.append(PrunableJob(table, job, finished, job if is_join else None))
    return found[:limit]


def _find_flow(tx: Tx, root: bytes, limit: int) -> list[PrunableJob]:
    """The first jobs of the flow that ends with this join, if any: they are deleted before it."""
    values = {"mark": flow_mark(root), "root": root, "now": tx.now, "limit": max(limit, 0)}
    rows = tx.all("prunable_of_flow", values)
    return [PrunableJob("dead" if is_dead else "finished", job, ended, root) for job, ended, is_dead in rows]


def _horizon(tx: Tx, table: str, keep: int, count: int, retention: Retention) -> int:
    """Jobs that ended before this moment are deleted: by age, or by number, but none within ``keep_at_least``."""
    before = max(tx.now - keep, _horizon_of_count(tx, table, count))
    return min(before, tx.now - retention.keep_at_least)


def _horizon_of_count(tx: Tx, table: str, count: int) -> int:
    """When the last of the ``count`` youngest jobs ended. Jobs that ended at the same moment are kept as well."""
    if count <= 0:
        return tx.now + 1
    last = tx.first("last_kept_" + table, (count - 1,))
    return last[0] if last is not None else 0


def _delete_jobs(tx: Tx, jobs: Sequence[PrunableJob]) -> tuple[int, int]:
    """Delete the first of these jobs, for about 2 ms. Returns how many were looked at, and how many deleted."""
    until = time.perf_counter() + SLICE_SECONDS
    looked = deleted = 0
    for table, job, finished, root in jobs:
        looked += 1
        if tx.first("ended_then_" + table, (job, finished)) and _may_go(tx, job, root):
            delete_ended(tx, job, table)
            deleted += 1
        if time.perf_counter() > until:
            break
    return looked, deleted


def _may_go(tx: Tx, job: bytes, root: bytes | None) -> bool:
    """The root of a flow stays while the flow has other jobs."""
    if root is None:
        return True
    if job == root:
        return not tx.all("flow_has_jobs", (flow_mark(root), root))
    tx.run("set_pruning", (root,))
    return True


# ---- everything else ---------------------------------------------------------------------------------------


class IdleRows(NamedTuple):
    """Lanes without jobs, with their rank and buckets, and buckets of rates whose last window is over."""

    lanes: list[Row]
    buckets: list[Row]


def _find_idle(tx: Tx) -> IdleRows:
    return IdleRows(tx.all("empty_lanes", (IDLE_SLICE,)), tx.all("idle_starts", (tx.now, IDLE_SLICE)))


def _delete_idle(tx: Tx, idle: IdleRows) -> None:
    """Delete the rows that are still idle. The capacity that a lane was open for goes to other lanes."""
    for lane, rank, buckets in idle.lanes:
        if tx.run("drop_empty_lane", (lane, rank)):
            tx.released.update(_decode_names(buckets))
    tx.cursor.executemany(tx.sql["drop_idle_starts"], idle.buckets)
    settle_released(tx, Capacities(tx))


def _tidy(tx: Tx, retention: Retention) -> None:
    """Delete old lost workers, retried batches, deleted schedules, empty lane sets, idle rates and expired holders."""
    tx.run("drop_lost_workers", (tx.now - retention.keep_workers,))
    tx.run("drop_retried_batches", (tx.now - REMEMBERED,))
    tx.run("drop_deleted_schedules", (tx.now - REMEMBERED,))
    tx.run("drop_lane_sets")
    tx.run("drop_virtual_times")
    tx.run("drop_idle_rates", (tx.now,))
    tx.run("drop_expired_holders", (tx.now,))
    tx.run("drop_fencing_tokens", (tx.now - NUMBERS_KEPT,))
