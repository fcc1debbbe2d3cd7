"""Which follow-up jobs an enqueue refuses. The rule is the same in every engine.

The store inserts a follow-up job in the step in which its job ends. A follow-up job that cannot be inserted would keep
its job from ending, so the enqueue refuses it. The limits below are those that every engine can store and index: Redis
counts exactly to 2**53, and an index of PostgreSQL takes about 2,700 bytes.
"""

from __future__ import annotations

from uuid import UUID

from mainspring.common.text import storable
from mainspring.errors import StoreConflict
from mainspring.jobs.records import FollowUp, NewJob
from mainspring.schedules.records import part_of
from mainspring.states import FINAL
from mainspring.stores.shared.constants import HIGHEST_PRIORITY, LOWEST_PRIORITY

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
    for follow in job.follows:
        if wrong := _wrong(follow):
            raise StoreConflict(f"job {UUID(bytes=job.id)}: its follow-up job of task {follow.job.task!r} {wrong}")


def _wrong(follow: FollowUp) -> str:
    job = follow.job
    if follow.on not in FINAL:
        return f"is for the state {str(follow.on)!r}, which is not final"
    if len(job.id) != 16 or job.id[14:] != b"\0\0":
        return "has an id that is not 16 bytes with two zero bytes at the end, where the store writes the epoch"
    if job.unique or job.after or job.buckets or job.fair or job.follows:
        return "has a unique key, parents, limits, a fair key or follow-up jobs of its own"
    if part_of(job.marks) is not None:
        return "is a run of a schedule"
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
