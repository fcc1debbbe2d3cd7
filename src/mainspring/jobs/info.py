"""What users read about a job: its info, its attempts and its log lines, built from rows of the store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from mainspring.codec import ErrorRecord, first_line, loads
from mainspring.common.clock import to_datetime
from mainspring.common.redact import hide
from mainspring.jobs.outcomes import Outcome
from mainspring.jobs.records import AttemptRow, JobBody, JobRow, LogLine
from mainspring.options.table import show_value
from mainspring.states import FINAL, Reason, State

_FAILURES = (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CRASHED)
_decode_body = msgspec.json.Decoder(JobBody).decode


class AttemptInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One ended attempt of a job."""

    number: int
    epoch: int
    token: int
    worker: str
    started: datetime
    """When a worker claimed the job for this attempt."""
    ended: datetime
    """When the end of the attempt was stored."""
    run: timedelta | None
    """How long the body ran, by the clock of its worker: zero if it did not begin, None if the worker was lost."""
    outcome: Outcome
    error: ErrorRecord | None = None


class Moment(msgspec.Struct, frozen=True):
    """One line of a job's timeline."""

    at: datetime
    what: str
    """``enqueued``, ``due``, ``started``, the outcome of an attempt, or the final state of the job."""
    detail: str = ""


class LogEntry(msgspec.Struct, frozen=True):
    """One line that the handler logged; ``n`` counts the lines of a job from 1."""

    n: int
    at: datetime
    level: str
    text: str


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A job, at the time of the call."""

    id: UUID
    task: str
    queue: str
    state: State
    reason: Reason | None
    note: str | None
    """The reason that the caller of ``cancel`` gave."""
    priority: int
    attempt: int
    """The number of attempts that count against ``retries``. An attempt that was handed back does not count."""
    epoch: int
    """1, and one more after each retry by hand."""
    crashes: int
    token: int
    worker: str | None
    """The worker that runs it or ran it last."""
    enqueued: datetime
    due: datetime | None
    """When a scheduled or retrying job may run."""
    expires: datetime | None
    """The job is cancelled if it has not started by then. None once the job waits to run again after a start."""
    started: datetime | None
    """When a worker claimed the job for its last attempt. The body starts as soon as the worker has a free slot."""
    finished: datetime | None
    """When the end of the job was stored."""
    run: timedelta | None
    """How long the body of the last attempt of an ended job ran, by the clock of its worker; zero if the body did not
    begin. None while the job is live, if it ended while it waited (cancelled, expired), and if its worker was lost."""
    cancelling: bool
    """The job was cancelled, and its handler has not ended yet."""
    progress: dict[str, Any] | None
    error: ErrorRecord | None
    """The error of the last failed attempt; None after a success. Listings have it for ended jobs only."""
    warning: str | None
    """What went wrong although the job has succeeded: its result was too large and was dropped."""
    args: dict[str, Any]
    """The arguments by name; ``@`` has the positional arguments of a call by task name. ``***`` replaces hidden
    arguments, arguments whose names look secret, and passwords in URLs."""
    options: dict[str, Any]
    """The options of the job: ``ack``, ``crashes``; ``retries`` and ``timeout`` if they were given for this job."""
    tags: tuple[str, ...]
    meta: dict[str, Any]
    """The metadata of the job; secrets are hidden as in ``args``."""
    key: str | None
    """Its unique key in readable form; secret arguments in it are hidden as in ``args``."""
    parent: UUID | None
    """The job that enqueued it, or that it follows."""
    flow: UUID | None
    """The flow that it belongs to."""
    trace: str
    """32 hex digits that a job shares with all jobs that it enqueues."""
    code: str | None
    """The version of the code that enqueued it."""
    schedule: str | None
    """The schedule, if the job is a run of one."""
    occurrence: datetime | None
    """The occurrence of the schedule: when the run was due by the rule, or when it was triggered."""
    attempts: tuple[AttemptInfo, ...]
    """The ended attempts that did not succeed, oldest first: failed, timed out, crashed, interrupted, snoozed. The
    attempt that succeeded is not among them: ``attempt`` has its number, ``started`` and ``finished`` its times. In
    listings it is empty."""

    @property
    def final(self) -> bool:
        """Whether the job has ended."""
        return self.state in FINAL

    @property
    def wait(self) -> timedelta | None:
        """The time from the enqueue to the claim of the last attempt; None before the first attempt."""
        return None if self.started is None else self.started - self.enqueued

    @property
    def timeline(self) -> tuple[Moment, ...]:
        """The events of the job, oldest first."""
        moments = [Moment(self.enqueued, "enqueued", f"on queue {self.queue}")]
        for each in self.attempts:
            moments.append(Moment(each.started, "started", _describe_attempt(each.number, each.epoch, each.worker)))
            moments.append(Moment(each.ended, each.outcome.value, describe_error(each.error)))
        if self.started is not None and self.token not in {each.token for each in self.attempts}:
            moments.append(Moment(self.started, "started", _describe_attempt(self.attempt, self.epoch, self.worker)))
        if self.due is not None:
            moments.append(Moment(self.due, "due"))
        moments.sort(key=lambda moment: moment.at)
        if self.finished is not None:
            because = ": ".join(part for part in (self.reason, self.note) if part)
            moments.append(Moment(self.finished, self.state.value, because))
        return tuple(moments)


def build_info(row: JobRow, attempts: Sequence[AttemptRow] = ()) -> JobInfo:
    """Build the info of a job from its row. If a part of the row cannot be read, the other parts are shown."""
    body = _read_body(row.record)
    id = UUID(bytes=row.id)
    succeeded = row.state is State.SUCCEEDED
    error = decode_error(row.error if row.error is not None or row.state in FINAL else _last_failure(row, attempts))
    return JobInfo(
        id=id,
        task=row.task,
        queue=row.queue,
        state=row.state,
        reason=row.reason,
        note=row.note,
        priority=row.priority,
        attempt=row.attempt,
        epoch=row.epoch,
        crashes=row.crashes,
        token=row.token,
        worker=row.worker,
        enqueued=to_datetime(row.enqueued),
        due=_moment(row.due),
        expires=_moment(row.expires),
        started=_moment(row.started),
        finished=_moment(row.finished),
        run=_span(row.ran),
        cancelling=row.ordered,
        progress=msgspec.json.decode(row.progress) if row.progress else None,
        error=None if succeeded else error,
        warning=first_line(error) if succeeded and error is not None else None,
        args=hide(_read_object(body.args), body.hide),
        options=_options(row, body),
        tags=body.tags,
        meta=hide(_read_object(body.meta), body.hide),
        key=body.key,
        parent=None if body.parent is None else UUID(body.parent),
        flow=None if body.flow is None else UUID(body.flow),
        trace=body.trace or id.hex,
        code=body.code,
        schedule=body.schedule,
        occurrence=_moment(body.occurrence),
        attempts=tuple(_build_attempt(one) for one in attempts),
    )


def decode_error(data: bytes | None) -> ErrorRecord | None:
    """Decode the stored error of a job or an attempt."""
    record: ErrorRecord | None = None if data is None else loads(data, ErrorRecord)
    return record


def build_log_entry(line: LogLine) -> LogEntry:
    """Build the entry of one stored log line."""
    return LogEntry(line.n, to_datetime(line.at), line.level, line.text)


def _last_failure(row: JobRow, attempts: Sequence[AttemptRow]) -> bytes | None:
    """The error of the last attempt of this epoch that failed. An attempt that was handed back is no failure."""
    return next((one.error for one in reversed(attempts) if one.epoch == row.epoch and one.outcome in _FAILURES), None)


def _moment(us: int | None) -> datetime | None:
    return None if us is None else to_datetime(us)


def _span(us: int | None) -> timedelta | None:
    return None if us is None else timedelta(microseconds=us)


def _read_body(record: bytes) -> JobBody:
    """Decode the record of a job. Return an empty body if that fails, so that such a job can be found and deleted."""
    try:
        return _decode_body(record)
    except (msgspec.DecodeError, TypeError, RecursionError):  # no JSON, no bytes, or nested too deeply
        return JobBody()


def _read_object(data: msgspec.Raw | msgspec.UnsetType) -> dict[str, Any]:
    found = msgspec.json.decode(data) if data else {}
    return found if isinstance(found, dict) else {}


def _options(row: JobRow, body: JobBody) -> dict[str, Any]:
    options: dict[str, Any] = {"ack": "early" if row.early else "late", "crashes": row.crash_limit}
    return options | {name: show_value(name, value) for name, value in body.options.items()}


def _build_attempt(row: AttemptRow) -> AttemptInfo:
    return AttemptInfo(
        number=row.attempt,
        epoch=row.epoch,
        token=row.token,
        worker=row.worker,
        started=to_datetime(row.started),
        ended=to_datetime(row.ended),
        run=_span(row.ran),
        outcome=row.outcome,
        error=decode_error(row.error),
    )


def _describe_attempt(number: int, epoch: int, worker: str | None) -> str:
    again = f" of epoch {epoch}" if epoch > 1 else ""
    return f"attempt {number}{again} on worker {worker}"


def describe_error(error: ErrorRecord | None) -> str:
    """The type of a stored error and the first line of its message."""
    if error is None:
        return ""
    first = first_line(error)
    return f"{error.type}: {first}" if first else error.type
