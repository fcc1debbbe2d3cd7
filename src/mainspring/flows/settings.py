"""Options of a whole flow, checked and in normal form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from mainspring.common.duration import Duration, to_us
from mainspring.errors import InvalidOption, UnknownOption
from mainspring.options import checks

if TYPE_CHECKING:
    from mainspring.jobs.keys import Key

NAME_LIMIT = 200
"""Characters of the name of a flow."""


class FlowOptions(TypedDict, total=False):
    """Options of a whole flow: ``flow.flow(...)``."""

    name: str
    """A name for people: ``mainspring flows ls`` shows it. The default is the name of the first task."""
    key: str | Key
    """A unique key: while a flow with this key is open, a second one is not enqueued, and the first is returned."""
    time_limit: Duration
    """The time for the whole flow, from the enqueue. A flow that takes longer is cancelled."""
    tags: Sequence[str]
    """Tags of the flow, and of each of its jobs."""
    connection: Any
    """The connection of the caller: the flow is enqueued in its open transaction."""


def flow_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options in normal form: durations in microseconds, a key as a ``Key``."""
    from mainspring.jobs.keys import Key

    found: dict[str, Any] = {}
    for name, value in given.items():
        if name not in FlowOptions.__annotations__:
            raise UnknownOption("flow", name, FlowOptions.__annotations__)
        if value is None:
            continue
        if name == "time_limit":
            value = to_us(value, what=name)  # noqa: PLW2901 - in normal form
            if value <= 0:
                raise InvalidOption(name, given[name], "must be greater than zero", subject="flow")
        elif name == "key":
            value = Key(value) if isinstance(value, str) else value  # noqa: PLW2901 - as above
            _check_key(value)
        elif name == "name":
            value = checks.words(value, name)[:NAME_LIMIT]  # noqa: PLW2901 - as above
        elif name == "tags":
            value = checks.tags(value, name)  # noqa: PLW2901 - as above
        found[name] = value
    return found


def _check_key(key: Any) -> None:
    from mainspring.jobs.keys import Key

    if not isinstance(key, Key) or key.value is None or key.mode != "once":
        hint = 'Give a text that names this flow, such as key="import:2026-11-19".'
        raise InvalidOption("key", key, "must be a text, or a Key with a text", subject="flow", hint=hint)
    if "{" in key.value:
        hint = 'A flow has no arguments of its own. Write an f-string: key=f"import:{day}".'
        raise InvalidOption("key", key, "has a placeholder, which would not be replaced", subject="flow", hint=hint)
