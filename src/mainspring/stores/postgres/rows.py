"""From rows of the tables to the records of the contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mainspring.breakers.counting import breaker_row
from mainspring.breakers.records import StoredBreaker
from mainspring.jobs.outcomes import Outcome
from mainspring.jobs.records import AttemptRow, JobRow, LogLine
from mainspring.limits.records import Bucket, BucketRow, HolderRow, Limit, LimitRow
from mainspring.queues.records import DisabledMode, QueueMode, QueueRow, QueueSettings
from mainspring.schedules.records import ScheduleRow
from mainspring.states import Reason, State
from mainspring.worker.records import WorkerRow

JOB_COLUMNS = (
    "id", "state", "reason", "task", "queue", "lane", "priority", "attempt", "epoch", "crashes", "crash_limit",
    "early", "token", "worker", "seq", "enqueued", "due", "expires", "started", "finished", "ran", "deps", "ordered",
    "progress", "result", "error", "note", "buckets", "costs", "record",
)  # fmt: skip
"""The columns that :func:`job_row` reads, in the order of the statement."""
_WORKER_COLUMNS = ("id", "number", "turn", "lost", "started", "seen", "running", "queues", "tasks", "lease", "info")

stored_breaker = msgspec.json.Decoder(StoredBreaker).decode
_settings = msgspec.json.Decoder(QueueSettings).decode


def job_row(row: Sequence[Any]) -> JobRow:
    found = dict(zip(JOB_COLUMNS, row, strict=True))
    found["buckets"] = _buckets(found["buckets"], found.pop("costs"))
    found["state"] = State(found["state"])
    found["reason"] = None if found["reason"] is None else Reason(found["reason"])
    return JobRow(**found)


def _buckets(names: Sequence[str] | None, costs: Sequence[int] | None) -> tuple[Bucket, ...]:
    parts = [name.partition("=") for name in names or ()]
    return tuple(
        Bucket(limit, key, cost) for (limit, _, key), cost in zip(parts, costs or [1] * len(parts), strict=True)
    )


def attempt_row(row: Sequence[Any]) -> AttemptRow:
    token, epoch, attempt, worker, started, ended, ran, outcome, error = row
    return AttemptRow(
        token=token, epoch=epoch, attempt=attempt, worker=worker, started=started, ended=ended, ran=ran,
        outcome=Outcome(outcome), error=error,
    )  # fmt: skip


def log_line(row: Sequence[Any]) -> LogLine:
    at, level, text, n = row
    return LogLine(at, level, text.decode("utf-8"), n)


def limit_row(row: Sequence[Any]) -> LimitRow:
    name, kind, size, per, burst, share, span, set_size = row
    limit = Limit(name=name, kind=kind, size=size, per=per, burst=burst, share=share, span=span)
    return LimitRow(limit=limit, size=set_size)


def bucket_row(bucket: Bucket, row: Sequence[Any]) -> BucketRow:
    kind, size, used, next_at, holders, breaker = row
    return BucketRow(
        name=bucket.name, limit=bucket.limit, kind=kind, size=size, used=used, next_at=next_at, holders=tuple(holders),
        breaker=None if breaker is None else breaker_row(stored_breaker(breaker)),
    )  # fmt: skip


def holder_row(row: Sequence[Any], bucket: str) -> HolderRow:
    _, holder, token, since, until, left, info = row
    return HolderRow(holder=holder, bucket=bucket, token=token, since=since, until=until, left=left, info=info)


def queue_row(row: Sequence[Any]) -> QueueRow:
    name, mode, since, declared, given, disabled, disabled_at, disabled_by = row
    how = None if disabled is None else DisabledMode(disabled)
    return QueueRow(
        name, QueueMode(mode), since, _settings(declared or "{}"), _settings(given or "{}"), how, disabled_at,
        disabled_by,
    )  # fmt: skip


def schedule_row(row: Sequence[Any]) -> ScheduleRow:
    name, rev, look, doc = row
    return ScheduleRow(name=name, rev=rev, look=look, doc=doc)


def worker_row(row: Sequence[Any]) -> WorkerRow:
    return msgspec.convert(dict(zip(_WORKER_COLUMNS, row, strict=True)), WorkerRow)
