"""The events of jobs, breakers and schedules, for ``app.on``: one table with names and meanings for each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import msgspec

from mainspring.breakers.records import BREAKER_SUFFIX, BreakerRow
from mainspring.codec import ErrorRecord
from mainspring.common.clock import to_datetime
from mainspring.common.redact import redact
from mainspring.errors import shown
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
    "stalled": "The worker that ran the job is lost, or the process that ran it has died; the job runs again, or "
    "`dead` follows.",
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


class Deferred:
    """A value of an event that is computed when it is read for the first time. It is not passed to hooks."""

    __slots__ = ("_compute", "_value")

    def __init__(self, compute: Callable[[], Any]) -> None:
        self._compute: Callable[[], Any] | None = compute
        self._value: Any = None

    def get(self) -> Any:
        """The value. Two threads may compute it both; they get equal values."""
        if (compute := self._compute) is not None:
            self._value = compute()
            self._compute = None
        return self._value

    def __repr__(self) -> str:
        return redact(shown(self.get(), 200))

    def __eq__(self, other: object) -> bool:
        return bool(self.get() == (other.get() if isinstance(other, Deferred) else other))

    def __hash__(self) -> int:
        return hash(self.get())

    def __reduce__(self) -> tuple[Any, ...]:
        return _same, (self.get(),)


def _same(value: Any) -> Any:
    return value


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a job; hooks are called in the worker that stored the change.

    It carries what the worker knows about the job, so a hook needs no call to the store. Arguments and result are
    decoded when they are read.
    """

    name: EventName
    job: UUID
    task: str
    queue: str
    attempt: int
    state: State
    reason: Reason | None = None
    args: dict[str, Any] = {}
    """The arguments by name, as ``job.info().args`` shows them: ``***`` replaces secret values."""
    result: Any = None
    """The value that the task returned, as its declared return type; None unless the job has succeeded."""
    error: ErrorRecord | None = None
    warning: str | None = None
    """What went wrong although the job has succeeded: its result was too large and was dropped."""
    wait: timedelta | None = None
    """The time from the enqueue of the job, its delay included, to the start of this attempt; None if no attempt of
    this worker had started."""
    duration: timedelta | None = None
    """How long the body ran, by the worker's monotonic clock; None for ``started``, and if the worker did not see the
    end of the body."""
    worker: str = ""
    at: datetime

    if not TYPE_CHECKING:  # a type checker uses the annotations above

        def __getattribute__(self, name: str) -> Any:
            value = super().__getattribute__(name)
            return value.get() if type(value) is Deferred else value

    def __hash__(self) -> int:
        return hash((self.name, self.job, self.attempt, self.at))


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
