"""The records of schedules that travel between the core and a store.

A schedule is one row. A caller that knows the number of the row exchanges it for another (:class:`ScheduleSwap`),
together with the jobs that the exchange makes. ``doc`` belongs to the core: a store compares, keeps and returns it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.jobs.records import Enqueued

PART = "^@"
"""What a mark begins with that says of which part a job is: the runs of a schedule."""


def part_mark(name: str) -> str:
    """The mark of the jobs of a part."""
    return PART + name


def part_of(marks: Sequence[str]) -> str | None:
    """The part of a job with these marks; None for one that is of none."""
    return next((mark[len(PART) :] for mark in marks if mark.startswith(PART)), None)


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it stands in the store."""

    name: str
    rev: int
    """Another at each exchange, and greater than all before, also than those of a schedule of this name that went."""
    look: int | None
    """When a scheduler has to look at it; None: whenever somebody changes it."""
    doc: bytes


class ScheduleRun(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one occurrence of a schedule."""

    at: int
    """The occurrence: microseconds since 1970. A schedule has one record of each."""
    job: bytes | None = None
    doc: bytes = b"{}"


class ScheduleSwap(msgspec.Struct, frozen=True, kw_only=True):
    """An exchange of a schedule's row, if it still has the number that was seen."""

    name: str
    rev: int
    """That of the row as it was seen; 0: there was none."""
    doc: bytes | None
    """None: the schedule goes, with its runs."""
    look: int | None = None
    runs: tuple[ScheduleRun, ...] = ()
    """Made, or written over those of the same occurrence."""
    keep: int = 100
    """So many runs are kept, the latest occurrences."""


class SwapResult(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to an exchange."""

    ok: bool
    now: int
    rev: int = 0
    """That the row has now; 0: there is none."""
    taken: int | None = None
    """An occurrence that has a job already, and was to get another."""
    enqueued: tuple[Enqueued, ...] = ()


class DueSchedules(msgspec.Struct, frozen=True, kw_only=True):
    """The schedules that are to be looked at now."""

    now: int
    rows: tuple[ScheduleRow, ...] = ()
    next_look: int | None = None
    """The earliest moment at which another one is to be looked at; None: there is none."""


class ScheduleDependency(msgspec.Struct, frozen=True):
    """What a part waits for."""

    name: str
    after: tuple[str, ...]
    """Parts, each of which must have succeeded since the last start of this one. Empty: it waits for nobody."""


class ScheduleDependencyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A part that waits for others, as it stands in the store."""

    name: str
    after: tuple[tuple[str, bool], ...]
    """By name, in order: the part that it waits for, and whether that has succeeded since the last start."""
    waiting: tuple[bytes, ...] = ()
    """Jobs of it that wait for others, the first enqueued first; a hundred at most."""
