"""Text for people: stored text made harmless for a terminal, moments and spans of time as words."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

from mainspring.common.duration import format_duration

_UNSAFE = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
"""Control characters, marks that change the direction of what follows, lone surrogates."""
_IN_A_LINE = re.compile(f"[{_UNSAFE}]")
_IN_A_BLOCK = re.compile(f"(?![\n\t])[{_UNSAFE}]")


def line(value: object) -> str:
    """One line that cannot steer a terminal: control characters are shown, not sent."""
    return _IN_A_LINE.sub(_shown, str(value))


def block(value: object) -> str:
    """The same for text of several lines."""
    return _IN_A_BLOCK.sub(_shown, str(value))


def _shown(match: re.Match[str]) -> str:
    code = ord(match[0])
    short = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(match[0])
    return short or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def short(value: object, limit: int = 60) -> str:
    """One line of at most ``limit`` characters."""
    text = line(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def iso(moment: datetime | None) -> str | None:
    """A moment as JSON has it: ISO 8601, UTC, microseconds if there are any."""
    return None if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def when(moment: datetime | None, now: datetime | None = None) -> str:
    """A moment for people: UTC to the second, and how long ago or ahead that is."""
    if moment is None:
        return "-"
    return f"{to_second(moment)} ({ago((now or datetime.now(UTC)) - moment)})"


def to_second(moment: datetime) -> str:
    """A moment for people where there is little room."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def ago(span: timedelta) -> str:
    """``3 m ago``, or ``in 3 m`` for what is ahead."""
    seconds = int(abs(span).total_seconds())
    ahead = span < timedelta(seconds=-1)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        if seconds >= size or unit == "s":
            break
    text = f"{seconds // size} {unit}"
    return f"in {text}" if ahead else f"{text} ago"


def span(length: timedelta | None) -> str:
    """A length of time for people: ``1m2s``, ``35ms``."""
    if length is None:
        return "-"
    ms = round(length.total_seconds() * 1000)
    return format_duration(timedelta(milliseconds=ms if ms < 10_000 else round(ms, -2)))


def seconds(length: timedelta | None) -> float | None:
    """A length of time as JSON has it."""
    return None if length is None else round(length.total_seconds(), 6)


def to_json(document: Any, *, compact: bool) -> str:
    """One JSON document; what could steer a terminal is escaped."""
    text = json.dumps(document, ensure_ascii=False, indent=None if compact else 2, default=plain)
    return re.sub(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", _escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def plain(value: Any) -> Any:
    """What JSON has no word for."""
    match value:
        case datetime():
            return iso(value)
        case timedelta():
            return seconds(value)
        case UUID():
            return str(value)
        case Enum():
            return value.value
        case set() | frozenset():
            return sorted(value)
        case tuple():
            return list(value)
        case _:
            return str(value)
