"""From new jobs to rows of the engine, and from rows to records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from mainspring.jobs.lanes import base_lane, home_lane
from mainspring.jobs.records import JobRow, NewJob, order_key
from mainspring.states import Reason, State
from mainspring.worker.records import Claim

from .driver.constants import FLAG_FOLLOWED_OTHER, FLAG_FOLLOWED_SUCCESS
from .lanes import READY, flags_of_limits, read_buckets, write_buckets

if TYPE_CHECKING:
    from .driver.transaction import Row, Tx

SCHEDULED = State.SCHEDULED.value
COLUMNS = (
    "id", "state", "queue", "lane", "task", "priority", "seq", "due", "expires", "crash_limit", "early", "enqueued",
    "flags", "buckets", "record",
)  # fmt: skip
"""The columns of the statement ``enqueue``, in the order of :func:`row_of`."""
_STATES = {state.value: state for state in State}
_REASONS = {reason.value: reason for reason in Reason} | {None: None}


# ---- new jobs --------------------------------------------------------------------------------------------


def row_of(job: NewJob, seq: int, now: int) -> Row:
    """The parameters of the statement ``enqueue``, in the order of :data:`COLUMNS`."""
    due = due_of(job, now)
    lane = base_lane(job.queue, job.kind)
    flags = 0
    if job.buckets or job.fair:
        lane, flags = home_lane(job.queue, job.kind, job.buckets, job.fair), flags_of_limits(job.buckets)
    if job.follows:
        flags |= flags_of_follow_ups([follow.on for follow in job.follows])
    return (
        job.id, READY if due is None else SCHEDULED, job.queue, lane, job.task, job.priority, seq, due,
        None if job.expires_in is None else now + job.expires_in, job.crashes, job.early, now, flags,
        write_buckets(job.buckets) if job.buckets else None, job.record,
    )  # fmt: skip


def shared_of(row: Row) -> Row:
    """The values of a row that alike jobs share, in the order of the statement ``enqueue_alike``."""
    return (*row[1:6], *row[7:14])


def due_of(job: NewJob, now: int) -> int | None:
    """The moment from which on the job may run; None for now."""
    due = job.run_at if job.run_at is not None else now + job.delay
    return due if due > now else None


def flags_of_follow_ups(states: Sequence[State | str]) -> int:
    """The flags of a job that has follow-up jobs for these final states."""
    flags = 0
    for state in states:
        flags |= FLAG_FOLLOWED_SUCCESS if state == State.SUCCEEDED else FLAG_FOLLOWED_OTHER
    return flags


def add_marks_and_keeps(tx: Tx, jobs: Sequence[NewJob]) -> None:
    """Write what only some jobs have and no end has to know: marks, and a ``keep`` of their own."""
    marks = [(mark, job.id) for job in jobs for mark in job.marks]
    if marks:
        tx.cursor.executemany(tx.sql["add_mark"], marks)
    keeps = [(job.keep, job.id) for job in jobs if job.keep is not None]
    if keeps:
        tx.cursor.executemany(tx.sql["set_keep"], keeps)


def job_exists(tx: Tx, job: bytes, *, anywhere: bool) -> bool:
    """Whether the id is taken: by a live job, or with ``anywhere`` by a live or an ended job."""
    return bool(tx.all("job_is_known" if anywhere else "job_is_live", {"id": job})[0][0])


# ---- records ---------------------------------------------------------------------------------------------


def claim_of(row: Row) -> Claim:
    """The record of a claim. By position: this runs for each claimed job."""
    return Claim(
        row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7], row[8], row[9] == 1, row[10], row[11],
        row[12], row[13],
    )  # fmt: skip


def claim_order(row: Row) -> tuple[int, int]:
    """Sort the rows of a claim by their order key."""
    return order_key(row[14], row[5]), row[14]


def job_of(row: Row) -> JobRow:
    (
        job, state, reason, task, queue, lane, priority, attempt, epoch, crashes, crash_limit, early, token, worker,
        seq, enqueued, due, expires, started, finished, ran, deps, ordered, progress, result, error, note, record,
        buckets,
    ) = row  # fmt: skip
    return JobRow(
        id=job, state=_STATES[state], reason=_REASONS[reason], task=task, queue=queue, lane=lane, priority=priority,
        attempt=attempt, epoch=epoch, crashes=crashes, crash_limit=crash_limit, early=bool(early), token=token,
        worker=worker, seq=seq, enqueued=enqueued, due=due, expires=expires, started=started, finished=finished,
        ran=ran, deps=deps, ordered=bool(ordered), progress=progress, result=result, error=error, note=note,
        record=record, buckets=tuple(sorted(read_buckets(buckets), key=lambda each: each.name)) if buckets else (),
    )  # fmt: skip


# ---- limits ----------------------------------------------------------------------------------------------


class CurrentLimit(NamedTuple):
    """A limit with the size that holds now: the row of the statement ``limit``."""

    kind: str
    size: int
    per: int
    burst: int
    share: int = 0
    span: int = 0


def limit_name(bucket: str) -> str:
    """The name of the limit that a bucket belongs to. Names of limits have no ``=``."""
    return bucket.partition("=")[0]


def read_limit(tx: Tx, bucket: str) -> CurrentLimit | None:
    """The limit of a bucket; None if the limit is not known."""
    found = tx.first("limit", (limit_name(bucket),))
    return None if found is None else CurrentLimit(*found)
