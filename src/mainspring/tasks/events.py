"""What can happen to a job, for hooks."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal, get_args
from uuid import UUID

import msgspec

from mainspring.breakers.records import BREAKER_SUFFIX, BreakerRow
from mainspring.codec import ErrorRecord
from mainspring.common.clock import to_datetime
from mainspring.states import Reason, State

if TYPE_CHECKING:
    from mainspring.schedules.plan import ScheduleNews

EventName = Literal["started", "succeeded", "failed", "retrying", "snoozed", "dead", "cancelled", "stalled"]
EVENTS: tuple[EventName, ...] = get_args(EventName)
BreakerEventName = Literal["breaker_opened", "breaker_half_open", "breaker_closed"]
BREAKER_EVENTS: tuple[BreakerEventName, ...] = get_args(BreakerEventName)
ScheduleEventName = Literal["schedule_missed", "schedule_skipped", "schedule_disabled", "schedule_enabled"]
SCHEDULE_EVENTS: tuple[ScheduleEventName, ...] = get_args(ScheduleEventName)
MEANINGS: dict[EventName, str] = {
    "started": "The body of an attempt begins.",
    "succeeded": "The job has succeeded.",
    "failed": "An attempt has failed or run out of time; `retrying` or `dead` follows.",
    "retrying": "The job will be tried again.",
    "snoozed": "The handler put the job off; the attempt does not count.",
    "dead": "The job has failed for good.",
    "cancelled": "The job was cancelled while it ran, or has expired. One that is cancelled while it waits ends "
    "in the process that cancels it: `on_cancel=` follows that too.",
    "stalled": "The worker that ran the job is gone; it runs again, or `dead` follows.",
}


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a job, told in the worker that stored it."""

    name: EventName
    job: UUID
    task: str
    queue: str
    attempt: int
    state: State
    reason: Reason | None = None
    error: ErrorRecord | None = None
    worker: str = ""
    at: datetime


BREAKER_MEANINGS: dict[BreakerEventName, str] = {
    "breaker_opened": "A breaker has opened, again or for the first time: what it guards waits.",
    "breaker_half_open": "The time of an open breaker is over, and its first probe has started.",
    "breaker_closed": "A probe has succeeded, or somebody has reset it: what it guards runs again.",
}


class BreakerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a breaker, told in the process that stored it."""

    name: BreakerEventName
    breaker: str
    failures: int = 0
    """Those that opened it."""
    error: str = ""
    """What failed last."""
    until: datetime | None = None
    """When one that has opened is tried again; None if it waits for somebody to reset it."""
    worker: str = ""
    at: datetime


_OF_STATE: dict[str, BreakerEventName] = {
    "open": "breaker_opened", "half_open": "breaker_half_open", "closed": "breaker_closed",
}  # fmt: skip


def breaker_event(row: BreakerRow, now: int, worker: str = "") -> BreakerEvent:
    """What hooks are told of a breaker that has just changed."""
    is_open = row.state == "open"
    return BreakerEvent(
        name=_OF_STATE[row.state],
        breaker=row.name.removesuffix(BREAKER_SUFFIX),
        failures=row.failures,
        error=row.error,
        until=to_datetime(row.until) if is_open and row.until is not None else None,
        worker=worker,
        at=to_datetime(now),
    )


SCHEDULE_MEANINGS: dict[ScheduleEventName, str] = {
    "schedule_missed": "Nobody saw to occurrences of a schedule in time; `misfire` says what became of them.",
    "schedule_skipped": "Occurrences that were due did not become runs: one has not ended, or a job was refused.",
    "schedule_disabled": "A schedule was disabled: by failed runs in a row, or by somebody.",
    "schedule_enabled": "A schedule is enabled again: on trial after failures, or by somebody.",
}


class ScheduleEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a schedule, told in the process that stored it."""

    name: ScheduleEventName
    schedule: str
    note: str = ""
    """Why, in words; of those that were missed, the misfire policy."""
    count: int = 0
    """Occurrences that were missed or skipped; failures that disabled it."""
    worker: str = ""
    at: datetime


def schedule_event(schedule: str, news: ScheduleNews, now: int, worker: str = "") -> ScheduleEvent:
    """What hooks are told of a schedule."""
    name: ScheduleEventName = f"schedule_{news.what}"  # type: ignore[assignment]  # of the four
    return ScheduleEvent(
        name=name, schedule=schedule, note=news.note, count=news.many, worker=worker, at=to_datetime(now)
    )
