"""Unique keys: two enqueues with the same key make one job.

A key belongs to its task and its mode: the same text for another task, or in another mode, is another key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal, get_args

from mainspring.codec.canonical import canonical
from mainspring.common.duration import Duration, to_us
from mainspring.common.redact import spelled
from mainspring.common.text import cut, storable
from mainspring.errors import InvalidOption, did_you_mean
from mainspring.jobs.records import UniqueKey

OnConflict = Literal["return", "replace", "error"]
KeyMode = Literal["once", "debounce", "throttle", "keep_last"]
_PLACEHOLDER = re.compile(r"(?<!\{)\{([A-Za-z_]\w*)(?:[!:.\[][^{}]*)?\}(?!\})")
KEY_LIMIT = 500
"""The maximum length of a key in characters."""


class Key:
    """The unique key of a job, and what another enqueue with the same key does.

    In mode ``once`` a job holds its key while the job is live; with ``window``, at least for this time after the
    enqueue; with ``keep``, also for this time after the job succeeded. For another enqueue with a held key
    ``on_conflict`` decides: ``return`` returns the handle of the holder; ``replace`` makes the new job the holder (a
    waiting holder is cancelled, a running holder continues); ``error`` raises ``KeyTaken``. With ``keep`` a key means
    one request: an enqueue with other arguments raises ``KeyConflict``.

    In the other modes a new enqueue replaces the arguments and options of the waiting job with this key, and returns
    its handle. ``debounce``: the job starts when there was no enqueue for ``window``, and at the latest ``max_wait``
    after the first enqueue. ``throttle``: the first job starts at once; enqueues within ``window`` after its start
    become one job that starts after the window. ``keep_last``: one job runs, and one job waits for its end.

    >>> Key("report-2030-01", window="1h")
    Key('report-2030-01', window='1h')
    >>> Key.arguments("user", keep="1d")
    Key.arguments('user', keep='1d')
    >>> Key.arguments("page", mode="debounce", window="10s", max_wait="1m")
    Key.arguments('page', window='10s', mode='debounce', max_wait='1m')
    """

    __slots__ = ("_given", "keep", "max_wait", "mode", "names", "on_conflict", "value", "window")

    value: str | None
    """The text of the key; None for a key made of arguments."""
    names: tuple[str, ...]
    """The arguments of the key; empty for all arguments."""
    window: int
    """Microseconds; 0 without a window."""
    on_conflict: OnConflict
    mode: KeyMode
    max_wait: int
    """Microseconds; 0 without a maximum."""
    keep: int
    """Microseconds; 0 without ``keep``."""

    def __init__(
        self,
        value: str,
        *,
        window: Duration | None = None,
        on_conflict: OnConflict | None = None,
        mode: KeyMode = "once",
        max_wait: Duration | None = None,
        keep: Duration | None = None,
    ) -> None:
        if not isinstance(value, str) or not 1 <= len(value) <= KEY_LIMIT:
            raise InvalidOption("key", value, f"must be text of 1 to {KEY_LIMIT} characters")
        if not storable(value):
            raise InvalidOption("key", value, "contains a character that cannot be stored")
        self.value = value
        self.names = ()
        self._set(window, on_conflict, mode, max_wait, keep)

    @classmethod
    def arguments(
        cls,
        *names: str,
        window: Duration | None = None,
        on_conflict: OnConflict | None = None,
        mode: KeyMode = "once",
        max_wait: Duration | None = None,
        keep: Duration | None = None,
    ) -> Key:
        """A key made of the named arguments, or of all arguments.

        An argument given by position, by name or by its default is the same. Values are compared as they are stored:
        the same moment in two time zones is two different values.
        """
        for name in names:
            if not isinstance(name, str) or not name.isidentifier():
                raise InvalidOption("key", name, "is not the name of an argument", hint='Key.arguments("user_id")')
        key = cls.__new__(cls)
        key.value = None
        key.names = names
        key._set(window, on_conflict, mode, max_wait, keep)  # noqa: SLF001 - a second constructor
        return key

    def _set(
        self,
        window: Duration | None,
        on_conflict: OnConflict | None,
        mode: KeyMode,
        max_wait: Duration | None,
        keep: Duration | None,
    ) -> None:
        _one_of("mode", mode, get_args(KeyMode))
        if on_conflict is not None:
            _one_of("on_conflict", on_conflict, get_args(OnConflict))
        self._given = {"window": window, "on_conflict": on_conflict, "mode": mode, "max_wait": max_wait, "keep": keep}
        self.mode, self.on_conflict = mode, on_conflict or "return"
        self.window, self.max_wait, self.keep = (
            _span(each, self._given[each]) for each in ("window", "max_wait", "keep")
        )
        for name, is_wrong, why, hint in _RULES:
            if is_wrong(self, self._given):
                raise InvalidOption(name, self._given[name], why.format(self), subject="Key", hint=hint)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self._facts == other._facts

    def __hash__(self) -> int:
        return hash(self._facts)

    @property
    def _facts(self) -> tuple[Any, ...]:
        return self.value, self.names, self.window, self.on_conflict, self.mode, self.max_wait, self.keep

    def __repr__(self) -> str:
        kind, parts = ("Key.arguments", map(repr, self.names)) if self.value is None else ("Key", [repr(self.value)])
        said = [f"{name}={value!r}" for name, value in self._given.items() if value not in (None, "once")]
        return f"{kind}({', '.join([*parts, *said])})"


def _one_of(name: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise InvalidOption(name, value, f"must be {' or '.join(map(repr, allowed))}", subject="Key")


def _span(name: str, value: Duration | None) -> int:
    span = 0 if value is None else to_us(value, what=name)
    if value is not None and span <= 0:
        raise InvalidOption(name, value, "must be greater than zero", subject="Key")
    return span


_RULES: tuple[tuple[str, Callable[[Key, Mapping[str, Any]], bool], str, str], ...] = (
    (
        "on_conflict", lambda key, given: key.mode != "once" and given["on_conflict"] is not None,
        "cannot be given with mode={0.mode!r}", "This mode has no conflict: a new enqueue replaces the waiting job.",
    ),
    (
        "window", lambda key, _: key.mode in ("debounce", "throttle") and not key.window,
        "must be given with mode={0.mode!r}", 'Key("search-index", mode="debounce", window="10s")',
    ),
    (
        "window", lambda key, given: key.mode == "keep_last" and given["window"] is not None,
        "cannot be given with mode='keep_last'", "With keep_last the waiting job waits until the running job ends.",
    ),
    (
        "max_wait", lambda key, given: key.mode != "debounce" and given["max_wait"] is not None,
        "can only be given with mode='debounce'", 'Key("search-index", mode="debounce", window="10s", max_wait="1m")',
    ),
    (
        "max_wait", lambda key, _: 0 < key.max_wait < key.window,
        "must not be shorter than the window", "Every job waits for the window: make max_wait longer, or leave it out.",
    ),
    (
        "keep", lambda key, given: key.mode != "once" and given["keep"] is not None,
        "cannot be given with mode={0.mode!r}", "A key with keep= runs its job once: leave mode= out.",
    ),
    (
        "keep", lambda key, given: bool(key.keep) and given["window"] is not None,
        "cannot be given with window=",
        "keep= counts from the end of the job, window= from its enqueue. Give only one of the two.",
    ),
    (
        "keep", lambda key, given: bool(key.keep) and given["on_conflict"] == "replace",
        "cannot be given with on_conflict='replace'", "A key with keep= runs its job once. Leave one of the two out.",
    ),
)  # fmt: skip
"""Options that exclude each other: the option to name, the test, the reason, the hint."""


def to_key(value: Any, name: str = "key") -> Key | None:
    """The option in normal form: plain text becomes a ``Key``."""
    if value is None or isinstance(value, Key):
        return value
    if isinstance(value, str):
        return Key(value)
    raise InvalidOption(name, value, "must be text or a Key", hint='key="report-7" or key=Key.arguments("user_id")')


def claim_of(
    key: Key, task: str, arguments: Callable[[], Mapping[str, Any]], hide: Sequence[str]
) -> tuple[UniqueKey, str]:
    """The ``UniqueKey`` of a job of ``task``, and the key as users may read it, without hidden values.

    ``arguments()`` returns all arguments by name as plain JSON values.
    """
    kind = b"" if key.mode == "once" and not key.keep else b":" + (b"keep" if key.keep else key.mode.encode())
    found = arguments() if key.value is None or key.keep else {}
    if key.value is not None:
        hash_, said = _hash(task, b"value" + kind, key.value.encode()), key.value
    else:
        check_names(key, task, found)
        chosen = {name: found[name] for name in sorted(key.names or found)}
        hash_, said = _hash(task, b"arguments" + kind, canonical(chosen)), cut(spelled(chosen, hide), KEY_LIMIT)
    print_ = _hash(task, b"print", canonical(dict(sorted(found.items())))) if key.keep else b""
    return UniqueKey(hash_, key.window, key.on_conflict, key.mode, key.max_wait, key.keep, print_), said


def refuse_placeholders(option: str, texts: Iterable[str], subject: str, names: Collection[str] | None = None) -> None:
    """Refuse a key or a tag with a name in braces: nothing replaces it. ``names``: only these names are refused."""
    for text in texts:
        for name in _PLACEHOLDER.findall(text):
            if names is None or name in names:
                own = f"{option}=f{text!r}" if option == "key" else f"{option}=[f{text!r}]"
                hint = f"For the value of an argument: task.options({own}).enqueue(...)"
                if option == "key":
                    hint = f"For the values of arguments: key=Key.arguments({name!r}). For one job: {own}, with an f."
                why = f"is plain text: {{{name}}} is not replaced, so every job would have the same {option}"
                raise InvalidOption(option, text, why, subject=subject, hint=hint)


def check_names(key: Key, task: str, known: Collection[str], *, hint: str = "") -> None:
    """Refuse a key with an argument that the task does not have."""
    for name in key.names:
        if name not in known:
            why = f"names {name!r}, which is not an argument of the task{did_you_mean(name, known)}"
            raise InvalidOption("key", key, why, subject=f"task {task!r}", hint=hint)


def _hash(task: str, kind: bytes, value: bytes) -> bytes:
    return sha256(b"\0".join((task.encode(), kind, value))).digest()[:16]
