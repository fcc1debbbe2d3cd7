"""Builds the job of a run: the declared job with an id, the moment of the occurrence and the limits of its schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from msgspec.structs import replace

from mainspring.common.ids import derived_id
from mainspring.jobs.query import parent_mark
from mainspring.jobs.records import FollowUp, NewJob
from mainspring.limits.records import Bucket, Limit
from mainspring.schedules.plan.state import Definition
from mainspring.schedules.rules import jitter_delay

TEMPLATE = UUID("5ced01e5-0000-7000-8000-7e3a1a7ec0de")
"""The id of a declared job. Each run replaces it by its own id, also where a follow-up job names its parent."""
ONE_AT_A_TIME = Limit(name="schedules/at-once", kind="concurrency", size=1)
"""The limit whose keys are names of schedules: two runs of one schedule do not overlap, whatever made them."""
_BLOCKS, _GROUP, _AT_ONCE = "blocks/", "group/", ":at-once"
MAX_RUNS = 100
"""The maximum number of missed occurrences that run late, and of open runs of one schedule."""
MAX_STEP_BYTES = 4_000_000
"""The maximum size of the jobs that one step makes. One job is always allowed; a store accepts 8,000,000 bytes."""
MIN_KEEP = 1_200_000_000
"""Microseconds. The job of a run is kept at least this long after it ended, so that a scheduler can see its end."""


class RunBuilder(NamedTuple):
    """Builds the jobs of the runs of one schedule."""

    name: str
    definition: Definition
    new_id: Callable[[], bytes]

    def occurrence_job(self, at: int, now: int) -> NewJob:
        """Build the job of the occurrence ``at``. With jitter it is due later; every scheduler adds the same delay."""
        made, due = self.job(at), at + jitter_delay(self.name, at, self.definition.jitter)
        if self.definition.jitter == 0 or due <= now:
            return made
        return replace(made, run_at=due + made.delay, delay=0)

    def job(self, at: int) -> NewJob:
        """Build the job of the run that the history keeps under the moment ``at``. It is due at once."""
        id, template = self.new_id(), self.definition.job
        return replace(
            template,
            id=id,
            record=_add_occurrence(template.record, at),
            keep=None if template.keep is None else max(template.keep, MIN_KEEP),
            buckets=self._buckets(template.buckets),
            follows=tuple(
                _build_follow_up(template.id, id, id, n, follow) for n, follow in enumerate(template.follows)
            ),
        )

    @property
    def max_jobs(self) -> int:
        """The number of jobs that one step makes at most."""
        template = self.definition.job
        size = sum(len(each.record) + 1_000 for each in _jobs_in(template))
        return max(1, min(MAX_RUNS, MAX_STEP_BYTES // size))

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits that the store must know for these jobs."""
        own = [] if self._may_overlap else [ONE_AT_A_TIME]
        found = (*self.definition.limits, *own, *self._block_limits)
        return tuple({limit.name: limit for limit in found}.values())

    @property
    def _block_limits(self) -> list[Limit]:
        return [block_limit(self.name, other) for other in self.definition.blocked_by]

    @property
    def _may_overlap(self) -> bool:
        """False for mode ``continuous``, which always has one run."""
        return self.definition.overlap == "allow" and self.definition.mode != "continuous"

    def _buckets(self, declared: tuple[Bucket, ...]) -> tuple[Bucket, ...]:
        own = [] if self._may_overlap else [Bucket(ONE_AT_A_TIME.name, self.name)]
        found = (*declared, *own, *(Bucket(limit.name) for limit in self._block_limits))
        by_name = {bucket.name: bucket for bucket in reversed(found)}  # reversed: a declared bucket wins
        return tuple(by_name[name] for name in sorted(by_name))


def block_limit(one: str, other: str) -> Limit:
    """Return the limit of two schedules that block each other: one of the two runs at a time."""
    return Limit(name=f"{_BLOCKS}{'+'.join(sorted((one, other)))}{_AT_ONCE}", kind="concurrency", size=1)


def is_block_limit(limit: Limit) -> bool:
    """Whether :func:`block_limit` made this limit."""
    return limit.name.startswith(_BLOCKS)


def group_limit(group: str, size: int) -> Limit:
    """Return the limit of a group: ``size`` of its schedules run at a time."""
    return Limit(name=f"{_GROUP}{group}{_AT_ONCE}", kind="concurrency", size=size)


def describe_full_bucket(bucket: str) -> str:
    """Describe a full bucket of a schedule, for ``job.why()``. Return "" for a bucket of another limit."""
    limit, _, key = bucket.partition("=")
    if limit == ONE_AT_A_TIME.name:
        return f"schedule {key!r} runs one job at a time"
    name = limit.removesuffix(_AT_ONCE)
    if name != limit and name.startswith(_BLOCKS):
        return f"schedules {name.removeprefix(_BLOCKS).replace('+', ' and ')} block each other"
    if name != limit and name.startswith(_GROUP):
        return f"group {name.removeprefix(_GROUP)!r} has reached max_concurrent"
    return ""


def _add_occurrence(record: bytes, at: int) -> bytes:
    """Add the moment to the record of a job. Fields that a later version wrote stay: the record is not decoded."""
    return b'%b,"occurrence":%d}' % (record[:-1], at)


def _build_follow_up(old: bytes, new: bytes, parent: bytes, n: int, follow: FollowUp) -> FollowUp:
    """Build a follow-up job of a run, with its own: replace the id of the declared job by the id of the run.

    ``parent`` is the job that it follows: the run, or a follow-up job of the run.
    """
    record, id = follow.job.record, derived_id(parent, bytes([n]))
    for text, other in ((str(UUID(bytes=old)), str(UUID(bytes=new))), (old.hex(), new.hex())):
        record = record.replace(text.encode(), other.encode())
    marks = tuple(parent_mark(new) if mark == parent_mark(old) else mark for mark in follow.job.marks)
    inner = tuple(_build_follow_up(old, new, id, m, each) for m, each in enumerate(follow.job.follows))
    return replace(follow, job=replace(follow.job, id=id, record=record, marks=marks, follows=inner))


def _jobs_in(template: NewJob) -> list[NewJob]:
    """The job with its follow-up jobs, and with theirs."""
    return [template, *(each for follow in template.follows for each in _jobs_in(follow.job))]
