"""Which follow-up jobs an enqueue refuses, and what a follow-up job gets when it is inserted: alike in every engine.

A follow-up job can have follow-up jobs, to any depth. They travel inside of it: an engine stores the follow-up jobs of
a job beside the job, and what these carry inside of them is opaque until one of them is inserted. Then its own
follow-up jobs are stored beside it (:func:`follow_ups_of_inserted`), and so on.

The store inserts a follow-up job in the step in which its job ends. A follow-up job that cannot be inserted would keep
its job from ending, so the enqueue refuses it. The limits below are those that every engine can store and index: Redis
counts exactly to 2**53, and an index of PostgreSQL takes about 2,700 bytes.
"""

from __future__ import annotations

from hashlib import sha256
from uuid import UUID

from msgspec.structs import replace

from mainspring.common.text import storable
from mainspring.errors import StoreConflict
from mainspring.jobs.records import MOST_FOLLOW_UPS, FollowUp, NewJob
from mainspring.states import FINAL
from mainspring.stores.shared.constants import (
    ENDED_JOB_HEX,
    ENDED_JOB_TEXT,
    HIGHEST_PRIORITY,
    KEPT_BYTES,
    LOWEST_PRIORITY,
    MIXED_BYTES,
)

LONGEST_NAME = 1_000
"""Bytes (UTF-8) of a task, a queue, a kind or a mark."""

LONGEST_SPAN = 2**52
"""Microseconds: ``delay``, ``expires_in`` and ``keep`` are below, about 142 years."""

LATEST_MOMENT = 2**53
"""Microseconds since 1970: ``run_at`` is below, in the year 2255."""

MOST_CRASHES = 2**31
"""``crashes`` is below."""


def check_follow_ups(job: NewJob) -> None:
    """Raise ``StoreConflict`` for the first follow-up job of ``job`` that a store could not insert later."""
    waiting, count = list(job.follows), 0
    while waiting:
        follow = waiting.pop(0)
        count += 1
        wrong = _wrong(follow)
        if count > MOST_FOLLOW_UPS:
            wrong = f"is one too many: a job has at most {MOST_FOLLOW_UPS}, with the follow-up jobs of follow-up jobs"
        if wrong:
            raise StoreConflict(f"job {UUID(bytes=job.id)}: its follow-up job of task {follow.job.task!r} {wrong}")
        waiting += follow.job.follows


def follow_ups_of_inserted(job: NewJob) -> tuple[FollowUp, ...]:
    """The follow-up jobs of a follow-up job that gets its id now: they name it, and their ids depend on its id.

    So each epoch of each job before them has its own follow-up jobs, and a repeated step makes no second one.
    """
    return tuple(replace(follow, job=_after(job.id, follow.job)) for follow in job.follows)


def _after(parent: bytes, job: NewJob) -> NewJob:
    mixed = sha256(parent + job.id).digest()[:MIXED_BYTES]
    return replace(
        job,
        id=job.id[:KEPT_BYTES] + mixed + job.id[KEPT_BYTES + MIXED_BYTES :],
        record=job.record.replace(ENDED_JOB_TEXT.encode(), str(UUID(bytes=parent)).encode()),
        marks=tuple(mark.replace(ENDED_JOB_HEX, parent.hex()) for mark in job.marks),
    )


def _wrong(follow: FollowUp) -> str:
    job = follow.job
    if follow.on not in FINAL:
        return f"is for the state {str(follow.on)!r}, which is not final"
    if len(job.id) != 16 or job.id[14:] != b"\0\0":
        return "has an id that is not 16 bytes with two zero bytes at the end, where the store writes the epoch"
    if job.unique or job.after or job.before or job.join or job.buckets or job.fair:
        return "has a unique key, parents, a join, limits or a fair key"
    if not LOWEST_PRIORITY <= job.priority <= HIGHEST_PRIORITY:
        return f"has a priority that is not between {LOWEST_PRIORITY} and {HIGHEST_PRIORITY}"
    if not 0 <= job.crashes < MOST_CRASHES:
        return f"has a number of crashes that is not between 0 and {MOST_CRASHES - 1}"
    if not all(0 <= span < LONGEST_SPAN for span in (job.delay, job.expires_in or 0, job.keep or 0)):
        return "has a delay, an expiry or a retention that is negative or longer than 142 years"
    if not 0 <= (job.run_at or 0) < LATEST_MOMENT:
        return "has a run_at before 1970 or after 2255"
    names = (job.task, job.queue, job.kind, *job.marks)
    if not all(map(storable, names)):
        return "has a name or a mark with a character that cannot be stored (NUL or a lone surrogate)"
    if any(len(name.encode()) > LONGEST_NAME for name in names):
        return f"has a name or a mark of more than {LONGEST_NAME} bytes"
    return ""
