"""Errors as records: text that can always be stored.

A stored error is read by users and programs. It is never made an exception again, because that would run code that
stored data names.
"""

from __future__ import annotations

from types import TracebackType
from typing import Literal

import msgspec

from mainspring.common.redact import redact
from mainspring.common.text import qualified_name

_TYPE_LIMIT = 200
_MESSAGE_LIMIT = 4_000
_CAUSES = 10
_NOTES = 10
_FRAMES = 60
_SEARCHED = 1_000_000
"""The number of characters of one text that are searched for secrets."""


class ErrorRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored facts about an exception."""

    type: str
    """The qualified name of its class, without ``builtins``."""
    message: str = ""
    traceback: str = ""
    causes: tuple[str, ...] = ()
    """``type: message`` of its causes, nearest first."""
    notes: tuple[str, ...] = ()
    code: str = ""
    """The version of the app that ran the attempt."""


def clean_text(text: str, limit: int, *, keep: Literal["start", "ends"] = "start") -> str:
    """Text that every store can keep: no NUL, no lone surrogate, at most ``limit`` characters.

    A marker says how many characters were cut; ``keep="ends"`` cuts in the middle.

    >>> clean_text("a\\0b", 100)
    'a\\\\x00b'
    """
    if "\0" in text:
        text = text.replace("\0", "\\x00")
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= limit else _cut(text, limit, keep)


def clean_secret_text(text: str, limit: int, *, keep: Literal["start", "ends"] = "start") -> str:
    """Text that every store can keep, without secrets. Secrets are hidden before the cut, which could divide one.

    Text beyond ``_SEARCHED`` characters is cut first: no secret at that cut is near the part that is kept.
    """
    return clean_text(redact(clean_text(text, max(_SEARCHED, limit), keep=keep)), limit, keep=keep)


def _cut(text: str, limit: int, keep: str) -> str:
    marker = _marker(len(text) - limit + len(_marker(len(text))))  # the mark itself replaces characters too
    room = limit - len(marker)
    if room <= 0:
        return text[: max(limit, 0)]
    if keep == "start":
        return text[:room] + marker.rstrip()
    head = room // 4
    return text[:head] + marker + text[len(text) - (room - head) :]


def _marker(count: int) -> str:
    return f" ... [{count:,} more characters were cut] "


def describe_error(error: BaseException, *, limit: int = 32_000, code: str = "") -> ErrorRecord:
    """The record of an exception, without secrets; never raises.

    ``limit`` is the length of the traceback in characters; ``code`` is the version of the app.
    """
    return ErrorRecord(
        type=_type_name(error),
        message=_message(error),
        traceback=clean_secret_text(_traceback(error), limit, keep="ends"),
        causes=tuple(_causes_text(_causes(error))),
        notes=_notes(error),
        code=code,
    )


def first_line(error: ErrorRecord) -> str:
    """The message without its hint and further lines."""
    return error.message.partition("\n")[0]


def words_of(error: BaseException) -> str:
    """A short text about an exception, without secrets; never raises."""
    return clean_text(f"{_type_name(error)}: {_message(error)}".removesuffix(": "), 200)


def brief(data: bytes | None) -> str:
    """A short text about a stored error; empty without an error."""
    if data is None:
        return ""
    error = _decode(data)
    return clean_text(f"{error.type}: {error.message}".removesuffix(": "), 200)


_decode = msgspec.json.Decoder(ErrorRecord).decode


def _type_name(error: BaseException) -> str:
    return clean_text(qualified_name(type(error)), _TYPE_LIMIT)


def text_of(value: object) -> str:
    """``str(value)``, or a text that says why it failed."""
    try:
        return str(value)
    except Exception as failure:  # noqa: BLE001 - __str__ is user code
        return f"<str() of {type(value).__name__} raised {type(failure).__name__}>"


def _message(error: BaseException) -> str:
    return clean_secret_text(text_of(error), _MESSAGE_LIMIT)


def _traceback(error: BaseException) -> str:
    from traceback import format_exception

    try:
        lines = format_exception(type(error), error, error.__traceback__, limit=-_FRAMES)
        if (more := _count_frames(error.__traceback__) - _FRAMES) > 0 and not isinstance(error, BaseExceptionGroup):
            own = max(place for place, text in enumerate(lines) if text.startswith("Traceback"))
            lines.insert(own + 1, f"  [{more:,} outer frames were cut]\n")
        return "".join(lines)
    except Exception as failure:  # noqa: BLE001 - formatting runs user code: __str__, __repr__, source loaders
        return f"{_type_name(error)}: {_message(error)}\n<the traceback could not be written: {type(failure).__name__}>"


def _count_frames(place: TracebackType | None) -> int:
    found = 0
    while place is not None:
        found, place = found + 1, place.tb_next
    return found


def _causes_text(causes: list[BaseException]) -> list[str]:
    said = [f"{_type_name(cause)}: {clean_text(_message(cause), 500)}" for cause in causes[:_CAUSES]]
    return [*said, "[more causes were cut]"] if len(causes) > _CAUSES else said


def _causes(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    seen = {id(error)}
    following: BaseException | None = error
    while following is not None and len(found) <= _CAUSES:
        following = following.__cause__ or (None if following.__suppress_context__ else following.__context__)
        if following is None or id(following) in seen:
            break
        seen.add(id(following))
        found.append(following)
    return found


def _notes(error: BaseException) -> tuple[str, ...]:
    notes = getattr(error, "__notes__", ())
    if not isinstance(notes, (list, tuple)):
        return ()
    said = [clean_secret_text(text_of(note), _MESSAGE_LIMIT) for note in notes[:_NOTES]]
    return (*said, f"[{len(notes) - _NOTES:,} more notes were cut]") if len(notes) > _NOTES else tuple(said)
