"""The moments of a cron expression in a time zone, also on days when clocks change.

cronsim computes wall times, without a time zone. This module maps wall times to moments, because cronsim 2.8 makes
mistakes with time zones: it loses ticks next to a change of half an hour, returns wall times that do not exist, and
returns moments in the past when it starts in a repeated hour.

Two kinds of expressions differ. A fixed time (no time field begins with ``*``) occurs once a day: in a gap at the end
of the gap, in a fold the first time. All others are repeating times: they occur whenever a clock on the wall shows
them, so never in a gap and twice in a fold.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from mainspring.errors import InvalidOption
from mainspring.schedules.rules.zones import Zone, seconds

_SECOND = timedelta(seconds=1)
_HORIZON = timedelta(days=51 * 366)
"""Longer than the gap between the rarest days: 29 February on a Monday occurs at least every 40 years."""
LAST_YEAR = 9_900
"""There are no occurrences after this year, because the calendar of Python ends with the year 9999."""


class Calendar:
    """The wall times that an expression matches."""

    __slots__ = ("_expression", "_found", "_walk")

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._found: datetime | None = None
        self._walk: Iterator[datetime] = iter(())

    def after(self, wall: datetime) -> datetime | None:
        """Return the first wall time later than ``wall``; None if there is none for 50 years."""
        if wall.year > LAST_YEAR:
            return None
        if self._found is None or wall != self._found:
            self._walk = _cronsim(self._expression, wall.replace(fold=0))
        try:
            self._found = next(self._walk, None)
        except (OverflowError, ValueError):  # cronsim searched beyond the year 9999
            self._found = None
        return self._found


def _cronsim(expression: str, wall: datetime) -> Iterator[datetime]:
    from cronsim import CronSim, CronSimError

    try:
        return CronSim(expression, wall)
    except CronSimError as error:
        hint = "Check the day of the month: these months have fewer days." if "day-of-month" in str(error) else ""
        raise InvalidOption("cron", expression, f"is not possible: {error}", hint=hint) from None


def fixed_times(calendar: Calendar, zone: Zone, last: int) -> Iterator[int]:
    """Iterate over the moments of a fixed time, later than ``last``, in seconds: each wall time once."""
    start = since = zone.wall(last)
    while (wall := calendar.after(start)) is not None and wall - since < _HORIZON:
        before, later = zone.offsets(wall)
        tick, start = seconds(wall) - before, wall
        if before < later:
            tick = _end_of_gap(zone, wall)
            start = zone.wall(tick)
        if tick > last:  # false for a wall time that occurred already, before a fold
            yield tick
            last, since = tick, start


def repeating_times(calendar: Calendar, zone: Zone, last: int) -> Iterator[int]:
    """Iterate over the moments of a repeating time, later than ``last``, in seconds: each time a clock shows it."""
    since = zone.wall(last)
    before, later = zone.offsets(since)
    while True:
        wall = calendar.after(since)
        if before > later and not since.fold:
            wall = _before_the_turn(calendar, zone, wall, last, before - later)
        wall = _outside_of_gaps(calendar, zone, wall, since)
        if wall is None:
            return
        before, later = zone.offsets(wall)
        first, second = seconds(wall) - before, seconds(wall) - later
        since = wall if first > last else wall.replace(fold=1)
        if second > last:  # false only if a zone changed twice within hours
            last = first if first > last else second
            yield last


def _before_the_turn(calendar: Calendar, zone: Zone, wall: datetime | None, last: int, size: int) -> datetime | None:
    """Return ``wall`` if it is before the clocks go back by ``size``; else the first wall time after the change."""
    turn = zone.change(last, last + size)
    if wall is not None and seconds(wall) - zone.offset(last) < turn:
        return wall
    return calendar.after(zone.wall(turn).replace(fold=0) - _SECOND)


def _outside_of_gaps(calendar: Calendar, zone: Zone, wall: datetime | None, since: datetime) -> datetime | None:
    """Return ``wall``, or the first wall time after it that is not in a gap."""
    while wall is not None and wall - since < _HORIZON:
        before, later = zone.offsets(wall)
        if before >= later:
            return wall
        wall = calendar.after(zone.wall(_end_of_gap(zone, wall)) - _SECOND)
    return None


def _end_of_gap(zone: Zone, wall: datetime) -> int:
    """Return the first moment after the gap that contains this wall time."""
    before, later = zone.offsets(wall)
    return zone.change(seconds(wall) - later, seconds(wall) - before)
