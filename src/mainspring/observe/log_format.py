"""Formats of a log record: JSON for programs, text for people. All formats hide secrets and never raise.

Logged text cannot forge a line or control a terminal: JSON lines escape control characters; in text lines control
characters are shown as ``\\x1b``, and the further lines of a text are indented.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from traceback import format_exception
from typing import Any

import msgspec

from mainspring.codec.failures import clean_secret_text, clean_text, text_of
from mainspring.common.redact import hide, redact
from mainspring.worker.failure_log import ERROR
from mainspring.worker.job_lines import LINE, JobLine

FIELDS = ("job_id", "task", "queue", "attempt", "worker", "trace_id")
"""The fields of the job in which a record was made."""

_MESSAGE_LIMIT = 100_000
_KNOWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", *FIELDS}
# Control characters, and characters that change the direction of text.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_RESET = "\x1b[0m"
_WIDTH = 80
"""Columns of a terminal that does not say its width."""
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_COLOURS = {"DEBUG": "\x1b[2m", "WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[1;31m"}


class JsonFormatter(logging.Formatter):
    """``{"time": ..., "level": ..., "logger": ..., "message": ..., "job_id": ..., "error": {...}}``"""

    def __init__(self, redact: Iterable[str] = ()) -> None:
        super().__init__()
        self._hidden = tuple(redact)

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _moment(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            "pid": record.process,
        }
        for name, value in hide(_extras(record), self._hidden).items():
            line.setdefault(name, _plain(value, 8))
        if (error := _error_of(record)) is not None:
            line["error"] = error
        if record.stack_info:
            line["stack"] = redact(record.stack_info)
        return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", _encode(line).decode())


class TextFormatter(logging.Formatter):
    """``2026-01-31T12:30:01.250Z INFO    4711 mainspring.worker: message  name=value``; an indented traceback follows.

    The line of a job that ended has only the time and its own words: ``... done  add(2, 3) -> 5  12 ms``.
    """

    def __init__(self, redact: Iterable[str] = ()) -> None:
        super().__init__()
        self._hidden = tuple(redact)

    def format(self, record: logging.LogRecord) -> str:
        job_line = getattr(record, LINE, None)
        lines = [self._job_line(record, job_line)] if job_line is not None else self._lines(record)
        if (error := _error_of(record)) is not None:
            lines += _set_in(error["traceback"])
            if job_line is not None:
                lines += _set_in(f"mainspring jobs show {getattr(record, 'job_id', '')}")
        if record.stack_info:
            lines += _set_in(redact(record.stack_info))
        return self._whole(record, lines)

    def _lines(self, record: logging.LogRecord) -> list[str]:
        extras = hide(_extras(record), self._hidden)
        message = _message(record)
        if head := _head(extras):
            message = f"{head} {message}"
        rest = "".join(f" {name}={_shown(value)}" for name, value in extras.items() if name not in FIELDS)
        message, *more = message.split("\n")
        text = escape(message + redact(rest))
        return [f"{self._prefix(record)}{escape(record.name)}: {text}", *(f"    {escape(line)}" for line in more)]

    def _prefix(self, record: logging.LogRecord) -> str:
        return f"{self._time(record)}{self._coloured(record, f'{record.levelname:<7}')} {record.process} "

    def _job_line(self, record: logging.LogRecord, line: JobLine) -> str:
        return self._time(record) + escape(redact(line.text()))

    def _time(self, record: logging.LogRecord) -> str:
        return _moment(record).isoformat(timespec="milliseconds").replace("+00:00", "Z ")

    def _coloured(self, record: logging.LogRecord, text: str) -> str:  # noqa: ARG002 - a terminal has colours
        return text

    def _whole(self, record: logging.LogRecord, lines: list[str]) -> str:  # noqa: ARG002 - the journal marks each line
        return "\n".join(lines)


class TerminalFormatter(TextFormatter):
    """Text with the local time of day, colours, and job lines that are cut to the width of the terminal."""

    def __init__(self, redact: Iterable[str], stream: Any, *, colour: bool) -> None:
        super().__init__(redact)
        self._stream = stream
        self._colour = colour

    def _job_line(self, record: logging.LogRecord, line: JobLine) -> str:
        time = self._time(record)
        text = escape(redact(line.text(self._width() - len(time))))
        return time + self._coloured(record, line.word) + text.removeprefix(line.word)

    def _time(self, record: logging.LogRecord) -> str:
        return _moment(record).astimezone().strftime("%H:%M:%S.%f")[:-3] + " "

    def _coloured(self, record: logging.LogRecord, text: str) -> str:
        colour = _COLOURS.get(record.levelname) if self._colour else None
        return f"{colour}{text}{_RESET}" if colour else text

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _WIDTH
        except (OSError, ValueError):
            return _WIDTH


class JournalFormatter(TextFormatter):
    """Text for systemd's journal, which adds the time and the process itself: ``<6>mainspring.worker: message``.

    The number is the priority that ``journalctl -p`` filters by, in front of each line of a traceback too.
    """

    def _prefix(self, record: logging.LogRecord) -> str:  # noqa: ARG002 - the journal has all of it
        return ""

    def _time(self, record: logging.LogRecord) -> str:  # noqa: ARG002 - the journal has the time
        return ""

    def _whole(self, record: logging.LogRecord, lines: list[str]) -> str:
        priority = next((number for level, number in _PRIORITIES if record.levelno >= level), 7)
        return "\n".join(f"<{priority}>{line}" for line in lines)


def conceal(record: logging.LogRecord) -> None:
    """Remove known secrets from the record's message and traceback, for handlers with their own formatters."""
    try:
        text = record.getMessage()
        trace = "".join(format_exception(record.exc_info[1])) if record.exc_info and record.exc_info[1] else ""
    except Exception:  # noqa: BLE001 - wrong arguments, or user code in them: the handler reports the error
        return
    if (hidden := redact(text)) != text:
        record.msg, record.args = hidden, ()
    if (hidden := redact(trace)) != trace:
        record.exc_text = hidden.rstrip("\n")


