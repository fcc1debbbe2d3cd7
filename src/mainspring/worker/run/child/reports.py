"""Collects the reports of the running body, and sends them to the worker ten times a second at most."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mainspring.pools.records import BodyWaits
from mainspring.worker.run.slots.lending import find_shared_limits, refuse_deadlock

if TYPE_CHECKING:
    from mainspring.jobs.records import JobRow
    from mainspring.limits.records import Limit
    from mainspring.worker.run.attempt import RunningAttempt
    from mainspring.worker.run.child.link import ChildLink

EVERY = 0.1
"""Seconds between two messages with reports."""


class ChildReports:
    """In the place of the worker's ``ReportSender``. The worker stores the reports."""

    def __init__(self, link: ChildLink) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()

    def add(self, attempt: RunningAttempt, *, soon: bool = False) -> None:  # noqa: ARG002 - always soon enough
        """The attempt has reports to send. Any thread."""
        if attempt.report_queued:
            return
        attempt.report_queued = attempt.has_reports = True
        try:
            self._loop.call_soon_threadsafe(self._queue, attempt)
        except RuntimeError:  # the loop is closed: the process ends
            return

    def _queue(self, attempt: RunningAttempt) -> None:
        self._loop.call_later(EVERY, self._send, attempt)

    def _send(self, attempt: RunningAttempt) -> None:
        if not attempt.finished:
            self._link.send_reports(attempt)


class ChildLender:
    """In the place of the worker's ``SlotLender``: the worker starts one more child while the body here waits."""

    def __init__(self, link: ChildLink, limits: Iterable[Limit]) -> None:
        self._link = link
        self._limits = tuple(limits)
        self._waits: dict[tuple[bytes, int], int] = {}

    def shared_limits(self, attempt: RunningAttempt, job: JobRow) -> set[str]:
        """The names of the concurrency limits that ``job`` needs and the body of ``attempt`` holds."""
        return find_shared_limits(attempt, job, (*self._limits, *attempt.spec.limits))

    def begin_wait(self, attempt: RunningAttempt, job: JobRow, narrow: Iterable[str] = ()) -> None:
        """The body begins to wait for ``job``. Raises ``WouldDeadlock``."""
        refuse_deadlock(attempt, job, narrow)
        waits = self._waits[attempt.lease] = self._waits.get(attempt.lease, 0) + 1
        if waits == 1:
            self._link.send(BodyWaits(attempt.claim.id, attempt.claim.token, True))

    def end_wait(self, attempt: RunningAttempt) -> None:
        """The wait is over."""
        waits = self._waits.pop(attempt.lease, 1) - 1
        if waits:
            self._waits[attempt.lease] = waits
        else:
            self._link.send(BodyWaits(attempt.claim.id, attempt.claim.token, False))
