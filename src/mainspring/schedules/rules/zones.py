"""Time zones: conversion between moments and wall times.

A wall time is what a clock on a wall of that zone shows. In a *gap* clocks go forward: some wall times do not exist. In
a *fold* clocks go back: some wall times occur twice. All moments here are whole seconds since 1970-01-01 UTC; wall
times are datetimes without a time zone.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any

from mainspring.errors import InvalidOption, did_you_mean

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - wall time has no zone
_MACHINE_ZONES = ("localtime", "posixrules")
"""Names that mean a different zone on each machine."""


class Zone:
    """One time zone; ``info`` is None for UTC, which needs no database."""

    __slots__ = ("info",)

    def __init__(self, info: tzinfo | None) -> None:
        self.info = info

    def offset(self, moment: int) -> int:
        """Return by how many seconds wall time is ahead of UTC at a moment."""
        return 0 if self.info is None else _seconds(self.info.utcoffset(self.wall(moment)))

    def wall(self, moment: int) -> datetime:
        """Return the wall time of a moment. ``fold`` is 1 the second time the clock shows it."""
        utc = _EPOCH + timedelta(seconds=moment)
        if self.info is None:
            return utc
        return self.info.fromutc(utc.replace(tzinfo=self.info)).replace(tzinfo=None)

    def offsets(self, wall: datetime) -> tuple[int, int]:
        """Return the offsets of a wall time at its first and its second occurrence; in a gap, before and after the gap.

        In a fold the first offset is larger, in a gap the second. Otherwise they are equal.
        """
        if self.info is None:
            return 0, 0
        first, second = (wall.replace(fold=0), wall) if wall.fold else (wall, wall.replace(fold=1))
        return _seconds(self.info.utcoffset(first)), _seconds(self.info.utcoffset(second))

    def change(self, low: int, high: int) -> int:
        """Return the moment in (low, high] at which the offset changes."""
        before = self.offset(low)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.offset(middle) == before else (low, middle)
        return high


def seconds(wall: datetime) -> int:
    """Return the seconds since 1970 of a wall time, read as UTC."""
    return _seconds(wall - _EPOCH)


def check_zone(value: Any, name: str = "tz") -> str:
    """Return the name of a time zone, given as a name or a ``ZoneInfo``. ``name`` is the option in error messages."""
    if isinstance(value, tzinfo):
        key = "UTC" if value is timezone.utc else getattr(value, "key", None)  # noqa: UP017 - as the type checkers know it
        if not isinstance(key, str):
            raise InvalidOption(name, value, "is not a named time zone", hint=_HINT)
        value = key
    if not isinstance(value, str) or not value:
        raise InvalidOption(name, value, "must be the name of a time zone", hint=_HINT)
    load_zone(value, name)
    return value


def load_zone(key: str, name: str = "tz") -> Zone:
    """Load the zone of this name; ``InvalidOption`` with a hint if this machine does not know it."""
    try:
        return _load(key)
    except (LookupError, ValueError, OSError):
        raise _unknown(key, name) from None


@lru_cache(maxsize=1_000)
def _load(key: str) -> Zone:
    if key == "UTC":
        return Zone(None)
    from zoneinfo import ZoneInfo

    if key in _MACHINE_ZONES or key.startswith(("right/", "posix/")):
        raise LookupError(key)
    return Zone(ZoneInfo(key))


def _unknown(key: str, name: str) -> InvalidOption:
    from zoneinfo import available_timezones

    known = sorted(available_timezones())
    if not known:
        why = "this machine has no time zone database"
        hint = "Install one: pip install tzdata, or the tzdata package of your system."
        return InvalidOption(name, key, why, hint=hint)
    if key in _MACHINE_ZONES:
        return InvalidOption(name, key, "means a different zone on each machine", hint=_HINT)
    if re.fullmatch(r"(UTC|GMT)?\s*[+-]\s*\d{1,2}(:?\d\d)?", key, re.IGNORECASE):
        hint = "Name a place, which follows its clock changes. The fixed offset UTC+2 is called Etc/GMT-2."
        return InvalidOption(name, key, "is an offset, not the name of a time zone", hint=hint)
    same = [each for each in known if key.lower() in (each.lower(), each.lower().rpartition("/")[2])]
    guess = f"; did you mean {same[0]!r}?" if same else did_you_mean(key, known) if "/" in key else ""
    return InvalidOption(name, key, f"is not a known time zone{guess}", hint=_HINT)


def _seconds(span: timedelta | None) -> int:
    assert span is not None, "every zone of the database has an offset"
    return span.days * 86_400 + span.seconds


_HINT = 'Use a name of the time zone database: tz="Europe/Kyiv", tz="America/New_York", or tz="UTC".'
