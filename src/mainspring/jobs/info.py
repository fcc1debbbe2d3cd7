"""What people read of a job: its record, its attempts, its log lines, made of the store's rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from mainspring.codec import ErrorRecord, loads
from mainspring.common.clock import to_datetime
from mainspring.common.redact import hide
from mainspring.jobs.outcomes import Outcome
from mainspring.jobs.records import AttemptRow, JobBody, JobRow, LogLine
from mainspring.options.table import show_value
from mainspring.states import FINAL, Reason, State

_decode_body = msgspec.json.Decoder(JobBody).decode


class AttemptInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One ended attempt of a job."""

    number: int
    epoch: int
    token: int
    worker: str
    started: datetime
    ended: datetime
    outcome: Outcome
    error: ErrorRecord | None = None

    @property
    def run(self) -> timedelta:
        """From its claim to its end."""
        return self.ended - self.started


class Moment(msgspec.Struct, frozen=True):
    """One line of a job's timeline."""

    at: datetime
    what: str
    """``enqueued``, ``due``, ``started``, the outcome of an attempt, or the state the job ended in."""
    detail: str = ""


class LogEntry(msgspec.Struct, frozen=True):
    """One line that the handler logged; ``n`` counts them from 1."""

    n: int
    at: datetime
    level: str
    text: str


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the store knew of a job when it was asked."""

    id: UUID
    task: str
    queue: str
    state: State
    reason: Reason | None
    note: str | None
    """The words of whoever cancelled it."""
    priority: int
    attempt: int
    """Attempts that count against ``retries``; those given back do not."""
    epoch: int
    """1, and one more with each retry by hand."""
    crashes: int
    token: int
    worker: str | None
    """Who runs it or ran it last."""
    enqueued: datetime
    due: datetime | None
    """When a scheduled or retrying job may run."""
    expires: datetime | None
    started: datetime | None
    """When its last attempt began."""
    finished: datetime | None
    cancelling: bool
    """A cancel order was given and the handler has not ended yet."""
    progress: dict[str, Any] | None
    error: ErrorRecord | None
    args: dict[str, Any]
    """The arguments by name; ``@`` holds positional ones of a call by name. ``***`` for hidden ones and for names
    that look secret."""
    options: dict[str, Any]
    """What the job carries: ``ack``, ``crashes``; ``retries`` and ``timeout`` if they were given for it alone."""
    tags: tuple[str, ...]
    meta: dict[str, Any]
    """As it was given, but hidden like the arguments."""
    key: str | None
    """Its unique key as people read it; arguments in it are hidden likewise."""
    parent: UUID | None
    """The job that spawned it or that it follows."""
    trace: str
    """32 hex digits shared by all jobs that come of one."""
    code: str | None
    """Version of the code that enqueued it."""
    schedule: str | None
    """The schedule that it is a run of."""
    occurrence: datetime | None
    """The moment that this run stands for: when it was due by the rule, or asked for."""
    attempts: tuple[AttemptInfo, ...]
    """Every ended attempt but a plain success, oldest first; listings leave them out."""

    @property
    def final(self) -> bool:
        return self.state in FINAL

    @property
    def wait(self) -> timedelta | None:
        """From the enqueue to the start of the last attempt; None before the first."""
        return None if self.started is None else self.started - self.enqueued

    @property
    def run(self) -> timedelta | None:
        """How long the attempt ran that ended the job; None while it is live or if it never ran."""
        ended_by_running = self.finished is not None and self.started is not None
        return self.finished - self.started if ended_by_running else None  # type: ignore[operator]  # both are there

    @property
    def timeline(self) -> tuple[Moment, ...]:
        """What happened to the job, oldest first."""
        moments = [Moment(self.enqueued, "enqueued", f"on queue {self.queue}")]
        for each in self.attempts:
            moments.append(Moment(each.started, "started", _which(each.number, each.epoch, each.worker)))
            moments.append(Moment(each.ended, each.outcome.value, _brief(each.error)))
        if self.started is not None and self.token not in {each.token for each in self.attempts}:
            moments.append(Moment(self.started, "started", _which(self.attempt, self.epoch, self.worker)))
        if self.due is not None:
            moments.append(Moment(self.due, "due"))
        moments.sort(key=lambda moment: moment.at)
        if self.finished is not None:
            because = ": ".join(part for part in (self.reason, self.note) if part)
            moments.append(Moment(self.finished, self.state.value, because))
        return tuple(moments)


def info_of(row: JobRow, attempts: Sequence[AttemptRow] = ()) -> JobInfo:
    """The record of a job from its row. A row that cannot be read in part still shows the rest."""
    body = _body(row.record)
    id = UUID(bytes=row.id)
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
        cancelling=row.ordered,
        progress=msgspec.json.decode(row.progress) if row.progress else None,
        error=error_of(row.error),
        args=hide(_object(body.args), body.hide),
        options=_options(row, body),
        tags=body.tags,
        meta=hide(_object(body.meta), body.hide),
        key=body.key,
        parent=None if body.parent is None else UUID(body.parent),
        trace=body.trace or id.hex,
        code=body.code,
        schedule=body.schedule,
        occurrence=_moment(body.occurrence),
        attempts=tuple(_attempt(one) for one in attempts),
    )


def error_of(data: bytes | None) -> ErrorRecord | None:
    record: ErrorRecord | None = None if data is None else loads(data, ErrorRecord)
    return record


def log_of(line: LogLine) -> LogEntry:
    return LogEntry(line.n, to_datetime(line.at), line.level, line.text)


def _moment(us: int | None) -> datetime | None:
    return None if us is None else to_datetime(us)


def _body(record: bytes) -> JobBody:
    """What the producer wrote; an empty one if nobody can read it, so that such a job can be found and deleted."""
    try:
        return _decode_body(record)
    except (msgspec.DecodeError, TypeError, RecursionError):  # what is no JSON, no bytes, or too deep
        return JobBody()


def _object(data: msgspec.Raw | msgspec.UnsetType) -> dict[str, Any]:
    found = msgspec.json.decode(data) if data else {}
    return found if isinstance(found, dict) else {}


def _options(row: JobRow, body: JobBody) -> dict[str, Any]:
    options: dict[str, Any] = {"ack": "early" if row.early else "late", "crashes": row.crash_limit}
    return options | {name: show_value(name, value) for name, value in body.options.items()}


def _attempt(row: AttemptRow) -> AttemptInfo:
    return AttemptInfo(
        number=row.attempt,
        epoch=row.epoch,
        token=row.token,
        worker=row.worker,
        started=to_datetime(row.started),
        ended=to_datetime(row.ended),
        outcome=row.outcome,
        error=error_of(row.error),
    )


def _which(number: int, epoch: int, worker: str | None) -> str:
    again = f" of epoch {epoch}" if epoch > 1 else ""
    return f"attempt {number}{again} on worker {worker}"


def _brief(error: ErrorRecord | None) -> str:
    if error is None:
        return ""
    first, _, _ = error.message.partition("\n")
    return f"{error.type}: {first}" if first else error.type
