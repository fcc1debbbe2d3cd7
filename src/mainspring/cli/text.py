"""Text for a terminal: control characters escaped, times and durations in short form."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from mainspring.cli.document import json_value
from mainspring.common.duration import format_duration
from mainspring.common.text import cut

_UNSAFE = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
"""Control characters, marks that change the direction of text, lone surrogates."""
_IN_A_LINE = re.compile(f"[{_UNSAFE}]")
_IN_A_BLOCK = re.compile(f"(?![\n\t])[{_UNSAFE}]")


def line(value: object) -> str:
    """Text as one line. Control characters are escaped, so that stored text cannot control the terminal."""
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
    return cut(line(value), limit)


def when(moment: datetime | None, now: datetime | None = None) -> str:
    """A time in UTC to the second, with its distance from now."""
    if moment is None:
        return "-"
    return f"{to_second(moment)} ({ago((now or datetime.now(UTC)) - moment)})"


def to_second(moment: datetime) -> str:
    """A time in UTC to the second."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def ago(span: timedelta) -> str:
    """``3 m ago``, or ``in 3 m`` for a time in the future."""
    seconds = int(abs(span).total_seconds())
    ahead = span < timedelta(seconds=-1)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        if seconds >= size or unit == "s":
            break
    text = f"{seconds // size} {unit}"
    return f"in {text}" if ahead else f"{text} ago"


def span(length: timedelta | None) -> str:
    """A duration in short form: ``1m2s``, ``35ms``, ``<1ms``."""
    if length is None:
        return "-"
    ms = round(length.total_seconds() * 1000)
    if not ms and length:
        return "<1ms"
    return format_duration(timedelta(milliseconds=ms if ms < 10_000 else round(ms, -2)))


def to_json(document: Any, *, compact: bool) -> str:
    """One JSON document; characters that could control a terminal are escaped."""
    text = json.dumps(document, ensure_ascii=False, indent=None if compact else 2, default=json_value)
    return re.sub(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", _escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
