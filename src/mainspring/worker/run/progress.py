"""Progress, log lines and stream items on their way to the store: gathered, sent at most twice a second, items sooner.

An attempt that ends with news unsent has its ack held back until they are sent (or could not be),
for the store takes news only of running attempts. News hold up nothing: progress and lines that the
store could not take are dropped. Items are kept while the store is out of reach or full, for it could
not take the ack either; at most ``PATIENCE`` seconds after the end of their attempt.
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
from mainspring.worker.loop.outage import Outage
from mainspring.worker.loop.retry_log import RetryLog
from mainspring.worker.run.attempt import Ending, RunningAttempt

log = logging.getLogger("mainspring.worker")

EVERY = 0.5
"""Seconds between two calls; a call with items is made after ``SOON``."""
SOON = 0.1
PATIENCE = 10.0
_MOST = 500
"""Most attempts in one call."""
_MOST_BYTES = 1_000_000
"""Most bytes of items in one call, about."""

Ended = tuple[RunningAttempt, Ack, float]
"""An attempt that is over, its ack, and until when that may wait."""


class ReportSender:
    """Sends the news of this worker's attempts."""

    def __init__(self, store: Store, worker: Callable[[], str], acked: Callable[[Ack], None], outage: Outage) -> None:
        self._store = store
        self._worker = worker
        self._acked = acked
        self._loop = asyncio.get_running_loop()
        self._news: dict[bytes, RunningAttempt] = {}
        self._ended: list[Ended] = []
        self._woken = asyncio.Event()
        self._items = asyncio.Event()
        self._ends = asyncio.Event()
        self._trouble = RetryLog("sending progress and logs", log, outage, tries=False)

    def told(self, attempt: RunningAttempt, *, soon: bool = False) -> None:
        """The attempt has news; ``soon``: the first items since the last call. Any thread."""
        if attempt.news and not soon:
            return  # it is in line already
        attempt.news = attempt.told = True
        try:
            self._loop.call_soon_threadsafe(self._add, attempt, soon)
        except RuntimeError:  # the loop is closed: a thread that outlived its worker
            return

    def ended(self, attempt: RunningAttempt, ack: Ack) -> None:
        """An attempt that had news is over: its ack goes when they are sent."""
        self._ended.append((attempt, ack, boottime() + PATIENCE))
        self._woken.set()
        self._ends.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._woken.wait()
            pause = await self._send()
            if pause:
                await asyncio.sleep(pause)
                continue
            await self._wait(SOON, self._ends)
            if not (self._ends.is_set() or self._items.is_set()):
                await self._wait(EVERY - SOON, self._ends, self._items)

    async def _wait(self, limit: float, *events: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait(waits, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _add(self, attempt: RunningAttempt, soon: bool) -> None:
        self._news[attempt.claim.id] = attempt
        self._woken.set()
        if soon:
            self._items.set()

    async def _send(self) -> float:
        """Send what there is. Seconds to wait if the store is away and something has to be tried again."""
        for event in (self._woken, self._items, self._ends):
            event.clear()
        ended, self._ended = self._ended, []
        told = {attempt.claim.id: attempt for attempt, _, _ in ended} | self._news
        self._news = {}
        attempts = [attempt for attempt in told.values() if attempt.ending is not Ending.GONE]
        try:
            pause = await self._call(attempts)
            if pause:
                ended = self._keep(attempts, ended)
        finally:
            for _, ack, _ in ended:
                self._acked(ack)
        return pause if self._woken.is_set() else 0.0

    async def _call(self, attempts: Sequence[RunningAttempt]) -> float:
        """Report for these; seconds to wait if the store is away."""
        for call in _calls(attempts):
            try:
                await self._store.report(self._worker(), [report for _, report in call])
                self._trouble.over()
            except (StoreUnavailable, StoreFull) as error:
                for attempt, report in call:
                    if report.items and attempt.stream is not None:
                        attempt.stream.put_back(report.items)
                return self._trouble.failed(error)
            except Exception as error:  # noqa: BLE001 - news are not worth a worker; the turner looks after the store
                self._trouble.failed(error)
        return 0.0

    def _keep(self, attempts: Sequence[RunningAttempt], ended: list[Ended]) -> list[Ended]:
        """The store is away: put what has items, or was not looked at, in line again; the rest of the ended is over."""
        over = {attempt.claim.id for attempt, _, _ in ended}
        self._news |= {
            attempt.claim.id: attempt
            for attempt in attempts
            if attempt.claim.id not in over and (attempt.news or _has_items(attempt))
        }
        now = boottime()
        again = [each for each in ended if _has_items(each[0]) and now < each[2]]
        self._ended[:0] = again
        if self._news or self._ended:
            self._woken.set()
        return [each for each in ended if each not in again]


def _has_items(attempt: RunningAttempt) -> bool:
    return attempt.stream is not None and bool(attempt.stream.waiting)


def _calls(attempts: Sequence[RunningAttempt]) -> Iterator[list[tuple[RunningAttempt, AttemptReport]]]:
    """Reports in portions that a store takes well; the items of one attempt may need several."""
    call: list[tuple[RunningAttempt, AttemptReport]] = []
    room = _MOST_BYTES
    for attempt in attempts:
        for report in _reports(attempt):
            call.append((attempt, report))
            room -= sum(len(data) for _, data in report.items)
            if room <= 0 or len(call) >= _MOST:
                yield call
                call, room = [], _MOST_BYTES
    if call:
        yield call


def _reports(attempt: RunningAttempt) -> Iterator[AttemptReport]:
    attempt.news = False  # before the news are taken: what is told from now on puts it in line again
    progress, attempt.progress = attempt.progress, None
    logs = []
    while attempt.logs:
        logs.append(attempt.logs.popleft())
    items = attempt.stream.take(_MOST_BYTES) if attempt.stream is not None else ()
    while progress or logs or items:
        yield AttemptReport(
            id=attempt.claim.id, token=attempt.claim.token, progress=progress, logs=tuple(logs), items=items
        )
        progress, logs = None, []
        items = attempt.stream.take(_MOST_BYTES) if attempt.stream is not None else ()
