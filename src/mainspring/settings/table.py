"""Every setting of an app, declared once: name, type, default, meaning, check, and how its text is read.

From this table come the checks of ``Mainspring(...)``, the variables of the environment, the keys and the JSON Schema
of the file, ``mainspring config`` and the reference page. The typed dictionary in ``settings.py`` is for type checkers;
a test compares it with the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from mainspring.common.duration import format_duration
from mainspring.common.sizes import format_size, to_bytes
from mainspring.errors import InvalidOption, did_you_mean, mask_url
from mainspring.jobs.records import Retention
from mainspring.options import checks
from mainspring.options.table import Option, options_for
from mainspring.tasks.routing import Routes

Kind = Literal["text", "path", "url", "choice", "whole", "duration", "size", "names", "table", "numbers", "flag"]
"""The kind of a value: decides how text is read, how a value is shown, and its schema."""

OF_ONE_RUN = frozenset({"processes", "until_empty", "burst"})
"""Worker options of one command, not of the app: the supervisor does not import the app."""

LARGEST = 8_000_000
"""The largest payload or result, in bytes, that every engine supports."""
LEVELS = ("debug", "info", "warning", "error", "critical")
FORMATS = ("auto", "text", "json")
DURABILITIES = ("full", "normal")
_FLAGS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


class Setting(msgspec.Struct, frozen=True):
    """One setting. ``convert(value, name)`` returns the normal form or raises ``InvalidOption``."""

    name: str
    type: str
    default: Any
    """In normal form."""
    doc: str
    kind: Kind
    convert: Callable[[Any, str], Any]
    shown_default: str = ""
    choices: tuple[str, ...] = ()
    low: int = 0

    @property
    def variable(self) -> str:
        """The variable in the environment."""
        return f"MAINSPRING_{self.name.upper()}"

    def read(self, text: str) -> Any:
        """The value of a text in the environment, as ``convert`` takes it."""
        match self.kind:
            case "whole":
                return _number(text)
            case "flag":
                return _FLAGS.get(text.strip().lower(), text)
            case "names":
                return [part.strip() for part in text.split(",") if part.strip()]
            case "table":
                return self._pairs(text)
            case "numbers" if "=" not in text and isinstance(number := _number(text), int):
                return number
            case "numbers":
                return {name: _number(value) for name, value in self._pairs(text).items()}
            case _:
                return text.strip()

    def show(self, value: Any) -> Any:
        """A normal form as users write it, without secrets; it can be written as JSON."""
        if value is None:
            return None
        match self.kind:
            case "duration":
                return format_duration(value / 1_000_000)
            case "size":
                return format_size(value)
            case "url":
                return mask_url(value)
            case "names":
                return sorted(value) if isinstance(value, frozenset) else list(value)
            case "numbers" if isinstance(value, int):
                return value
            case "table" | "numbers":
                return dict(value.table if isinstance(value, Routes) else value)
            case _:
                return value

    def _pairs(self, text: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals or not name:
                raise InvalidOption(self.name, text, f"{part!r} is not NAME=VALUE", hint="Example: a=1,b=2.")
            if name in found:
                raise InvalidOption(self.name, text, f"{name!r} is given twice")
            found[name] = value
        return found


# ---- checks ----------------------------------------------------------------------------------------


def _url(value: Any, name: str) -> str:
    from mainspring.stores.connect import check_url

    if not isinstance(value, str):
        raise InvalidOption(name, value, "must be the URL of a store", hint="sqlite:///path/file.db")
    check_url(value)
    return value


def _listen_url(value: Any, name: str) -> str | None:
    return None if value is None else _url(value, name)


def _namespace(value: Any, name: str) -> str:
    if isinstance(value, str) and re.fullmatch(r"[a-z][a-z0-9_]{0,30}", value):
        return value
    hint = "1 to 31 lower-case letters, digits and _; the first a letter."
    raise InvalidOption(name, value, "is not a namespace", hint=hint)


def _modules(value: Any, name: str) -> tuple[str, ...]:
    if isinstance(value, str):
        raise InvalidOption(name, value, "must be a list of module names", hint=f'Write {name}=["{value}"].')
    if not isinstance(value, (list, tuple)):
        raise InvalidOption(name, value, "must be a list of module names", hint='include=["shop.tasks"]')
    for each in value:
        if not isinstance(each, str) or not all(part.isidentifier() for part in each.split(".")):
            raise InvalidOption(name, each, "is not the name of a module", hint='Example: "shop.tasks".')
    return tuple(value)


def _text(value: Any, name: str) -> str | None:
    if value is None or (isinstance(value, str) and value.strip() and value.isprintable() and len(value) <= 200):
        return value
    raise InvalidOption(name, value, "must be 1 to 200 printable characters")


def _level(value: Any, name: str) -> str:
    if isinstance(value, str) and value.lower() in LEVELS:
        return value.lower()
    raise InvalidOption(name, value, f"must be one of {', '.join(LEVELS)}{_near(value, LEVELS)}")


def _near(value: Any, allowed: Sequence[str]) -> str:
    return did_you_mean(value.lower(), allowed) if isinstance(value, str) else ""


def _one_of(*allowed: str) -> Callable[[Any, str], Any]:
    def convert(value: Any, name: str) -> Any:
        if not isinstance(value, str) or value not in allowed:
            raise InvalidOption(name, value, f"must be one of {', '.join(allowed)}{_near(value, allowed)}")
        return value

    return convert


def _names(value: Any, name: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, (list, tuple, set, frozenset)):
        raise InvalidOption(name, value, "must be a list of names", hint=f'{name}=["card_number"]')
    for each in value:
        if not isinstance(each, str) or not each.strip():
            raise InvalidOption(name, each, "is not the name of a field")
    return tuple(dict.fromkeys(value))


def _limit(value: Any, name: str) -> int:
    size = to_bytes(value, what=name)
    if not 1 <= size <= LARGEST:
        hint = "Store the data elsewhere and pass its key."
        raise InvalidOption(name, value, f"must be from 1 byte to {format_size(LARGEST)}", hint=hint)
    return size


def _routes(value: Any, name: str) -> Routes:  # noqa: ARG001 - Routes has its own name in errors
    return value if isinstance(value, Routes) else Routes(value)


def _number(text: str) -> Any:
    return int(text) if re.fullmatch(r"\s*-?\d{1,18}\s*", text, re.ASCII) else text


# ---- the table -------------------------------------------------------------------------------------

_KEPT = Retention()

# fmt: off
_OWN: tuple[Setting, ...] = (
    Setting("url", "str | None", None, "The store.", "url", _url, "a SQLite file beside the project"),
    Setting("namespace", "str", "default",
            "A name that separates apps with the same store: they do not see each other's jobs.",
            "text", _namespace),
    Setting("name", "str | None", None,
            "The name of the program: it tells programs apart that share a store, also for their schedules.",
            "text", _text, "[project].name of pyproject.toml, else the project's folder"),
    Setting("include", "Sequence[str]", (), "Modules with tasks, imported on first use.", "names", _modules, "none"),
    Setting("version", "str | None", None, "The version of your code, stored with each job and each attempt.",
            "text", _text, "none"),
    Setting("durability", "Literal['full', 'normal']", "full",
            "With normal, writes are faster, but a power failure may lose the last writes.",
            "choice", _one_of(*DURABILITIES),
            choices=DURABILITIES),
    Setting("strict", "bool", False, "Refuse a store that cannot guarantee this durability, instead of warning.",
            "flag", checks.flag),
    Setting("replicas", "int", 0, "Redis: how many replicas must confirm a write.",
            "whole", checks.whole(0, 100)),
    Setting("wait_fsync", "bool", False, "Redis: a write is confirmed when it is on disk (WAITAOF).",
            "flag", checks.flag),
    Setting("listen_url", "str | None", None,
            "PostgreSQL: the URL to listen on for wake-ups, if the store's URL leads to a pooler.",
            "url", _listen_url, "the store's URL"),
    Setting("pooler", "bool", False, "PostgreSQL: the URL leads to a pooler, so no state is kept in a session.",
            "flag", checks.flag),
    Setting("routes", "Mapping[str, str]", Routes(), "The queues of tasks, by task name or pattern.",
            "table", _routes, "none"),
    Setting("full_wait", "Duration", 10_000_000, "How long an enqueue waits for a full queue with on_full='wait'.",
            "duration", checks.span, "10s"),
    Setting("enqueue_patience", "Duration", 10_000_000,
            "How long an enqueue is tried while the store does not answer; 0 means one try of at most a second.",
            "duration", checks.wait, "10s"),
    Setting("keep", "Duration", _KEPT.keep, "How long succeeded and cancelled jobs are kept.",
            "duration", checks.span, "7d"),
    Setting("keep_count", "int", _KEPT.keep_count, "The maximum number of succeeded and cancelled jobs that are kept.",
            "whole", checks.whole(0, 1_000_000_000)),
    Setting("keep_dead", "Duration", _KEPT.keep_dead, "How long dead jobs are kept.", "duration", checks.span, "30d"),
    Setting("keep_dead_count", "int", _KEPT.keep_dead_count, "The maximum number of dead jobs that are kept.",
            "whole", checks.whole(0, 1_000_000_000)),
    Setting("payload_limit", "Size", 1_000_000, "The maximum size of a job's arguments in bytes.",
            "size", _limit, "1MB"),
    Setting("result_limit", "Size", 1_000_000, "The maximum size of a result in bytes.", "size", _limit, "1MB"),
    Setting("log_level", "Literal['debug', 'info', 'warning', 'error', 'critical']", "info",
            "The lowest level that is logged.", "choice", _level, choices=LEVELS),
    Setting("log_format", "Literal['auto', 'text', 'json']", "auto",
            "The log format; auto is JSON in Kubernetes and text elsewhere.",
            "choice", _one_of(*FORMATS), choices=FORMATS),
    Setting("log_file", "str | None", None, "The destination of log lines: a file, stdout or stderr.",
            "path", _text, "stderr"),
    Setting("redact", "Sequence[str]", (), "Additional names of fields whose values are hidden.",
            "names", _names, "none"),
)
# fmt: on

_KINDS: Mapping[str, Kind] = {
    "int": "whole",
    "Duration": "duration",
    "int | Mapping[str, int]": "numbers",
    "Sequence[str] | str": "names",
    "Collection[str] | str": "names",
    "Sequence[str] | str | None": "names",
}


def _of_worker(option: Option) -> Setting:
    return Setting(
        option.name, option.type, option.default, option.doc, _KINDS[option.type], option.convert, option.shown_default,
        low=1 if "Mapping" in option.type else 0,
    )  # fmt: skip


WORKER = tuple(_of_worker(option) for option in options_for("worker") if option.name not in OF_ONE_RUN)
"""The worker options that the app can set for all its workers."""

TABLE: Mapping[str, Setting] = {setting.name: setting for setting in (*_OWN, *WORKER)}
