"""Sends the reports of attempts to the store: progress, log lines and stream items.

Reports are collected and sent at most twice a second; stream items after 0.1 s. The store takes reports only of running
attempts: when an attempt ends with unsent reports, its ack is held back until they were sent, or could not be sent.
Reports delay nothing else. Progress and log lines that the store could not take are dropped. Items are kept while the
store cannot be reached or is full (it could not take the ack either), at most ``PATIENCE`` seconds after the end of
their attempt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence

from mainspring.common.clock import boottime
from mainspring.errors import StoreFull, StoreUnavailable
from mainspring.jobs.outcomes import Ack
from mainspring.jobs.records import AttemptReport
from mainspring.stores.base import Store
from mainspring.worker.retry_log import Outage, RetryLog
from mainspring.worker.run.attempt import Ending, RunEnvironment, RunningAttempt

log = logging.getLogger("mainspring.worker")

EVERY = 0.5
"""Seconds between two calls without stream items."""
SOON = 0.1
"""Seconds between two calls with stream items."""
PATIENCE = 10.0
_MAX_ATTEMPTS = 500
"""Most attempts in one call."""
_MAX_BYTES = 1_000_000
"""About the largest number of bytes of items in one call."""

EndedAttempt = tuple[RunningAttempt, Ack, float]
"""An attempt that has ended, its ack, and until when the ack may be held back."""


class ReportSender:
    """Sends the reports of one worker's attempts. ``add_ack`` takes the acks that were held back."""

    def __init__(
        self, store: Store, environment: RunEnvironment, add_ack: Callable[[Ack], None], outage: Outage
    ) -> None:
        self._store = store
        self._environment = environment
        self._add_ack = add_ack
        self._loop = asyncio.get_running_loop()
        self._queued: dict[bytes, RunningAttempt] = {}
        self._ended: list[EndedAttempt] = []
        self._sending: list[EndedAttempt] = []
        self._has_reports = asyncio.Event()
        self._has_items = asyncio.Event()
        self._has_ended = asyncio.Event()
        self._retry_log = RetryLog("sending progress and logs", log, outage, until_success=False)

    def add(self, attempt: RunningAttempt, *, soon: bool = False) -> None:
        """The attempt has reports to send. ``soon``: these are the first items since the last call. Any thread."""
        if attempt.report_queued and not soon:
            return
        attempt.report_queued = attempt.has_reports = True
        try:
            self._loop.call_soon_threadsafe(self._queue, attempt, soon)
        except RuntimeError:  # the loop is closed: the body's thread outlived its worker
            return

    def send_then_ack(self, attempt: RunningAttempt, ack: Ack) -> None:
        """An attempt that had reports has ended: pass on its ack after the reports were sent."""
        self._ended.append((attempt, ack, boottime() + PATIENCE))
        self._has_reports.set()
        self._has_ended.set()

    def unsent_ends(self) -> list[tuple[RunningAttempt, Ack]]:
        """The ended attempts whose reports were not sent yet. Any thread."""
        return [(attempt, ack) for attempt, ack, _ in tuple(self._ended)]

    def half_sent_ends(self) -> list[tuple[RunningAttempt, Ack]]:
        """The ended attempts whose reports are on their way, without those with stream items. Any thread."""
        return [(attempt, ack) for attempt, ack, _ in tuple(self._sending) if attempt.stream is None]

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._has_reports.wait()
            pause = await self._send()
            if pause:
                await asyncio.sleep(pause)
                continue
            await self._wait(SOON, self._has_ended)
            if not (self._has_ended.is_set() or self._has_items.is_set()):
                await self._wait(EVERY - SOON, self._has_ended, self._has_items)

    async def _wait(self, limit: float, *events: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait(waits, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _queue(self, attempt: RunningAttempt, soon: bool) -> None:
        self._queued[attempt.claim.id] = attempt
        self._has_reports.set()
        if soon:
            self._has_items.set()

    async def _send(self) -> float:
        """Send all reports. Returns the seconds to wait if the store is away and something must be sent again."""
        for event in (self._has_reports, self._has_items, self._has_ended):
            event.clear()
        ended, self._ended = self._ended, []
        self._sending = ended
        queued = {attempt.claim.id: attempt for attempt, _, _ in ended} | self._queued
        self._queued = {}
        attempts = [attempt for attempt in queued.values() if attempt.ending is not Ending.GONE]
        try:
            pause = await self._call_store(attempts)
            if pause:
                ended = self._queue_again(attempts, ended)
        finally:
            self._sending = []
            for _, ack, _ in ended:
                self._add_ack(ack)
        return pause if self._has_reports.is_set() else 0.0

    async def _call_store(self, attempts: Sequence[RunningAttempt]) -> float:
        """Send the reports of these attempts. Returns the seconds to wait if the store is away."""
        for batch in _batches(attempts):
            try:
                await self._store.report(self._environment.worker, [report for _, report in batch])
                self._retry_log.record_success()
            except (StoreUnavailable, StoreFull) as error:
                for attempt, report in batch:
                    if report.items and attempt.stream is not None:
                        attempt.stream.put_back(report.items)
                return self._retry_log.record_failure(error)
            except Exception as error:  # noqa: BLE001 - reports must not end the worker; turns show the same error
                self._retry_log.record_failure(error)
        return 0.0

    def _queue_again(self, attempts: Sequence[RunningAttempt], ended: list[EndedAttempt]) -> list[EndedAttempt]:
        """The store is away: queue attempts with items, and those not tried, again. Returns the ended attempts whose
        acks need not wait any longer."""
        ended_jobs = {attempt.claim.id for attempt, _, _ in ended}
        self._queued |= {
            attempt.claim.id: attempt
            for attempt in attempts
            if attempt.claim.id not in ended_jobs and (attempt.report_queued or _has_items(attempt))
        }
        now = boottime()
        again = [each for each in ended if _has_items(each[0]) and now < each[2]]
        self._ended[:0] = again
        if self._queued or self._ended:
            self._has_reports.set()
        return [each for each in ended if each not in again]


async def send_reports(store: Store, worker: str, attempts: Sequence[RunningAttempt]) -> None:
    """Send the reports of ended attempts, over a connection of another thread. Items that were not sent are kept."""
    for batch in _batches(attempts):
        try:
            await store.report(worker, [report for _, report in batch])
        except BaseException:
            for attempt, report in batch:
                if report.items and attempt.stream is not None:
                    attempt.stream.put_back(report.items)
            raise


def _has_items(attempt: RunningAttempt) -> bool:
    return attempt.stream is not None and bool(attempt.stream.waiting)


def _batches(attempts: Sequence[RunningAttempt]) -> Iterator[list[tuple[RunningAttempt, AttemptReport]]]:
    """Reports in batches of a size that every store takes. The items of one attempt may need several batches."""
    batch: list[tuple[RunningAttempt, AttemptReport]] = []
    room = _MAX_BYTES
    for attempt in attempts:
        for report in _reports(attempt):
            batch.append((attempt, report))
            room -= sum(len(data) for _, data in report.items)
            if room <= 0 or len(batch) >= _MAX_ATTEMPTS:
                yield batch
                batch, room = [], _MAX_BYTES
    if batch:
        yield batch


def _reports(attempt: RunningAttempt) -> Iterator[AttemptReport]:
    attempt.report_queued = False  # before the reports are taken: a report from now on queues the attempt again
    progress, attempt.progress = attempt.progress, None
    logs = []
    while attempt.logs:
        logs.append(attempt.logs.popleft())
    items = attempt.stream.take(_MAX_BYTES) if attempt.stream is not None else ()
    while progress or logs or items:
        yield AttemptReport(
            id=attempt.claim.id, token=attempt.claim.token, progress=progress, logs=tuple(logs), items=items
        )
        progress, logs = None, []
        items = attempt.stream.take(_MAX_BYTES) if attempt.stream is not None else ()
