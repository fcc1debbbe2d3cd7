"""The events of jobs, breakers and schedules, for ``app.on``: one table with names and meanings for each."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal
from uuid import UUID

import msgspec

from mainspring.breakers.records import BREAKER_SUFFIX, BreakerRow
from mainspring.codec import ErrorRecord
from mainspring.common.clock import to_datetime
from mainspring.states import Reason, State

if TYPE_CHECKING:
    from mainspring.schedules.plan import ScheduleNews

EventName = Literal["started", "succeeded", "failed", "retrying", "snoozed", "dead", "cancelled", "stalled"]
MEANINGS: dict[EventName, str] = {
    "started": "The body of an attempt starts.",
    "succeeded": "The job has succeeded.",
    "failed": "An attempt has failed or reached its timeout; `retrying` or `dead` follows.",
    "retrying": "The job will be tried again.",
    "snoozed": "The handler has postponed the job; the attempt does not count.",
    "dead": "The job has failed and will not be retried.",
    "cancelled": "The job was cancelled while it ran, or has expired. A waiting job is cancelled in the process that "
    "cancels it, without this event; `on_cancel=` follows in both cases.",
    "stalled": "The worker that ran the job is lost; the job runs again, or `dead` follows.",
}
EVENTS: tuple[EventName, ...] = tuple(MEANINGS)
BreakerEventName = Literal["breaker_opened", "breaker_half_open", "breaker_closed"]
BREAKER_MEANINGS: dict[BreakerEventName, str] = {
    "breaker_opened": "A breaker has opened, for the first time or again: its jobs and code wait.",
    "breaker_half_open": "The time of an open breaker has passed, and its first probe has started.",
    "breaker_closed": "A probe has succeeded, or a user has reset the breaker: its jobs and code run again.",
}
BREAKER_EVENTS: tuple[BreakerEventName, ...] = tuple(BREAKER_MEANINGS)
ScheduleEventName = Literal["schedule_missed", "schedule_skipped", "schedule_disabled", "schedule_enabled"]
SCHEDULE_MEANINGS: dict[ScheduleEventName, str] = {
    "schedule_missed": "Occurrences of a schedule were not started in time; `misfire` decides which of them run.",
    "schedule_skipped": "Due occurrences did not become runs: a run has not ended, or its job was refused.",
    "schedule_disabled": "A schedule was disabled: by consecutive failed runs, or by a user.",
    "schedule_enabled": "A schedule is enabled again: on trial after failures, or by a user.",
}
SCHEDULE_EVENTS: tuple[ScheduleEventName, ...] = tuple(SCHEDULE_MEANINGS)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a job; hooks are called in the worker that stored the change."""

    name: EventName
    job: UUID
    task: str
    queue: str
    attempt: int
    state: State
    reason: Reason | None = None
    error: ErrorRecord | None = None
    warning: str | None = None
    """What went wrong although the job has succeeded: its result was too large and was dropped."""
    worker: str = ""
    at: datetime


class BreakerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a breaker; hooks are called in the process that stored the change."""

    name: BreakerEventName
    breaker: str
    failures: int = 0
    """The failures that opened the breaker."""
    error: str = ""
    """The last failure, as text."""
    until: datetime | None = None
    """When an opened breaker allows probes; None if a user must reset it."""
    worker: str = ""
    at: datetime


_OF_STATE: dict[str, BreakerEventName] = {
    "open": "breaker_opened", "half_open": "breaker_half_open", "closed": "breaker_closed",
}  # fmt: skip


def breaker_event(row: BreakerRow, now: int, worker: str = "") -> BreakerEvent:
    """The event of a breaker that has just changed."""
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


class ScheduleEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a schedule; hooks are called in the process that stored the change."""

    name: ScheduleEventName
    schedule: str
    note: str = ""
    """The reason as text; for missed occurrences the misfire policy."""
    count: int = 0
    """The number of missed or skipped occurrences, or of failures that disabled the schedule."""
    worker: str = ""
    at: datetime


def schedule_event(schedule: str, news: ScheduleNews, now: int, worker: str = "") -> ScheduleEvent:
    """The event of a schedule that has just changed."""
    name: ScheduleEventName = f"schedule_{news.what}"  # type: ignore[assignment]  # one of the four names
    return ScheduleEvent(
        name=name, schedule=schedule, note=news.note, count=news.many, worker=worker, at=to_datetime(now)
    )
