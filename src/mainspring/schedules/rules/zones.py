"""Time zones: what the clocks on the wall show, and when.

Two things make wall time hard. In a *gap* clocks are put forward: some wall times do not come. In a *fold* they are put
back: some come twice. All moments here are whole seconds since 1970, UTC; wall times are datetimes without a zone.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any

from mainspring.errors import InvalidOption, did_you_mean

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - wall time has no zone
_OF_THE_MACHINE = ("localtime", "posixrules")
"""Names that mean another zone on another machine."""


class Zone:
    """One time zone; ``info`` is None for UTC, which needs no database."""

    __slots__ = ("info",)

    def __init__(self, info: tzinfo | None) -> None:
        self.info = info

    def offset(self, moment: int) -> int:
        """Seconds by which wall time is ahead of UTC at a moment."""
        return 0 if self.info is None else _seconds(self.info.utcoffset(self.wall(moment)))

    def wall(self, moment: int) -> datetime:
        """What the wall shows; ``fold`` is 1 when it shows it for the second time."""
        utc = _EPOCH + timedelta(seconds=moment)
        if self.info is None:
            return utc
        return self.info.fromutc(utc.replace(tzinfo=self.info)).replace(tzinfo=None)

    def offsets(self, wall: datetime) -> tuple[int, int]:
        """The offset of a wall time the first and the second time; in a gap, those before and after it.

        So the first is larger in a fold, the second in a gap, and otherwise they are equal.
        """
        if self.info is None:
            return 0, 0
        first, second = (wall.replace(fold=0), wall) if wall.fold else (wall, wall.replace(fold=1))
        return _seconds(self.info.utcoffset(first)), _seconds(self.info.utcoffset(second))

    def change(self, low: int, high: int) -> int:
        """The moment in (low, high] from which on the offset is another than at ``low``."""
        before = self.offset(low)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.offset(middle) == before else (low, middle)
        return high


def seconds(wall: datetime) -> int:
    """Wall time as if it were UTC."""
    return _seconds(wall - _EPOCH)


def zone_name(value: Any, name: str = "tz") -> str:
    """The name of a time zone that this machine knows, from its name or a ``ZoneInfo``; ``name`` is the option's."""
    if isinstance(value, tzinfo):
        key = "UTC" if value is timezone.utc else getattr(value, "key", None)  # noqa: UP017 - as the type checkers know it
        if not isinstance(key, str):
            raise InvalidOption(name, value, "is no named time zone", hint=_HINT)
        value = key
    if not isinstance(value, str) or not value:
        raise InvalidOption(name, value, "must be the name of a time zone", hint=_HINT)
    load(value, name)
    return value


def load(key: str, name: str = "tz") -> Zone:
    """The zone of this name, or ``InvalidOption`` that says what to do."""
    try:
        return _load(key)
    except (LookupError, ValueError, OSError):
        raise _unknown(key, name) from None


@lru_cache(maxsize=1_000)
def _load(key: str) -> Zone:
    if key == "UTC":
        return Zone(None)
    from zoneinfo import ZoneInfo

    if key in _OF_THE_MACHINE or key.startswith(("right/", "posix/")):
        raise LookupError(key)
    return Zone(ZoneInfo(key))


def _unknown(key: str, name: str) -> InvalidOption:
    from zoneinfo import available_timezones

    known = sorted(available_timezones())
    if not known:
        why = "this machine has no time zone database"
        return InvalidOption(name, key, why, hint="Install it: pip install tzdata, or your system's tzdata package.")
    if key in _OF_THE_MACHINE:
        return InvalidOption(name, key, "means another zone on each machine", hint=_HINT)
    if re.fullmatch(r"(UTC|GMT)?\s*[+-]\s*\d{1,2}(:?\d\d)?", key, re.IGNORECASE):
        hint = "A fixed offset of 2 hours ahead of UTC is called Etc/GMT-2; a place follows its clock changes."
        return InvalidOption(name, key, "is an offset, not the name of a time zone", hint=hint)
    same = [each for each in known if key.lower() in (each.lower(), each.lower().rpartition("/")[2])]
    guess = f"; did you mean {same[0]!r}?" if same else did_you_mean(key, known) if "/" in key else ""
    return InvalidOption(name, key, f"no such time zone{guess}", hint=_HINT)


def _seconds(span: timedelta | None) -> int:
    assert span is not None, "every zone of the database has an offset"
    return span.days * 86_400 + span.seconds


_HINT = 'Name a place of the time zone database: tz="Europe/Kyiv", tz="America/New_York", or tz="UTC".'
