"""Bulk tasks: the handler takes the items of many jobs at once and returns one outcome for each.

    @app.bulk_task(size=100, wait="50ms", by="tenant")
    def send(items: Sequence[Mail]) -> Sequence[str | Exception]: ...

A job has one item as its argument. The argument is named ``item``, whatever the handler calls its list.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from mainspring.codec.items import ITEM
from mainspring.common.callables import UNRUN, Dependency, let_go
from mainspring.errors import BadSignature, InvalidOption, WrongOutcomes

_HINT = "A bulk handler takes the list of its items: def send(items: Sequence[Mail]), after the context if it has one."


class Bulk(NamedTuple):
    """How the jobs of a bulk task share calls."""

    size: int
    """The maximum number of items in one call."""
    wait: int
    """Microseconds from the first item until the call starts, even if the call is not full."""
    by: Callable[[Any], Hashable] | None
    """Items share a call only if this function returns equal values for them."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Bulk:
        by = options["by"]
        return cls(options["size"], options["wait"], _reader(by) if isinstance(by, str) else by)


def check_handler(parameters: Sequence[inspect.Parameter], task: str) -> None:
    """``BadSignature`` unless there is exactly one parameter for the items, beside the context."""
    own = [each for each in parameters if not isinstance(each.default, Dependency)]
    for each in own:
        if each.kind not in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD):
            raise BadSignature(task, each.name, "cannot take the items of a bulk task", hint=_HINT)
    if len(own) != 1:
        names = ", ".join(each.name for each in own) or "nothing"
        raise BadSignature(task, "", f"takes {names}, and a bulk task takes one list", hint=_HINT)


def check_options(options: Mapping[str, Any], subject: str) -> None:
    """Refuse options that a bulk task cannot have."""
    if options["ack"] == "early":
        why = "cannot be given to a bulk task: a job would be acknowledged while its call still waits for other items"
        raise InvalidOption("ack", "early", why, subject=subject, hint="Use @app.task for jobs that run at most once.")


def outcomes_of(value: Any, count: int, task: str) -> Sequence[Any]:
    """The outcomes that a handler returned, checked: one for each item."""
    if type(value) in UNRUN:
        raise WrongOutcomes(task, f"returned {let_go(value)}, which has not run")
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray, memoryview)):
        raise WrongOutcomes(task, f"returned {'None' if value is None else 'a ' + type(value).__name__}")
    if len(value) != count:
        raise WrongOutcomes(task, f"returned {len(value)} outcomes for {count} item{'' if count == 1 else 's'}")
    return value


def error_of(outcome: Any) -> BaseException | None:
    """The exception of an outcome, or None. An exception class is instantiated without arguments, as by ``raise``."""
    if isinstance(outcome, type) and issubclass(outcome, BaseException):
        try:
            return outcome()
        except Exception as error:  # noqa: BLE001 - the class needs arguments
            return error
    return outcome if isinstance(outcome, BaseException) else None


def in_list(task: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a plain call with one item, as the handler takes them: in a list."""
    given = dict(kwargs)
    if not args and ITEM not in given:
        raise TypeError(f"{task}() takes one item")
    first, *rest = args or (given.pop(ITEM),)
    return ([first], *rest), given


def out_of_list(task: str, value: Any) -> Any:
    """The result of a plain call, from the list that the handler returned; raises the outcome if it is an exception."""
    [outcome] = outcomes_of(value, 1, task)
    if (error := error_of(outcome)) is not None:
        raise error
    return outcome


async def aout_of_list(task: str, value: Awaitable[Any]) -> Any:
    """Async version of :func:`out_of_list`."""
    return out_of_list(task, await value)


def _reader(path: str) -> Callable[[Any], Hashable]:
    names = path.split(".")

    def read(item: Any) -> Hashable:
        found = item
        for name in names:
            found = found[name] if isinstance(found, Mapping) else getattr(found, name)
        return found  # type: ignore[no-any-return]  # the caller hashes the value

    return read
