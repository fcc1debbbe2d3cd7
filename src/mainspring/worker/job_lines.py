"""One log line for each attempt that has ended: ``done  add(2, 3) -> 5  12 ms``.

``mainspring dev`` logs these lines at info, other workers at debug. They replace the lines of ``failure_log`` about
failed attempts and dead jobs, so that each attempt has one line. Secrets are hidden as in ``job.info()``. A line is
built only when it is logged: a worker without these lines does nothing for them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.codec import ErrorRecord, loads
from mainspring.common.duration import format_duration
from mainspring.common.redact import HIDDEN, hide, redact, redact_in
from mainspring.common.text import cut
from mainspring.errors import shown
from mainspring.jobs.outcomes import Outcome
from mainspring.states import State
from mainspring.worker.failure_log import log_record, shorten_error, wait_text

if TYPE_CHECKING:
    from mainspring.jobs.outcomes import Ack
    from mainspring.worker.run.attempt import RunningAttempt

LINE = "_mainspring_job_line"
"""Attribute of a log record with the parts of the line, for formatters that know the width of the terminal."""
_PART = 200
"""The longest text of the arguments, and of the result or the error."""
_READ_LIMIT = 100_000
"""Bytes of arguments or of a result that are decoded for a line; larger values are shown by their size."""

log = logging.getLogger("mainspring.worker")


class JobLine(msgspec.Struct, frozen=True):
    """The parts of one line."""

    word: str
    call: str
    """``add(2, 3)``"""
    outcome: str
    """What follows the call: `` -> 5``, ``: ValueError: no; retry in 5s``."""
    tail: str
    """The duration."""

    def text(self, width: int | None = None) -> str:
        """The line. If it is longer than ``width``, the call and the outcome are cut, the outcome first to its half.

        >>> line = JobLine("done", "add(2, 3)", " -> 5", "12 ms")
        >>> line.text()
        'done  add(2, 3) -> 5  12 ms'
        >>> JobLine("done", "send('" + "x" * 50 + "')", " -> 5", "12 ms").text(40)
        "done  send('xxxxxxxxxxxxx... -> 5  12 ms"
        """
        call, outcome = self.call, self.outcome
        if width is not None:
            space = max(8, width - len(self.word) - len(self.tail) - 4)
            outcome = cut(outcome, max(space // 2, space - len(call)))
            call = cut(call, space - len(outcome))
        return f"{self.word}  {call}{outcome}  {self.tail}"


class JobLines:
    """Logs the lines of one worker at ``level``; failed attempts are warnings and dead jobs errors at any level."""

    def __init__(self, level: int) -> None:
        self._level = level

    def log_end(self, attempt: RunningAttempt, ack: Ack) -> None:
        """The attempt has ended with this ack. A claim that was handed back without a start has no line."""
        if not attempt.begun and ack.to not in (State.DEAD, State.CANCELLED):
            return
        level, word, outcome = self._describe(attempt, ack)
        if log.isEnabledFor(level):
            line = JobLine(word, describe_call(attempt), outcome, _duration(ack.run_us))
            error = _error_of(ack) if ack.to is State.DEAD else None
            log_record(level, line.text(), {**attempt.log_fields, LINE: line}, error)

    def _describe(self, attempt: RunningAttempt, ack: Ack) -> tuple[int, str, str]:
        """The level, the word and what follows the call."""
        error = _error_of(ack)
        # the indented second line of our own errors is their hint; the log line is one line
        said = f": {shorten_error(error)}".partition("\n  ")[0] if error is not None else ""
        match ack.to:
            case State.SUCCEEDED:
                return self._level, "done", said or _result(attempt, ack)
            case State.RETRYING:
                number = f" (attempt {attempt.claim.attempt} of {attempt.retries + 1})"
                return logging.WARNING, "failed", f"{cut(said, _PART)}; retry in {wait_text(ack.delay)}{number}"
            case State.DEAD:
                return logging.ERROR, "dead", f"{cut(said, _PART)} ({ack.reason})"
            case State.CANCELLED:
                words = error.message if error is not None else ""
                return self._level, "cancelled", cut(f": {words}" if words else "", _PART)
            case _ if ack.outcome is Outcome.CRASHED:
                return logging.WARNING, "crashed", f"{cut(said, _PART)} (crash {attempt.claim.crashes + 1} of the job)"
            case State.SCHEDULED:
                return self._level, "snoozed", "" if ack.due is not None else f"; again in {wait_text(ack.delay)}"
            case _:
                return self._level, "handed back", ""


def job_lines_at(level: str) -> JobLines | None:
    """The lines at this level; None if the worker does not log them."""
    number = logging.getLevelNamesMapping()[level.upper()]
    return JobLines(number) if log.isEnabledFor(number) else None


def describe_call(attempt: RunningAttempt) -> str:
    """The call as Python writes it, with the last part of the task's name: ``add(2, 3)``."""
    name = str(attempt.claim.task).rpartition(".")[2]
    if attempt.body is None:  # the record could not be decoded
        return f"{name}(...)"
    data = attempt.body.args
    if len(data) > _READ_LIMIT:
        return f"{name}(<{len(data):,} bytes>)"
    given = loads(data) if data else {}
    if not isinstance(given, dict):
        return f"{name}(...)"
    places = attempt.spec.signature.positional
    by_place = given.pop("@", None) or []  # a producer that knew only the name of the task
    rest = [*by_place[len(places) :], *(given.pop("*", None) or [])]
    more = given.pop("**", None) or {}
    named = {**dict(zip(places, by_place, strict=False)), **given, **more}
    found = hide(named, {*attempt.body.hide, *attempt.spec.hide})
    values, in_order = [], True
    for place in places:
        in_order = in_order and place in found
        if in_order:
            values.append(_value(found.pop(place)))
    values += [_value(redact_in(each, attempt)) for each in rest]
    values += [f"{key}={_value(value)}" for key, value in found.items()]
    return redact(f"{name}({cut(', '.join(values), _PART)})", attempt)


def _result(attempt: RunningAttempt, ack: Ack) -> str:
    if ack.result is None or ack.result == b"null":
        return ""
    if len(ack.result) > _READ_LIMIT:
        return f" -> <{len(ack.result):,} bytes>"
    try:
        value = attempt.spec.signature.decode_result(ack.result)
    except Exception:  # noqa: BLE001 - decoders run user code; the job has succeeded
        return " -> ..."
    return redact(f" -> {shown(redact_in(value, attempt), _PART)}", attempt)


def _value(value: Any) -> str:
    return HIDDEN if value is HIDDEN else shown(value, _PART)


def _error_of(ack: Ack) -> ErrorRecord | None:
    return loads(ack.error, ErrorRecord) if ack.error else None


def _duration(run_us: int) -> str:
    if run_us < 1_000:
        return "<1 ms"
    if run_us < 1_000_000:
        return f"{run_us // 1_000} ms"
    return f"{run_us / 1e6:.1f} s" if run_us < 60_000_000 else format_duration(run_us // 1_000_000)
