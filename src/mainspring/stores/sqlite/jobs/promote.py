"""What time does to waiting jobs: due jobs become ready, expired jobs are cancelled, parked lanes are checked again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mainspring.jobs.records import PromoteResult
from mainspring.states import Reason
from mainspring.stores.sqlite.lanes import Placement, enter_ready
from mainspring.stores.sqlite.limits.waiting import open_due_lanes, recheck_limits

from .finish import finish_waiting

if TYPE_CHECKING:
    from mainspring.stores.sqlite.driver.database import SqliteDatabase
    from mainspring.stores.sqlite.driver.transaction import Row, Tx

SLICE = 200
"""Jobs that one transaction promotes, and expires."""


async def promote(database: SqliteDatabase, limit: int) -> PromoteResult:
    """Promote in slices, so that other writers get the lock in between."""
    done = PromoteResult(now=0)
    while True:
        size = min(SLICE, limit - max(done.promoted, done.expired))
        part = await database.write(partial(promote_slice, limit=size))
        done = PromoteResult(
            now=part.now,
            promoted=done.promoted + part.promoted,
            expired=done.expired + part.expired,
            queues=tuple(sorted({*done.queues, *part.queues})),
            next_due=part.next_due,
            ended=done.ended + part.ended,
        )
        if max(part.promoted, part.expired) < size or max(done.promoted, done.expired) >= limit:
            return done


def promote_slice(tx: Tx, limit: int) -> PromoteResult:
    """Expire first: a job that is both due and expired must not become ready."""
    expired = tx.all("expired_jobs", (tx.now, limit))
    ended = tuple(job for (job,) in expired if finish_waiting(tx, job, Reason.EXPIRED))
    due = tx.all("due_jobs", (tx.now, limit))
    if due:
        seq = tx.next_seq(len(due))
        tx.cursor.executemany(tx.sql["promote"], [(seq + n, row[0]) for n, row in enumerate(due)])
        for n, (_, queue, *placement) in enumerate(due):
            enter_ready(tx, queue, Placement(*placement), seq + n)
    (next_due,) = tx.all("next_due")[0]
    moments = [at for at in (next_due, _open_lanes(tx)) if at is not None]
    return PromoteResult(tx.now, len(due), len(ended), tuple(sorted(tx.woken)), min(moments, default=None), ended)


def _open_lanes(tx: Tx) -> int | None:
    """Open the lanes whose moment to check again has come; return the next such moment."""
    recheck_limits(tx)
    moments: list[Row] = []
    for (lane_set,) in tx.all("keyed_lane_sets"):
        open_due_lanes(tx, lane_set)
        moments += tx.all("next_recheck", (lane_set,))
    return min((at for (at,) in moments if at is not None), default=None)
