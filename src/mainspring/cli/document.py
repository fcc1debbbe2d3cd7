"""Records as JSON documents: one conversion for every command.

A record becomes an object with one key for each of its fields, in the order of the fields. The keys are part of the
command line's interface: scripts read them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec


def document(record: Any, *, without: Collection[str] = (), **more: Any) -> dict[str, Any]:
    """Convert a record to a JSON object: its fields without those named, then ``more``.

    >>> from mainspring.jobs.info import LogEntry
    >>> document(LogEntry(1, datetime(2026, 1, 31, 12, tzinfo=UTC), "info", "started"))
    {'n': 1, 'at': '2026-01-31T12:00:00Z', 'level': 'info', 'text': 'started'}
    """
    fields = {name: getattr(record, name) for name in record.__struct_fields__ if name not in without}
    return {name: json_value(value) for name, value in (fields | more).items()}


def documents(records: Sequence[Any]) -> list[dict[str, Any]]:
    """Convert several records of one kind."""
    return [document(record) for record in records]


def json_value(value: Any) -> Any:
    """Convert a value to what JSON can represent: times as ISO 8601 in UTC, durations as seconds, ids as text."""
    match value:
        case None | bool() | int() | float():
            return value
        case Enum():
            return value.value
        case str():
            return value
        case datetime():
            return iso(value)
        case timedelta():
            return seconds(value)
        case UUID():
            return str(value)
        case msgspec.Struct():
            return document(value)
        case Mapping():
            return {json_value(key): json_value(each) for key, each in value.items()}
        case set() | frozenset():
            return sorted(json_value(each) for each in value)
        case list() | tuple():
            return [json_value(each) for each in value]
        case _:
            return str(value)


def iso(moment: datetime | None) -> str | None:
    """A time in JSON: ISO 8601, UTC, with microseconds if there are any."""
    return None if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def seconds(length: timedelta | None) -> float | None:
    """A duration in JSON: seconds, rounded to microseconds."""
    return None if length is None else round(length.total_seconds(), 6)
