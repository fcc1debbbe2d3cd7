"""Wall time in whole microseconds since 1970, UTC; and a clock that tests can move.

Leases and due times use the clock of the store. These clocks are for times inside one process, and replace the clock
of the store in tests.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from mainspring.common.duration import Duration, to_us
from mainspring.errors import InvalidOption

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """A clock."""

    def now_us(self) -> int:
        """Microseconds since 1970, UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    def now_us(self) -> int:
        return time.time_ns() // 1_000

    def __repr__(self) -> str:
        return "SystemClock()"


class MovableClock:
    """A clock that does not move by itself.

    >>> clock = MovableClock()
    >>> before = clock.now_us()
    >>> clock.advance("1h") - before
    3600000000
    """

    __slots__ = ("_lock", "_now")

    def __init__(self, start: datetime | None = None) -> None:
        self._lock = threading.Lock()
        self._now = time.time_ns() // 1_000 if start is None else from_datetime(start, what="start")

    def now_us(self) -> int:
        return self._now

    def now(self) -> datetime:
        """The time of the clock as an aware datetime in UTC."""
        return to_datetime(self._now)

    def advance(self, by: Duration) -> int:
        """Move forward; returns the new time."""
        step = to_us(by, what="advance")
        with self._lock:
            self._now += step
            return self._now

    def set(self, to: datetime) -> int:
        """Set the clock, also backwards; returns the new time."""
        self._now = from_datetime(to, what="set")
        return self._now

    def __repr__(self) -> str:
        return f"MovableClock({to_datetime(self._now).isoformat()})"


LONG_AGO = float("-inf")
"""A time before every time of ``boottime``, which starts near 0 on a machine that has just booted."""
_BOOTTIME: int = getattr(time, "CLOCK_BOOTTIME", -1)


def boottime() -> float:
    """Monotonic seconds; on Linux they include the time that the machine was suspended."""
    return time.monotonic() if _BOOTTIME < 0 else time.clock_gettime(_BOOTTIME)


def to_datetime(us: int) -> datetime:
    """Microseconds since 1970 as an aware UTC datetime."""
    return _EPOCH + timedelta(microseconds=us)


def from_datetime(moment: datetime, *, what: str = "datetime") -> int:
    """An aware datetime as microseconds since 1970; a naive one is refused. ``what`` is named in the error."""
    if not isinstance(moment, datetime):
        raise InvalidOption(
            what,
            moment,
            f"must be a datetime, not {type(moment).__name__}",
            hint="Write datetime(2030, 1, 1, tzinfo=UTC); for a time relative to now, use a duration.",
        )
    if moment.utcoffset() is None:
        raise InvalidOption(
            what,
            moment,
            "the datetime has no time zone",
            hint="Write datetime.now(UTC), or moment.replace(tzinfo=ZoneInfo(...)).",
        )
    try:
        gap = moment.astimezone(UTC) - _EPOCH
    except OverflowError:
        hint = "The time in UTC must be in the years 1 to 9999."
        raise InvalidOption(what, moment, "is outside of the calendar", hint=hint) from None
    return (gap.days * 86_400 + gap.seconds) * 1_000_000 + gap.microseconds
