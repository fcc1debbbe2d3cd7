"""Progress and log lines on their way to the store: gathered, sent at most twice a second.

An attempt that ends with news unsent has its ack held back until they are sent (or could not be),
for the store takes news only of running attempts. News are best effort: what the store could not
take is dropped, never repeated, and holds up nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from mainspring.outcomes import Ack
from mainspring.records import Report
from mainspring.stores.base import Store
from mainspring.worker.attempt import Attempt, Ending
from mainspring.worker.trouble import Trouble

log = logging.getLogger("mainspring.worker")

EVERY = 0.5
_MOST = 500
"""Most attempts in one call."""


class Reporter:
    """Sends the news of this worker's attempts."""

    def __init__(self, store: Store, worker: Callable[[], str], acked: Callable[[Ack], None]) -> None:
        self._store = store
        self._worker = worker
        self._acked = acked
        self._loop = asyncio.get_running_loop()
        self._news: dict[bytes, Attempt] = {}
        self._ended: list[tuple[Attempt, Ack]] = []
        self._woken = asyncio.Event()
        self._hurry = asyncio.Event()
        self._trouble = Trouble("sending progress and logs", log)

    def told(self, attempt: Attempt) -> None:
        """The attempt has news. Any thread."""
        if attempt.news:
            return  # it is in line already
        attempt.news = True
        try:
            self._loop.call_soon_threadsafe(self._add, attempt)
        except RuntimeError:  # the loop is closed: a thread that outlived its worker
            return

    def ended(self, attempt: Attempt, ack: Ack) -> None:
        """An attempt with news is over: send them, then its ack."""
        self._ended.append((attempt, ack))
        self._woken.set()
        self._hurry.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._woken.wait()
            await self._send()
            try:
                async with asyncio.timeout(EVERY):
                    await self._hurry.wait()
            except TimeoutError:
                continue

    def _add(self, attempt: Attempt) -> None:
        self._news[attempt.claim.id] = attempt
        self._woken.set()

    async def _send(self) -> None:
        self._woken.clear()
        self._hurry.clear()
        ended, self._ended = self._ended, []
        told = {attempt.claim.id: attempt for attempt, _ in ended} | self._news
        self._news = {}
        made = [self._report(attempt) for attempt in told.values() if attempt.ending is not Ending.GONE]
        reports = [report for report in made if report.progress or report.logs]
        try:
            for start in range(0, len(reports), _MOST):
                await self._store.report(self._worker(), reports[start : start + _MOST])
            self._trouble.over()
        except Exception as error:  # noqa: BLE001 - news are not worth a worker; the store's state is the turner's care
            self._trouble.failed(error)
        finally:
            for _, ack in ended:
                self._acked(ack)

    def _report(self, attempt: Attempt) -> Report:
        attempt.news = False  # before the news are taken: what is told from now on puts it in line again
        progress, attempt.progress = attempt.progress, None
        logs = []
        while attempt.logs:
            logs.append(attempt.logs.popleft())
        return Report(id=attempt.claim.id, token=attempt.claim.token, progress=progress, logs=tuple(logs))
