"""What time does to waiting jobs: due jobs become ready, expired jobs are cancelled, parked lanes are checked again.

A promotion also goes on with work on flows that is too large for one step: it resolves the other children of large
joins, and cancels or deletes the jobs of flows whose root was cancelled or deleted.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mainspring.jobs.records import PromoteResult
from mainspring.states import LIVE, Reason, State
from mainspring.stores.shared.constants import SECOND
from mainspring.stores.sqlite.lanes import Placement, enter_ready
from mainspring.stores.sqlite.limits.waiting import open_due_lanes, recheck_limits

from .actions import delete_if_ended
from .finish import EndedParent, finish_waiting, flow_mark, resolve_slice

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.stores.sqlite.driver.database import SqliteDatabase
    from mainspring.stores.sqlite.driver.transaction import Row, Tx

SLICE = 200
"""Jobs that one transaction promotes, expires, releases from a large join, or cancels with their flow."""
PAGE = 2000
"""Jobs of a cancelled flow that one transaction looks at: most of them may have ended before."""


async def promote(database: SqliteDatabase, limit: int) -> PromoteResult:
    """Promote in slices, so that other writers get the lock in between."""
    done = PromoteResult(now=0)
    while True:
        size = min(SLICE, limit - max(done.promoted, done.expired))
        part, has_flow_work = await database.write(partial(promote_slice, limit=size))
        done = PromoteResult(
            now=part.now,
            promoted=done.promoted + part.promoted,
            expired=done.expired + part.expired,
            queues=tuple(sorted({*done.queues, *part.queues})),
            next_due=part.next_due,
            ended=done.ended + part.ended,
        )
        if max(part.promoted, part.expired) < size or max(done.promoted, done.expired) >= limit:
            break
    for work in (release_slice, sweep_slice) if has_flow_work else ():
        done = await _work_on_flows(database, limit, work, done)
    return done


def promote_slice(tx: Tx, limit: int) -> tuple[PromoteResult, bool]:
    """Expire first: a job that is both due and expired must not become ready. Returns also whether flows need work."""
    expired = tx.all("expired_jobs", (tx.now, limit))
    ended = tuple(job for (job,) in expired if finish_waiting(tx, job, Reason.EXPIRED))
    due = tx.all("due_jobs", (tx.now, limit))
    if due:
        seq = tx.next_seq(len(due))
        tx.cursor.executemany(tx.sql["promote"], [(seq + n, row[0]) for n, row in enumerate(due)])
        for n, (_, queue, *placement) in enumerate(due):
            enter_ready(tx, queue, Placement(*placement), seq + n)
    (next_due,) = tx.all("next_due")[0]
    flow_work = _next_flow_work(tx)
    moments = [at for at in (next_due, _open_lanes(tx), flow_work) if at is not None]
    queues = tuple(sorted(tx.woken))
    return PromoteResult(tx.now, len(due), len(ended), queues, min(moments, default=None), ended), flow_work == tx.now


def next_promotion(tx: Tx) -> int | None:
    """When :func:`promote` has something to do: now if it has left limits to recheck."""
    if tx.first("limits_to_recheck") is not None:
        return tx.now
    moments = [*tx.all("next_due"), (_next_flow_work(tx),)]
    for (lane_set,) in tx.all("keyed_lane_sets"):
        moments += tx.all("next_recheck", (lane_set,))
    return min((at for (at,) in moments if at is not None), default=None)


def _open_lanes(tx: Tx) -> int | None:
    """Open the lanes whose moment to check again has come; return the next such moment."""
    recheck_limits(tx)
    moments: list[Row] = []
    for (lane_set,) in tx.all("keyed_lane_sets"):
        open_due_lanes(tx, lane_set)
        moments += tx.all("next_recheck", (lane_set,))
    return min((at for (at,) in moments if at is not None), default=None)


# ---- flows -------------------------------------------------------------------------------------------------


class FlowSlice(NamedTuple):
    """What one transaction has done for flows."""

    jobs: int
    more: bool
    """There is more to do at once."""
    result: PromoteResult
    """The moment of the transaction, the queues with jobs that became ready, and when to promote again."""


async def _work_on_flows(
    database: SqliteDatabase, limit: int, work: Callable[..., FlowSlice], done: PromoteResult
) -> PromoteResult:
    """Run some slices, for up to ``limit`` jobs."""
    left = limit
    for _ in range(-(-limit // SLICE)):
        jobs, more, part = await database.write(partial(work, limit=min(SLICE, left)))
        queues = tuple(sorted({*done.queues, *part.queues}))
        done = msgspec.structs.replace(done, now=part.now, queues=queues, next_due=part.next_due)
        left -= jobs
        if not more or left <= 0:
            break
    return done


def release_slice(tx: Tx, limit: int) -> FlowSlice:
    """Resolve the next children of a large join."""
    found = tx.first("releasing")
    n = 0
    if found is not None:
        join, state, reason, died = found
        parent = EndedParent(join, State(state), Reason(reason) if reason else None, bool(died), is_join=True)
        n = resolve_slice(tx, parent, limit)
    return _slice(tx, n)


def sweep_slice(tx: Tx, limit: int) -> FlowSlice:
    """Cancel the next jobs of a flow whose root was cancelled. If the root was deleted, delete the ended jobs too.

    The jobs are walked in the order of their ids, again and again until a walk finds no job to change.
    """
    found = tx.first("due_sweep", (tx.now,))
    if found is None:
        return _slice(tx, 0)
    root, deleted, last, has_changed = found
    page = tx.all("jobs_of_flow", (flow_mark(root), last, PAGE))
    n = looked = 0
    for job, state, ordered in page:
        looked += 1
        if job != root:
            n += _sweep_job(tx, job, state, is_ordered=bool(ordered), deleted=bool(deleted))
        if n >= limit:
            break
    has_changed = has_changed or n > 0
    if looked == PAGE or looked < len(page):
        tx.run("go_on_sweeping", {"root": root, "last": page[looked - 1][0], "found": has_changed, "at": tx.now})
    elif has_changed:
        tx.run("go_on_sweeping", {"root": root, "last": b"", "found": 0, "at": tx.now})
    elif deleted and tx.all("flow_has_jobs", (flow_mark(root), root)):
        tx.run("go_on_sweeping", {"root": root, "last": b"", "found": 0, "at": tx.now + SECOND})
    else:
        tx.run("end_sweep", (root,))
    return _slice(tx, n)


def _sweep_job(tx: Tx, job: bytes, state: str | None, *, is_ordered: bool, deleted: bool) -> bool:
    """Whether the job was changed."""
    if state == State.RUNNING:
        if not is_ordered:
            tx.run("order_cancel", ("", job))
        return not is_ordered
    if state in LIVE:
        return finish_waiting(tx, job, Reason.PARENT)
    return deleted and delete_if_ended(tx, job)


def _slice(tx: Tx, jobs: int) -> FlowSlice:
    more = _next_flow_work(tx) == tx.now
    return FlowSlice(jobs, more, PromoteResult(tx.now, queues=tuple(tx.woken), next_due=next_promotion(tx)))


def _next_flow_work(tx: Tx) -> int | None:
    """When a promotion has to work on flows; None if there is nothing to do."""
    ((at,),) = tx.all("next_flow_work")
    return None if at is None else max(at, tx.now)
