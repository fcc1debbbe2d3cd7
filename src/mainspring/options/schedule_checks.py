"""The checks of schedule options, as in ``checks``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from mainspring.errors import InvalidOption
from mainspring.options.checks import some_task_name, span, wait
from mainspring.schedules.rules import zone_name

MOST_FAILURES = 1_000
HISTORY_LIMIT = 10_000


class HasName(Protocol):
    """A task, which stands for the one schedule on it."""

    @property
    def name(self) -> str: ...


Part: TypeAlias = str | HasName
"""A schedule by its name, or by the task that it stands on."""


class ScheduleGroup(msgspec.Struct, frozen=True):
    """Schedules of which only so many run at once: ``app.schedules.group(name, max_concurrent=)``."""

    name: str
    max_concurrent: int

    def __str__(self) -> str:
        return self.name


def schedule_name(value: Any, name: str) -> str:
    try:
        found = some_task_name(value, name)
    except InvalidOption:
        found = "="
    if "=" in found:
        hint = "1 to 200 characters without spaces and without =."
        raise InvalidOption(name, value, "is not a name for a schedule", hint=hint)
    return found


def parts(value: Any, name: str) -> tuple[Any, ...]:
    """Names, or tasks, which are looked up when all modules are in."""
    given = value if isinstance(value, (list, tuple, set, frozenset)) else () if value is None else (value,)
    return tuple(dict.fromkeys(part(each, name) for each in given))


def part(value: Any, name: str) -> Any:
    """A name, or a task."""
    if isinstance(value, str):
        return schedule_name(value, name)
    if isinstance(getattr(value, "name", None), str) and callable(getattr(value, "s", None)):
        return value
    hint = f'{name}="import", {name}=clean: the name of a schedule, or a task that has one.'
    raise InvalidOption(name, value, "is neither the name of a schedule nor a task", hint=hint)


def group(value: Any, name: str) -> str | None:
    if value is None:
        return None
    return value.name if isinstance(value, ScheduleGroup) else schedule_name(value, name)


def zone(value: Any, name: str) -> str | None:
    return None if value is None else zone_name(value, name=name)


def wait_or_nothing(value: Any, name: str) -> int:
    return 0 if value is None else wait(value, name)


def span_or_never(value: Any, name: str) -> int | None:
    return None if value is None else span(value, name)


def names_of(given: Sequence[Any]) -> tuple[str, ...]:
    """For people."""
    return tuple(each if isinstance(each, str) else each.name for each in given)
