"""Records of schedules that the core and a store exchange.

A schedule is one row. A caller that knows the number of the row exchanges the row for another (:class:`ScheduleSwap`),
together with the jobs of the exchange. ``doc`` belongs to the core: a store keeps and returns it.
"""

from __future__ import annotations

import msgspec

from mainspring.jobs.records import Enqueued

ALWAYS_DUE = 0
"""The ``look`` of a row that a scheduler has to read in each of its ticks, because the schedule waits for something
that has no known moment."""


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as the store has it."""

    name: str
    rev: int
    """The number of the row. Each exchange makes a greater number, also after a schedule of this name was deleted."""
    look: int | None
    """When a scheduler has to read the row, :data:`ALWAYS_DUE` for each of its ticks; None: only after a change."""
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
