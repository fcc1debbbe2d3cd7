"""Unique keys: two enqueues with the same key make one job.

A key belongs to its task: the same words under another task are another key. It is held while its
job is live, and to the end of its window if it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal, get_args

from mainspring.checks import storable
from mainspring.codec.canonical import canonical
from mainspring.duration import Duration, to_us
from mainspring.errors import InvalidOption, NotBuilt, did_you_mean
from mainspring.records import Unique
from mainspring.redact import spelled

OnConflict = Literal["return", "replace", "error"]
KEY_LIMIT = 500
"""Most characters of a key."""

_LATER = ("debounce", "throttle", "keep_last")


class Key:
    """What makes a job unique, and what happens when another job holds the key.

    ``return`` gives the handle of the holder, ``replace`` takes its place (a holder that waits is
    cancelled, one that runs goes on), ``error`` raises ``KeyTaken``. ``window`` counts from the
    enqueue: until it is over the key is held even if the job has ended.

    >>> Key("report-2030-01", window="1h")
    Key('report-2030-01', window='1h')
    >>> Key.arguments("user", keep="1d")
    Key.arguments('user', keep='1d')
    """

    __slots__ = ("_window", "names", "on_conflict", "value", "window")

    value: str | None
    """The key; None if it is made of arguments."""
    names: tuple[str, ...]
    """The arguments that it is made of; none means all."""
    window: int
    """Microseconds; 0 without a window."""
    on_conflict: OnConflict

    def __init__(
        self,
        value: str,
        *,
        window: Duration | None = None,
        on_conflict: OnConflict = "return",
        mode: Literal["once"] = "once",
        max_wait: None = None,
    ) -> None:
        if not isinstance(value, str) or not 1 <= len(value) <= KEY_LIMIT:
            raise InvalidOption("key", value, f"must be text of 1 to {KEY_LIMIT} characters")
        if not storable(value):
            raise InvalidOption("key", value, "holds a character that cannot be stored")
        if mode in _LATER:
            raise NotBuilt("Key", f"mode={mode!r}")
        if mode != "once":
            raise InvalidOption("mode", mode, "must be 'once'", subject="Key")
        if max_wait is not None:
            raise NotBuilt("Key", "max_wait")
        self.value = value
        self._set((), "window", window, on_conflict)

    @classmethod
    def arguments(cls, *names: str, keep: Duration | None = None, on_conflict: OnConflict = "return") -> Key:
        """A key made of the named arguments, or of all; ``keep`` is its window.

        It does not matter whether an argument is given by position, by name or by its default. Values are
        compared as they are stored: the same moment in two time zones is two.
        """
        for name in names:
            if not isinstance(name, str) or not name.isidentifier():
                raise InvalidOption("key", name, "is not the name of an argument", hint='Key.arguments("user_id")')
        key = cls.__new__(cls)
        key.value = None
        key._set(names, "keep", keep, on_conflict)  # noqa: SLF001 - it is being made here
        return key

    def _set(self, names: tuple[str, ...], called: str, window: Duration | None, on_conflict: OnConflict) -> None:
        if on_conflict not in get_args(OnConflict):
            allowed = " or ".join(map(repr, get_args(OnConflict)))
            raise InvalidOption("on_conflict", on_conflict, f"must be {allowed}", subject="Key")
        self.names = names
        self._window = window
        self.window = 0 if window is None else to_us(window, what=called)
        if window is not None and self.window <= 0:
            raise InvalidOption(called, window, "must be longer than nothing", subject="Key")
        self.on_conflict = on_conflict

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self._facts == other._facts

    def __hash__(self) -> int:
        return hash(self._facts)

    @property
    def _facts(self) -> tuple[Any, ...]:
        return self.value, self.names, self.window, self.on_conflict

    def __repr__(self) -> str:
        kind, parts = ("Key.arguments", map(repr, self.names)) if self.value is None else ("Key", [repr(self.value)])
        window = [] if self._window is None else [f"{'keep' if self.value is None else 'window'}={self._window!r}"]
        conflict = [] if self.on_conflict == "return" else [f"on_conflict={self.on_conflict!r}"]
        return f"{kind}({', '.join([*parts, *window, *conflict])})"


def to_key(value: Any, name: str = "key") -> Key | None:
    """The option in normal form: plain text is a key of that text."""
    if value is None or isinstance(value, Key):
        return value
    if isinstance(value, str):
        return Key(value)
    raise InvalidOption(name, value, "must be text or a Key", hint='key="report-7" or key=Key.arguments("user_id")')


def claim_of(
    key: Key, task: str, arguments: Callable[[], Mapping[str, Any]], hide: Sequence[str]
) -> tuple[Unique, str]:
    """The claim that a job of ``task`` makes to its key, and the key as people may read it.

    ``arguments()`` gives all arguments by name as plain JSON values.
    """
    if key.value is not None:
        return Unique(_hash(task, b"value", key.value.encode()), key.window, key.on_conflict), key.value
    found = arguments()
    check_names(key, task, found)
    chosen = {name: found[name] for name in sorted(key.names or found)}
    said = spelled(chosen, hide)[:KEY_LIMIT]
    return Unique(_hash(task, b"arguments", canonical(chosen)), key.window, key.on_conflict), said


def check_names(key: Key, task: str, known: Collection[str], *, hint: str = "") -> None:
    """Refuse a key that is made of an argument which the task does not have."""
    for name in key.names:
        if name not in known:
            why = f"names {name!r}, which is no argument of the task{did_you_mean(name, known)}"
            raise InvalidOption("key", key, why, subject=f"task {task!r}", hint=hint)


def _hash(task: str, kind: bytes, value: bytes) -> bytes:
    return sha256(b"\0".join((task.encode(), kind, value))).digest()[:16]
