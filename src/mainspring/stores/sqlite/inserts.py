"""How a new job becomes a row, and what is written beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mainspring.jobs.lanes import base_lane, home_lane
from mainspring.jobs.records import NewJob
from mainspring.states import State

from .parts import mark_of
from .places import Standing, enter_ready, limited_flags, line_up, write_buckets
from .settings import bind_free, kept, limited, placed
from .tx import FOLLOWED_END, FOLLOWED_SUCCESS, OF_PART

if TYPE_CHECKING:
    from .tx import Row, Tx

READY, SCHEDULED = State.READY.value, State.SCHEDULED.value


def row_of(job: NewJob, seq: int, now: int) -> Row:
    """The parameters of the insert, in the order of its columns."""
    due = due_of(job, now)
    lane = base_lane(job.queue, job.kind)
    flags = 0
    if job.buckets or job.fair:
        lane, flags = home_lane(job.queue, job.kind, job.buckets, job.fair), limited_flags(job.buckets)
    if job.marks and mark_of(job.marks):
        flags |= OF_PART
    if job.follows:
        flags |= flags_of([follow.on for follow in job.follows])
    return (
        job.id, READY if due is None else SCHEDULED, job.queue, lane, job.task, job.priority, seq, due,
        None if job.expires_in is None else now + job.expires_in, job.crashes, job.early, now, flags,
        write_buckets(job.buckets) if job.buckets else None, job.record,
    )  # fmt: skip


def standing_of(row: Row) -> Standing:
    """How a new job stands."""
    return Standing(row[3], row[4], row[5], 0, row[13])


def line_up_all(tx: Tx, rows: Sequence[Row]) -> None:
    """Of new jobs in the order of their seqs, the first of each lane and priority stands for those behind it."""
    first: dict[tuple[str, int], Row] = {}
    for row in rows:
        if "#" in row[3] and row[1] is READY:
            first.setdefault((row[3], row[5]), row)
    for row in first.values():
        line_up(tx, standing_of(row), row[6])


def due_of(job: NewJob, now: int) -> int | None:
    """When the job may run; None for now."""
    due = job.run_at if job.run_at is not None else now + job.delay
    return due if due > now else None


def flags_of(follows: Sequence[State | str]) -> int:
    """What the row of a job says of the ends that it has follow-up jobs for."""
    flags = 0
    for on in follows:
        flags |= FOLLOWED_SUCCESS if on == State.SUCCEEDED else FOLLOWED_END
    return flags


def add_beside(tx: Tx, jobs: Sequence[NewJob]) -> None:
    """What only some jobs have, and what their ends do not need to know of: marks, and a keep of their own."""
    marks = [(mark, job.id) for job in jobs for mark in job.marks]
    if marks:
        tx.cursor.executemany(tx.sql["add_mark"], marks)
    keeps = [(job.keep, job.id) for job in jobs if job.keep is not None]
    if keeps:
        tx.cursor.executemany(tx.sql["set_keep"], keeps)


def is_there(tx: Tx, job: bytes, *, anywhere: bool) -> bool:
    """Whether the id is taken: by a live job, or ``anywhere``."""
    return bool(tx.all("known" if anywhere else "live", {"id": job})[0][0])


def insert_free(tx: Tx, job: NewJob) -> None:
    """Insert a job that waits for nobody and that nothing limits, unless it is or was there."""
    if is_there(tx, job.id, anywhere=True):
        return
    seq, queue = tx.next_seq(), kept(tx).get(job.queue)
    if queue is not None:
        job, seq = limited(job, queue), placed(seq, queue)
    row = row_of(job, seq, tx.now)
    tx.sized("enqueue", 1, row)
    if queue is not None:
        bind_free(tx, job, queue)
    add_beside(tx, (job,))
    if row[1] is READY:
        enter_ready(tx, job.queue, standing_of(row), row[6])
