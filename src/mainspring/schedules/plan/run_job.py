"""The job of a run: the declared one with an id, a moment and the marks of its schedule."""

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
from mainspring.schedules.records import part_mark
from mainspring.schedules.rules import delay_of

TEMPLATE = UUID("5ced01e5-0000-7000-8000-7e3a1a7ec0de")
"""The id of a declared job. Each run gets its own, also where a follow-up job names the one that it follows."""
ONE_AT_A_TIME = Limit(name="schedules/at-once", kind="concurrency", size=1)
"""With the name of the schedule as its key: its runs do not overlap, however they were made."""
_BLOCKS, _GROUP, _AT_ONCE = "blocks/", "group/", ":at-once"
MOST = 100
"""Missed occurrences that are made up for, and runs that wait for each other, at most."""
LARGEST = 4_000_000
"""Bytes of the jobs that are made in one step, at most, but always one: a store takes eight million."""
KEPT = 1_200_000_000
"""Microseconds for which a run that ended is kept at least: somebody has to see how it did."""


class RunBuilder(NamedTuple):
    """What the runs of one schedule are made with."""

    name: str
    definition: Definition
    new_id: Callable[[], bytes]

    def job(self, at: int, now: int) -> NewJob:
        """The job of the occurrence ``at``: with jitter it is due a little later, the same for whoever makes it."""
        made, due = self.plain(at), at + delay_of(self.name, at, self.definition.jitter)
        if self.definition.jitter == 0 or due <= now:
            return made
        return replace(made, run_at=due + made.delay, delay=0)

    def plain(self, at: int) -> NewJob:
        """The job of the run that stands under the moment ``at``, due at once."""
        id, template = self.new_id(), self.definition.job
        return replace(
            template,
            id=id,
            record=_at(template.record, at),
            keep=None if template.keep is None else max(template.keep, KEPT),
            marks=tuple(dict.fromkeys((*template.marks, part_mark(self.name)))),
            buckets=self._buckets(template.buckets),
            follows=tuple(_following(template.id, id, n, follow) for n, follow in enumerate(template.follows)),
        )

    @property
    def most(self) -> int:
        """So many jobs are made in one step."""
        template = self.definition.job
        size = sum(len(each.record) + 1_000 for each in (template, *(follow.job for follow in template.follows)))
        return max(1, min(MOST, LARGEST // size))

    @property
    def limits(self) -> tuple[Limit, ...]:
        """What the store must know of for these jobs."""
        own = [] if self._may_overlap else [ONE_AT_A_TIME]
        found = (*self.definition.limits, *own, *self._blocked)
        return tuple({limit.name: limit for limit in found}.values())

    @property
    def _blocked(self) -> list[Limit]:
        return [one_of_two(self.name, other) for other in self.definition.blocked_by]

    @property
    def _may_overlap(self) -> bool:
        """Of mode ``continuous`` there is one copy."""
        return self.definition.overlap == "allow" and self.definition.mode != "continuous"

    def _buckets(self, declared: tuple[Bucket, ...]) -> tuple[Bucket, ...]:
        own = [] if self._may_overlap else [Bucket(ONE_AT_A_TIME.name, self.name)]
        found = (*declared, *own, *(Bucket(limit.name) for limit in self._blocked))
        by_name = {bucket.name: bucket for bucket in reversed(found)}  # what was declared comes first
        return tuple(by_name[name] for name in sorted(by_name))


def one_of_two(one: str, other: str) -> Limit:
    """Of two schedules one of which blocks the other, one runs."""
    return Limit(name=f"{_BLOCKS}{'+'.join(sorted((one, other)))}{_AT_ONCE}", kind="concurrency", size=1)


def is_between_two(limit: Limit) -> bool:
    """Whether it is one of those."""
    return limit.name.startswith(_BLOCKS)


def some_of(group: str, size: int) -> Limit:
    """Of a group of schedules so many run."""
    return Limit(name=f"{_GROUP}{group}{_AT_ONCE}", kind="concurrency", size=size)


def held_by(bucket: str) -> str:
    """What a job waits for whose bucket of this name has no room, in the words of schedules; empty for other limits."""
    limit, _, key = bucket.partition("=")
    if limit == ONE_AT_A_TIME.name:
        return f"schedule {key!r} runs one at a time"
    name = limit.removesuffix(_AT_ONCE)
    if name != limit and name.startswith(_BLOCKS):
        return f"schedules {name.removeprefix(_BLOCKS).replace('+', ' and ')} block each other"
    if name != limit and name.startswith(_GROUP):
        return f"group {name.removeprefix(_GROUP)!r} has as many running as it may"
    return ""


def _at(record: bytes, at: int) -> bytes:
    """The record of a job, which is not empty, with the moment in it; whatever else a later version wrote stays."""
    return b'%b,"occurrence":%d}' % (record[:-1], at)


def _following(old: bytes, new: bytes, n: int, follow: FollowUp) -> FollowUp:
    """A follow-up job of a run: what names the declared job names that run."""
    record, marks = follow.job.record, follow.job.marks
    for text, other in ((str(UUID(bytes=old)), str(UUID(bytes=new))), (old.hex(), new.hex())):
        record = record.replace(text.encode(), other.encode())
    marks = tuple(parent_mark(new) if mark == parent_mark(old) else mark for mark in marks)
    return replace(follow, job=replace(follow.job, id=derived_id(new, bytes([n])), record=record, marks=marks))
