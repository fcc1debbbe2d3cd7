"""Records of schedules that the core and a store exchange.

A schedule is one row. A caller that knows the number of the row exchanges the row for another (:class:`ScheduleSwap`),
together with the jobs of the exchange. ``doc`` belongs to the core: a store keeps and returns it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.jobs.records import Enqueued

PART = "^@"
"""The beginning of the mark that names the schedule of which a job is a run."""


def part_mark(name: str) -> str:
    """The mark of the runs of a schedule."""
    return PART + name


def part_of(marks: Sequence[str]) -> str | None:
    """The schedule of which a job with these marks is a run; None if it is no run of a schedule."""
    return next((mark[len(PART) :] for mark in marks if mark.startswith(PART)), None)


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as the store has it."""

    name: str
    rev: int
    """The number of the row. Each exchange makes a greater number, also after a schedule of this name was deleted."""
    look: int | None
    """When a scheduler has to read the row; None: only after a change."""
    doc: bytes


class ScheduleRun(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one occurrence of a schedule."""

    at: int
    """The occurrence, in microseconds since 1970. A schedule has one record of each occurrence."""
    job: bytes | None = None
    doc: bytes = b"{}"


class ScheduleSwap(msgspec.Struct, frozen=True, kw_only=True):
    """An exchange of the row of a schedule, if the row still has the number that the caller read."""

    name: str
    rev: int
    """The number of the row that the caller read; 0 if there was no row."""
    doc: bytes | None
    """None deletes the schedule with its runs."""
    look: int | None = None
    runs: tuple[ScheduleRun, ...] = ()
    """Added, or written over the records of the same occurrence."""
    keep: int = 100
    """The number of runs that the store keeps, those of the latest occurrences."""


class SwapResult(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to an exchange."""

    ok: bool
    now: int
    rev: int = 0
    """The number of the row now; 0 if there is no row."""
    taken: int | None = None
    """An occurrence that has a job already and was to get another."""
    enqueued: tuple[Enqueued, ...] = ()


class DueSchedules(msgspec.Struct, frozen=True, kw_only=True):
    """The schedules that a scheduler has to read now."""

    now: int
    rows: tuple[ScheduleRow, ...] = ()
    next_look: int | None = None
    """The earliest ``look`` of the other schedules; None if there is none."""


class ScheduleDependency(msgspec.Struct, frozen=True):
    """The schedules on which a schedule depends."""

    name: str
    after: tuple[str, ...]
    """Each of these must have succeeded since the last start of this schedule. Empty: no dependencies."""


class ScheduleDependencyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that depends on others, as the store has it."""

    name: str
    after: tuple[tuple[str, bool], ...]
    """By name: the schedule on which it depends, and whether that has succeeded since the last start."""
    waiting: tuple[bytes, ...] = ()
    """The ids of its jobs that wait for dependencies, the first enqueued first; at most 100."""