def escape(text: str) -> str:
    """The text with control characters as escapes.

    >>> escape("done\\n\\x1b[2Jforged")
    'done\\\\n\\\\x1b[2Jforged'
    """
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def _set_in(text: str) -> list[str]:
    return [f"    {escape(line)}" for line in text.rstrip().split("\n")]


def _head(fields: Mapping[str, Any]) -> str:
    if not fields.get("job_id"):
        return ""
    job = " ".join(str(fields[name]) for name in ("task", "job_id") if name in fields)
    return f"[{job}#{fields['attempt']}]" if "attempt" in fields else f"[{job}]"


def _moment(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _message(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except Exception as error:  # noqa: BLE001 - wrong arguments for the message, or user code in them
        text = f"{record.msg} <its arguments do not fit: {error}>"
    return clean_secret_text(text, _MESSAGE_LIMIT)


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    """The additional fields of the record: the job's fields first, then ``extra``."""
    found = {name: value for name in FIELDS if (value := getattr(record, name, "")) not in ("", None)}
    given = vars(record).items()
    return found | {name: value for name, value in given if name not in _KNOWN and not name.startswith("_")}


def _error_of(record: logging.LogRecord) -> dict[str, str] | None:
    if record.exc_info and record.exc_info[1] is not None:
        return _error(record.exc_info[1])
    error = getattr(record, ERROR, None)
    return None if error is None else {"type": error.type, "message": error.message, "traceback": error.traceback}


def _error(error: BaseException) -> dict[str, str]:
    try:
        trace = "".join(format_exception(type(error), error, error.__traceback__))
    except Exception as failure:  # noqa: BLE001 - formatting runs user code: __str__, __repr__, source loaders
        trace = f"<the traceback could not be written: {type(failure).__name__}>"
    return {
        "type": type(error).__qualname__,
        "message": clean_secret_text(text_of(error), _MESSAGE_LIMIT),
        "traceback": clean_secret_text(trace, _MESSAGE_LIMIT, keep="ends"),
    }


def _plain(value: Any, depth: int) -> Any:
    """The value as JSON data, without secrets."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < 2**63 else str(value)
    if depth and isinstance(value, Mapping):
        return {clean_text(text_of(key), 1_000): _plain(item, depth - 1) for key, item in value.items()}
    if depth and isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, depth - 1) for item in value]
    return clean_secret_text(value if isinstance(value, str) else text_of(value), _MESSAGE_LIMIT)


def _shown(value: Any) -> str:
    return clean_text(value if isinstance(value, str) else text_of(value), 1_000)


_encode = msgspec.json.Encoder().encode
