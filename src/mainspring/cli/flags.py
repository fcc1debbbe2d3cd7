"""Flags from the table of options: ``mainspring enqueue`` has the job options, ``mainspring worker`` the worker ones.

The type of an option decides how its flag is read; the option's own check reads and checks the value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

import click

from mainspring.cli.common import moment
from mainspring.errors import InvalidOption
from mainspring.options.table import Option, Scope, options_for

_NUMBERS = "int | Mapping[str, int]"
_NAMES = ("Sequence[str] | str", "Collection[str] | str")
"""Types of options that take several names, also as one text with commas: ``-Q email,sms`` is ``-Q email -Q sms``."""

ALIASES: Mapping[str, tuple[str, ...]] = {
    "queues": ("-Q",),
    "concurrency": ("-c",),
    "processes": ("-p",),
    "thread_slots": ("-t",),
}
"""Short flags, and flags known from other job queues."""


def flags(scope: Scope, **defaults: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options of a scope as flags; ``defaults`` replace the defaults shown in the help."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options_for(scope)):
            if option.flag is not None:
                command = _flag(option, scope, defaults.get(option.name))(command)
        return command

    return add


def read_flags(scope: Scope, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, by name, as the checks of the options take them."""
    found: dict[str, Any] = {}
    for option in options_for(scope):
        value = given.get(option.name)
        if value is not None and value != ():
            found[option.name] = _read(option, value)
    return found


def read_value(word: str) -> Any:
    """JSON, or the text as it is."""
    try:
        return json.loads(word, parse_constant=_no_number)
    except ValueError:
        return word


# ---- by type --------------------------------------------------------------------------------------


def _flag(option: Option, scope: Scope, default: str | None) -> Callable[[Any], Any]:
    names = [option.flag or f"--{option.name.replace('_', '-')}", *ALIASES.get(option.name, ()), option.name]
    kind = option.type.removesuffix(" | None")
    if kind == "bool":
        return click.option(*names, is_flag=True, default=None, help=option.doc)
    if kind == "Sequence[str]" or "Mapping" in kind:
        metavar = {"Sequence[str]": "TEXT", _NUMBERS: "N|QUEUE=N"}.get(kind, "NAME=VALUE")
        return click.option(*names, multiple=True, metavar=metavar, help=f"{option.doc} Repeat it for several.")
    shown = default or option.shown_default or str(option.default)
    text = option.doc if scope == "job" else f"{option.doc}  [default: {shown}]"
    if kind in _NAMES:
        return click.option(*names, multiple=True, metavar="NAMES", help=text)
    metavar = {"Duration": "DURATION", "int": "N", "datetime": "WHEN"}.get(kind, "TEXT")
    return click.option(*names, default=None, metavar=metavar, help=text)


def _read(option: Option, value: Any) -> Any:
    kind = option.type.removesuffix(" | None")
    if kind == "int":
        return int(value) if value.lstrip("-").isdigit() else value
    if kind == "Priority":
        return read_value(value)
    if kind == "datetime":
        return _time(value, option.name)
    if kind == _NUMBERS:
        alone = [each for each in value if each.isdigit()]
        if len(value) == len(alone) == 1:
            return int(alone[0])
        return _mapping((_queue_number(each, option.name) for each in value), option.name)
    if kind.startswith("Mapping"):
        return _mapping((_pair(each, option.name) for each in value), option.name)
    return ",".join(value) if kind in _NAMES else value


def _mapping(pairs: Iterable[tuple[str, Any]], name: str) -> dict[str, Any]:
    """The pairs by key; ``InvalidOption`` if a key is given twice."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise InvalidOption(name, f"{key}={value}", f"{key!r} is given twice", hint="Give it once.")
        found[key] = value
    return found


def _time(text: str, name: str) -> datetime | None:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        hint = f"--{name.replace('_', '-')} 2026-01-31T12:00Z"
        raise InvalidOption(name, text, "is not a time", hint=f"{hint}, or --delay 2h") from None
    return moment(text, name)


def _pair(text: str, name: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InvalidOption(name, text, "is not NAME=VALUE", hint=f"--{name} customer=42")
    return key, read_value(value)


def _queue_number(text: str, name: str) -> tuple[str, int]:
    queue, equals, number = text.partition("=")
    if not equals or not number.isdigit():
        hint = f"--{name} 4 for all jobs, or --{name} email=5 --{name} sms=2 by queue; not both."
        raise InvalidOption(name, text, "is not QUEUE=N", hint=hint)
    return queue, int(number)


def _no_number(word: str) -> Any:
    raise ValueError(word)
