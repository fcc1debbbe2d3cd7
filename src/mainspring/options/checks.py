"""The check of each option. Every check takes the value and the option's name.

It returns the value in normal form, or raises ``InvalidOption`` with the option's name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from mainspring.common.backoff import Backoff, coerce
from mainspring.common.callables import is_async, yields
from mainspring.common.clock import from_datetime
from mainspring.common.duration import to_us
from mainspring.common.handles import without_options
from mainspring.common.sizes import to_bytes
from mainspring.common.text import storable
from mainspring.errors import InvalidOption, NotBuilt
from mainspring.queues.queue import Queue

TAGS_LIMIT = 20
TAG_LENGTH = 64
META_LIMIT = 16_000
WORDS_LIMIT = 1_000
LABELS_LIMIT = 10
ALL_ROLES = frozenset({"api", "worker", "scheduler"})
_ROLES = (*ALL_ROLES, "all")
MOST_FAILURES = 1_000
HISTORY_LIMIT = 10_000
PRIORITIES = {"low": -50, "normal": 0, "high": 50, "critical": 100}


def queue_name(value: Any, name: str) -> str:
    if isinstance(value, Queue):
        return value.name
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}", value, re.ASCII):
        return value
    raise InvalidOption(
        name, value, "is not a queue name", hint="1 to 64 letters, digits and _ . : - ; a letter or digit first."
    )


def queue_names(value: Any, name: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    if not isinstance(value, (list, tuple, set, frozenset)) or not value:
        raise InvalidOption(name, value, "must name at least one queue", hint='queues=["email", "default"]')
    return tuple(dict.fromkeys(queue_name(item, name) for item in value))


def priority(value: Any, name: str) -> int:
    if isinstance(value, str) and value in PRIORITIES:
        return PRIORITIES[value]
    if type(value) is int and -100 <= value <= 100:
        return value
    raise InvalidOption(
        name, value, "must be a whole number from -100 to 100 or a name", hint=f"Names: {', '.join(PRIORITIES)}."
    )


def depth(value: Any, name: str) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= 10_000_000:
        hint = 'To take no jobs, app.queues.disable(name, "reject") or app.queues.drain(name).'
        raise InvalidOption(name, value, "must be a whole number from 1 to 10,000,000, or None", hint=hint)
    return value


def whole(low: int, high: int = 1_000_000) -> Callable[[Any, str], int]:
    def convert(value: Any, name: str) -> int:
        if type(value) is not int or not low <= value <= high:
            raise InvalidOption(name, value, f"must be a whole number from {low} to {high:,}")
        return value

    return convert


line_number = whole(0, (1 << 63) - 1)


def processes(value: Any, name: str) -> int:
    if isinstance(value, str):
        if re.fullmatch(r"\s*\d+\s*\.\.\s*\d+\s*", value, re.ASCII):
            raise NotBuilt("worker", name, hint="A range of processes is not supported yet: give one number.")
        value = int(value) if re.fullmatch(r"\d{1,6}", value, re.ASCII) else value
    return whole(1, 1_000)(value, name)


def span(value: Any, name: str) -> int:
    us = to_us(value, what=name)
    if us <= 0:
        raise InvalidOption(name, value, "must be greater than zero")
    return us


def span_or_none(value: Any, name: str) -> int | None:
    return None if value is None else span(value, name)


def wait(value: Any, name: str) -> int:
    return to_us(value, what=name)


def wait_or_none(value: Any, name: str) -> int | None:
    return None if value is None else wait(value, name)


def moment(value: Any, name: str) -> int | None:
    return None if value is None else from_datetime(value, what=name)


def flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidOption(name, value, "must be True or False")
    return value


def choice(*allowed: str | None) -> Callable[[Any, str], Any]:
    def convert(value: Any, name: str) -> Any:
        if not isinstance(value, str | None) or value not in allowed:
            raise InvalidOption(name, value, f"must be {' or '.join(repr(each) for each in allowed if each)}")
        return value

    return convert


def whole_or_none(low: int, high: int = 1_000_000_000) -> Callable[[Any, str], int | None]:
    def convert(value: Any, name: str) -> int | None:
        return None if value is None else whole(low, high)(value, name)

    return convert


def size_or_none(value: Any, name: str) -> int | None:
    return None if value is None else to_bytes(value, what=name)


def pool_or_none(value: Any, name: str) -> str | None:
    return None if value is None else pool_name(getattr(value, "name", value), name)


def pool_name(value: Any, name: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[a-z][a-z0-9_-]{0,39}", value):
        hint = "1 to 40 lower-case letters, digits, - and _; the first a letter."
        raise InvalidOption(name, value, "is not the name of a pool", hint=hint)
    return value


def task_name(value: Any, name: str) -> str | None:
    return None if value is None else some_task_name(value, name)


def some_task_name(value: Any, name: str) -> str:
    if isinstance(value, str) and re.fullmatch(r"[^\s\x00-\x1f\x7f\ud800-\udfff]{1,200}", value):
        return value
    raise InvalidOption(name, value, "is not a task name", hint="1 to 200 characters without spaces.")


def task_names(value: Any, name: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidOption(name, value, "must be a list of names", hint='aliases=["shop.old_name"]')
    return tuple(some_task_name(item, name) for item in value)


def error_classes(value: Any, name: str) -> tuple[type[Exception], ...]:
    classes = (value,) if isinstance(value, type) else value
    if isinstance(classes, Sequence) and all(isinstance(c, type) and issubclass(c, Exception) for c in classes):
        return tuple(classes)
    raise InvalidOption(name, value, "must be exception classes", hint=f"{name}=(ConnectionError, TimeoutError)")


def predicate(value: Any, name: str) -> Any:
    if value is not None and not callable(value):
        raise InvalidOption(name, value, "must be a function(error) that returns True or False")
    return _refuse_unrun(value, name)


def backoff(value: Any, name: str) -> Backoff:
    return coerce(_refuse_unrun(value, name), what=name)


def _refuse_unrun(value: Any, name: str) -> Any:
    """Refuse an ``async def`` or a generator function: its call returns an object, and runs nothing."""
    if callable(value) and (is_async(value) or yields(value)):
        hint = "Write a def. What it needs to await, put on the exception, or do it in the task."
        raise InvalidOption(name, value, "must be a plain def: nothing awaits its answer", hint=hint)
    return value


def concurrency(value: Any, name: str) -> int | dict[str, int]:
    if type(value) is int:
        return whole(1)(value, name)
    if not isinstance(value, Mapping):
        hint = 'concurrency=4 is for all jobs of a process, concurrency={"email": 5} for the jobs of a queue.'
        raise InvalidOption(name, value, "must be a whole number, or map queues to whole numbers", hint=hint)
    return {queue_name(queue, name): whole(1)(size, f"{name}[{queue!r}]") for queue, size in value.items()}


def roles(value: Any, name: str) -> frozenset[str]:
    given = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(given, (list, tuple, set, frozenset)) or not given or any(each not in _ROLES for each in given):
        raise InvalidOption(name, value, "must be among api, worker, scheduler and all", hint='roles=["worker"]')
    return ALL_ROLES if "all" in given else frozenset(given)


def weight(value: Any, name: str) -> int | float:
    if type(value) in (int, float) and 0.001 <= value <= 1_000_000:
        found: int | float = value
        return found
    hint = "A queue with weight 5 gets 5 times the claims of a queue with weight 1."
    raise InvalidOption(name, value, "must be a number from 0.001 to 1,000,000", hint=hint)


def by(value: Any, name: str) -> Any:
    """A path into the item of a bulk task, or a function of the item."""
    if value is None or (isinstance(value, str) and all(part.isidentifier() for part in value.split("."))):
        return value
    if not isinstance(value, str) and callable(value) and not is_async(value):
        return value
    hint = f'{name}="tenant", {name}="customer.region", or a def that takes the item.'
    raise InvalidOption(name, value, "must be an attribute path of the item or a def", hint=hint)


def share(value: Any, name: str) -> float | None:
    if value is None or (type(value) in (int, float) and 0 < value <= 1):
        return None if value is None else float(value)
    hint = f"{name}=0.5 means that half of the calls fail."
    raise InvalidOption(name, value, "must be a number above 0 and at most 1", hint=hint)


def fallback(value: Any, name: str) -> Any:
    if value is None or (callable(value) and not isinstance(value, type) and not hasattr(value, "declared")):
        return value
    hint = "The function gets the arguments of the call and returns a value of the same type. It can enqueue a job."
    raise InvalidOption(name, value, "must be a function", hint=hint)


def needs(value: Any, name: str) -> tuple[str, ...]:
    if isinstance(value, str):
        raise InvalidOption(name, value, "must be a set of labels", hint=f'{name}={{"gpu"}}')
    return labels(value, name)


def labels(value: Any, name: str) -> tuple[str, ...]:
    given = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(given, (list, tuple, set, frozenset)):
        raise InvalidOption(name, value, "must be a set of labels", hint=f'{name}={{"gpu"}}')
    for each in given:
        if not isinstance(each, str) or not re.fullmatch(r"[a-z0-9_-]{1,40}", each, re.ASCII):
            raise InvalidOption(name, each, "is not a label", hint="1 to 40 lower-case letters, digits, _ and -.")
    found = tuple(sorted(set(given)))
    if len(found) > LABELS_LIMIT:
        raise InvalidOption(name, f"{len(found)} labels", f"must be at most {LABELS_LIMIT}")
    return found


def anything(value: Any, name: str) -> Any:  # noqa: ARG001 - the store that uses the connection checks it
    return value


def tags(value: Any, name: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, (list, tuple, set, frozenset)):
        raise InvalidOption(name, value, "must be a list of tags", hint='tags=["import", "customer:42"]')
    for tag in value:
        if not isinstance(tag, str) or not 1 <= len(tag) <= TAG_LENGTH or not tag.isprintable() or tag != tag.strip():
            hint = f"1 to {TAG_LENGTH} printable characters, no space at either end."
            raise InvalidOption(name, tag, "is not a tag", hint=hint)
        if tag.startswith("^"):
            raise InvalidOption(name, tag, "must not begin with ^", hint="^ is reserved for marks of Mainspring.")
    return _few(tuple(dict.fromkeys(sorted(value) if isinstance(value, (set, frozenset)) else value)), name)


def meta(value: Any, name: str) -> dict[str, Any]:
    from mainspring.codec import wire

    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidOption(name, value, "must map names to values", hint='meta={"customer": 42}')
    given = dict(value)
    if (found := wire.unwritable(given, name)) is not None:
        hint = "Use text, numbers, booleans, None, lists and mappings."
        raise InvalidOption(name, found[1], f"{found[0]} is not a JSON value", hint=hint)
    data = wire.encode(given)
    back: dict[str, Any] = wire.decode(data, dict[str, Any])
    if (lost := wire.difference(given, back, name, tuples_as_lists=True)) is not None:
        why = f"{lost[0]} would be read back as {lost[2]!r}"
        raise InvalidOption(name, lost[1], why, hint="Use plain JSON values.")
    if (path := wire.find(back, name, wire.has_nul)) is not None:
        raise InvalidOption(name, value, f"{path} contains a NUL character, which not every store can keep")
    return _small(back, name)


def added(name: str, before: Any, given: Any) -> Any:
    """The earlier tags or meta with the values given now."""
    if name == "tags":
        return _few(tuple(dict.fromkeys((*(before or ()), *given))), name)
    return _small({**(before or {}), **given}, name)


def follow_up(value: Any, name: str) -> Any:
    if value is None:
        return value
    if isinstance(value, str):
        return task_name(value, name)
    if getattr(value, "undo_step", None) is None and (
        callable(getattr(value, "s", None)) or callable(getattr(value, "new_job", None))
    ):
        return value
    hint = f"{name}=alert, where alert(job: UUID) is a task; or alert_all.s(), or a task's name."
    if hasattr(value, "enqueue_member"):
        hint = f"A follow-up job is one job. For a flow, name a task that returns the flow: {name}=start."
    raise InvalidOption(name, value, "must be a task, a call or the name of a task", hint=hint)


def argument_names(value: Any, name: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, (list, tuple, set, frozenset)):
        raise InvalidOption(name, value, "must be a list of argument names", hint=f'{name}=["password"]')
    for each in value:
        if not isinstance(each, str) or not each.isidentifier():
            raise InvalidOption(name, each, "is not the name of an argument")
    return tuple(dict.fromkeys(value))


def words(value: Any, name: str) -> str:
    """Check a text about a job, such as the reason of a cancel."""
    if isinstance(value, str) and len(value) <= WORDS_LIMIT and storable(value):
        return value
    hint = "NUL and lone surrogates are not allowed: not every store can keep them."
    raise InvalidOption(name, value, f"must be text of at most {WORDS_LIMIT:,} characters", hint=hint)


def _few(found: tuple[str, ...], name: str) -> tuple[str, ...]:
    if len(found) > TAGS_LIMIT:
        raise InvalidOption(name, f"{len(found)} tags", f"must be at most {TAGS_LIMIT}")
    return found


def _small(found: dict[str, Any], name: str) -> dict[str, Any]:
    from mainspring.codec import wire

    if (size := len(wire.encode(found))) > META_LIMIT:
        hint = "Store the data elsewhere and put a reference to it here."
        raise InvalidOption(name, found, f"takes {size:,} bytes, the limit is {META_LIMIT:,}", hint=hint)
    return found


# ---- schedules ---------------------------------------------------------------------------------------


class HasName(Protocol):
    """A task that has exactly one schedule."""

    @property
    def name(self) -> str: ...


Part: TypeAlias = str | HasName
"""A schedule, by its name or by its task."""


class ScheduleGroup(msgspec.Struct, frozen=True):
    """Schedules of which at most ``max_concurrent`` run at once: ``app.schedules.group(name, max_concurrent=)``."""

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
        raise InvalidOption(name, value, "is not a schedule name", hint=hint)
    return found


def parts(value: Any, name: str) -> tuple[Any, ...]:
    """Names of schedules, or tasks, which are resolved when all modules are imported."""
    given = value if isinstance(value, (list, tuple, set, frozenset)) else () if value is None else (value,)
    return tuple(dict.fromkeys(part(each, name) for each in given))


def part(value: Any, name: str) -> Any:
    """The name of a schedule, or a task."""
    if isinstance(value, str):
        return schedule_name(value, name)
    if isinstance(getattr(value, "name", None), str) and callable(getattr(value, "s", None)):
        return without_options(value, name)
    hint = f'{name}="import", {name}=clean: the name of a schedule, or a task that has one.'
    raise InvalidOption(name, value, "is neither the name of a schedule nor a task", hint=hint)


def group(value: Any, name: str) -> str | None:
    if value is None:
        return None
    return value.name if isinstance(value, ScheduleGroup) else schedule_name(value, name)


def zone(value: Any, name: str) -> str | None:
    if value is None:
        return None
    from mainspring.schedules.rules.zones import check_zone

    return check_zone(value, name=name)


def wait_or_nothing(value: Any, name: str) -> int:
    return 0 if value is None else wait(value, name)


def span_or_never(value: Any, name: str) -> int | None:
    return None if value is None else span(value, name)


def names_of(given: Sequence[Any]) -> tuple[str, ...]:
    """The names, for messages."""
    return tuple(each if isinstance(each, str) else each.name for each in given)
