"""The moments of a cron expression in a time zone, also where clocks change.

cronsim knows the calendar: it is asked for wall times, without a zone. Which moments those are is decided here, for
cronsim 2.8 loses ticks beside a change of half an hour, takes some that do not come, and answers with moments that
are over when it starts in a repeated hour.

Fixed times (no field of the time begins with ``*``) come once a day: in a gap at its end, in a fold the first time.
All others are ticks: they come whenever the wall shows them, so never in a gap and twice in a fold.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from mainspring.errors import InvalidOption
from mainspring.schedules.rules.zones import Zone, seconds

_SECOND = timedelta(seconds=1)
_HORIZON = timedelta(days=51 * 366)
"""The calendar repeats the rarest days, such as 29 February on a Monday, within 40 years."""
LAST_YEAR = 9_900
"""Nothing occurs after it: beyond, the calendar ends."""


class Calendar:
    """The wall times that an expression matches."""

    __slots__ = ("_expression", "_found", "_walk")

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._found: datetime | None = None
        self._walk: Iterator[datetime] = iter(())

    def after(self, wall: datetime) -> datetime | None:
        """The first one later than ``wall``, or None if there is none for 50 years."""
        if wall.year > LAST_YEAR:
            return None
        if self._found is None or wall != self._found:
            self._walk = _cronsim(self._expression, wall.replace(fold=0))
        try:
            self._found = next(self._walk, None)
        except (OverflowError, ValueError):  # it looked for a day after the year 9999
            self._found = None
        return self._found


def _cronsim(expression: str, wall: datetime) -> Iterator[datetime]:
    from cronsim import CronSim, CronSimError

    try:
        return CronSim(expression, wall)
    except CronSimError as error:
        hint = "Look at the days: these months have fewer." if "day-of-month" in str(error) else ""
        raise InvalidOption("cron", expression, f"is not possible: {error}", hint=hint) from None


def fixed(calendar: Calendar, zone: Zone, last: int) -> Iterator[int]:
    """Once per wall time, later than ``last``, in seconds."""
    start = since = zone.wall(last)
    while (wall := calendar.after(start)) is not None and wall - since < _HORIZON:
        before, later = zone.offsets(wall)
        tick, start = seconds(wall) - before, wall
        if before < later:
            tick = _end_of_gap(zone, wall)
            start = zone.wall(tick)
        if tick > last:  # not so for what already came before a fold
            yield tick
            last, since = tick, start


def real(calendar: Calendar, zone: Zone, last: int) -> Iterator[int]:
    """Whenever the wall shows it, later than ``last``, in seconds."""
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
        if second > last:  # always so, unless a zone changed twice within hours
            last = first if first > last else second
            yield last


def _before_the_turn(calendar: Calendar, zone: Zone, wall: datetime | None, last: int, size: int) -> datetime | None:
    """``wall``, if it comes before clocks are put back by ``size``; else the first one from where they are put to."""
    turn = zone.change(last, last + size)
    if wall is not None and seconds(wall) - zone.offset(last) < turn:
        return wall
    return calendar.after(zone.wall(turn).replace(fold=0) - _SECOND)


def _outside_of_gaps(calendar: Calendar, zone: Zone, wall: datetime | None, since: datetime) -> datetime | None:
    """``wall``, or the first one after it that clocks show."""
    while wall is not None and wall - since < _HORIZON:
        before, later = zone.offsets(wall)
        if before >= later:
            return wall
        wall = calendar.after(zone.wall(_end_of_gap(zone, wall)) - _SECOND)
    return None


def _end_of_gap(zone: Zone, wall: datetime) -> int:
    """The first moment after the gap that this wall time falls into."""
    before, later = zone.offsets(wall)
    return zone.change(seconds(wall) - later, seconds(wall) - before)
