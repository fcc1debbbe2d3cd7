"""What can happen to a job, for hooks."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, get_args
from uuid import UUID

import msgspec

from mainspring.codec import ErrorRecord
from mainspring.states import Reason, State

EventName = Literal["started", "succeeded", "failed", "retrying", "snoozed", "dead", "cancelled", "stalled"]
EVENTS: tuple[EventName, ...] = get_args(EventName)
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
