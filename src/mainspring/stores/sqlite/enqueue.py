"""Insert a batch: all of it or nothing, each job at most once."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from mainspring.errors import StoreConflict
from mainspring.lanes import base_lane, limited_lane
from mainspring.records import Enqueued, NewJob
from mainspring.states import Reason, State

from .finish import finish_waiting
from .places import Standing, enter_ready, write_buckets
from .statements import sizes
from .tx import LIMITED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.stores.base import Batch

    from .tx import Row, Tx

_READY, _SCHEDULED = State.READY.value, State.SCHEDULED.value


def enqueue(tx: Tx, batch: Batch) -> list[Enqueued]:
    jobs = batch.jobs
    if not jobs:
        return []
    if not batch.retry and _plain(jobs) and _insert_plain(tx, jobs):
        return [Enqueued(job.id, True) for job in jobs]
    with tx.savepoint("batch"):
        return _insert_each(tx, batch)


def _plain(jobs: Sequence[NewJob]) -> bool:
    return not any([job.after or job.buckets for job in jobs])  # noqa: C419  # a generator costs 3 x as much for one


def _insert_plain(tx: Tx, jobs: Sequence[NewJob]) -> bool:
    """Insert jobs that wait for nobody in bulk; False, and nothing changed, if one of them was there already."""
    seq, now = tx.next_seq(len(jobs)), tx.now
    rows = [_row(job, seq + n, now) for n, job in enumerate(jobs)]
    inserted = tx.sized("enqueue", 1, rows[0]).rowcount if len(rows) == 1 else _insert_rows(tx, rows)
    if inserted == len(rows):
        tx.woken.update(row[2] for row in rows if row[1] is _READY)
    return inserted == len(rows)


def _insert_rows(tx: Tx, rows: list[Row]) -> int:
    execute = tx.cursor.execute
    execute("savepoint bulk")
    inserted = 0
    for start, end in sizes(len(rows)):
        inserted += tx.sized("enqueue", end - start, [value for row in rows[start:end] for value in row]).rowcount
    if inserted < len(rows):
        execute("rollback to bulk")  # the places were taken before the savepoint: they stay taken
    execute("release bulk")
    return inserted


def _row(job: NewJob, seq: int, now: int) -> Row:
    """The parameters of the insert, in the order of its columns."""
    due = _due(job, now)
    lane = base_lane(job.queue, job.kind)
    flags = 0
    if job.buckets:
        lane, flags = limited_lane(lane, [each.name for each in job.buckets]), LIMITED
    return (
        job.id, _READY if due is None else _SCHEDULED, job.queue, lane, job.task, job.priority, seq, due,
        None if job.expires_in is None else now + job.expires_in, job.crashes, job.early, now, flags,
        write_buckets(job.buckets) if job.buckets else None, job.record,
    )  # fmt: skip


def _due(job: NewJob, now: int) -> int | None:
    """When the job may run; None for now."""
    due = job.run_at if job.run_at is not None else now + job.delay
    return due if due > now else None


def _insert_each(tx: Tx, batch: Batch) -> list[Enqueued]:
    """One by one: for repeats, limits and dependencies. Edges come after all rows, for parents in the batch."""
    created = []
    seq = tx.next_seq(len(batch.jobs))
    for n, job in enumerate(batch.jobs):
        known = batch.retry and tx.all("known", {"id": job.id})[0][0]
        created.append(not known and tx.sized("enqueue", 1, _row(job, seq + n, tx.now)).rowcount == 1)
    for job, new in zip(batch.jobs, created, strict=True):
        if new:
            _settle_new(tx, job)
    return [Enqueued(job.id, new) for job, new in zip(batch.jobs, created, strict=True)]


def _settle_new(tx: Tx, job: NewJob) -> None:
    for bucket in job.buckets:
        tx.run("set_bucket", (bucket.name, bucket.size))
    due = _due(job, tx.now)
    deps = _wait_for_parents(tx, job)
    if deps is None:
        finish_waiting(tx, job.id, Reason.PARENT)
    elif deps:
        tx.run("enqueue_blocked", {"id": job.id, "deps": deps, "due": due})
    elif due is None:
        lane = _row(job, 0, 0)[3]
        enter_ready(tx, job.queue, Standing(lane, job.task, 0, write_buckets(job.buckets)))


def _wait_for_parents(tx: Tx, job: NewJob) -> int | None:
    """How many parents the job waits for; None when one has ended in a way that ends this job too."""
    deps = 0
    for edge in job.after:
        found = tx.first("parent_state", {"id": edge.parent}) if edge.parent != job.id else None
        if found is None:
            raise StoreConflict(
                f"job {UUID(bytes=job.id)} waits for job {UUID(bytes=edge.parent)}, which does not exist",
                hint="Enqueue the parent first or in the same batch; was it deleted or pruned?",
            )
        (ended,) = found
        if ended == 2 and edge.policy == "fail":
            return None
        if ended == 0:
            deps += tx.run("add_edge", {"parent": edge.parent, "child": job.id, "policy": edge.policy})
            tx.run("mark_parent", (edge.parent,))
    return deps
