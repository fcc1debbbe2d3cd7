"""Durations as users write them: ``"90s"``, ``"1h30m"``, ``"500ms"``.

A duration is text, a number of seconds or a ``timedelta``; its normal form is whole microseconds. Text is one or more
pairs of a number and a unit, in any order, with or without spaces: ``w d h m s ms us`` and their English words. Text
with only a number means seconds.
"""

from __future__ import annotations

import re
from datetime import timedelta
from math import isfinite

from mainspring.errors import InvalidOption

Duration = str | float | int | timedelta

LONGEST_US = 36_525 * 86_400_000_000  # a century: a longer duration is a mistake

_UNITS_US = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_WORDS = {
    **{name: name for name in _UNITS_US},
    **dict.fromkeys(("µs", "microsecond", "microseconds"), "us"),
    **dict.fromkeys(("millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("day", "days"), "d"),
    **dict.fromkeys(("week", "weeks"), "w"),
}
_DURATION_HINT = 'Write "90s", "1h30m" or "500ms", a number of seconds, or a timedelta.'


def to_us(value: Duration, *, what: str = "duration", allow_negative: bool = False) -> int:
    """The duration in whole microseconds; ``what`` names it in the error.

    >>> to_us("1h30m")
    5400000000
    """
    us = _read_duration(value, what)
    if us < 0 and not allow_negative:
        raise InvalidOption(what, value, "a duration cannot be negative")
    if abs(us) > LONGEST_US:
        raise InvalidOption(what, value, "longer than a century", hint=_DURATION_HINT)
    return us


def to_seconds(value: Duration, *, what: str = "duration", allow_negative: bool = False) -> float:
    """The duration in seconds."""
    return to_us(value, what=what, allow_negative=allow_negative) / 1_000_000


def to_timedelta(value: Duration, *, what: str = "duration", allow_negative: bool = False) -> timedelta:
    """The duration as a ``timedelta``."""
    return timedelta(microseconds=to_us(value, what=what, allow_negative=allow_negative))


def format_duration(value: Duration) -> str:
    """The shortest text that means the same duration.

    >>> format_duration(5400), format_duration(0.5), format_duration("61.25s")
    ('1h30m', '500ms', '1m1.25s')
    """
    us = to_us(value, allow_negative=True)
    sign, us = ("-", -us) if us < 0 else ("", us)
    if us == 0:
        return "0s"
    if us < 1_000_000:
        return sign + (f"{us}us" if us < 1_000 else _decimal(us, 1_000) + "ms")
    parts = []
    for unit in "dhm":
        count, us = divmod(us, _UNITS_US[unit])
        if count:
            parts.append(f"{count}{unit}")
    if us:
        parts.append(_decimal(us, 1_000_000) + "s")
    return sign + "".join(parts)


def _read_duration(value: Duration, what: str) -> int:
    if isinstance(value, str):
        return _read_text(value, what)
    if isinstance(value, timedelta):
        return (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidOption(what, value, f"a duration cannot be {type(value).__name__}", hint=_DURATION_HINT)
    if isinstance(value, int):
        return value * 1_000_000
    if not isfinite(value):
        raise InvalidOption(what, value, "a duration must be finite", hint=_DURATION_HINT)
    return round(value * 1_000_000) if abs(value) < 1e12 else int(value) * 1_000_000


def _read_text(text: str, what: str) -> int:
    body = text.strip()
    negative = body.startswith("-")
    body = body.removeprefix("-").strip()
    if re.fullmatch(r"\d{1,18}(\.\d{1,18})?", body, re.ASCII):
        total = scaled(body, 1_000_000)
    else:
        total = _read_pairs(text, body, what)
    return -total if negative else total


def _read_pairs(text: str, body: str, what: str) -> int:
    if not re.fullmatch(r"([0-9]{1,18}(\.[0-9]{1,18})?\s*[A-Za-zµ]+\s*)+", body):
        why = "is empty" if not body else "cannot be read as a duration"
        raise InvalidOption(what, text, why, hint=_DURATION_HINT)
    total, seen = 0, set()
    for number, word in re.findall(r"(\d+(?:\.\d+)?)\s*([A-Za-zµ]+)", body):
        unit = _WORDS.get(word)
        if unit is None:
            raise InvalidOption(what, text, f"unknown unit {word!r}", hint=_DURATION_HINT)
        if unit in seen:
            raise InvalidOption(what, text, f"unit {word!r} is given twice", hint=_DURATION_HINT)
        seen.add(unit)
        total += scaled(number, _UNITS_US[unit])
    return total


def scaled(number: str, factor: int) -> int:
    """``number * factor``, rounded to a whole number, computed without binary fractions."""
    whole, _, fraction = number.partition(".")
    scale: int = 10 ** len(fraction)
    return (int(whole + fraction) * factor * 2 + scale) // (2 * scale)


def _decimal(count: int, unit: int) -> str:
    whole, rest = divmod(count, unit)
    digits = len(str(unit)) - 1
    return f"{whole}.{rest:0{digits}d}".rstrip("0").rstrip(".")
