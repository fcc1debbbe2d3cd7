"""Producers, each in its own way: single jobs, bulk, many at once on an event loop, bursts and requests.

Each writes down what it asked for and what it was told.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mainspring import Mainspring
from mainspring.errors import StoreError
from mainspring.jobs.job import Job
from tests.processes.mixed import Mixed
from tests.soak.flow import Flow
from tests.soak.ledger import Ledger

LONG = 2.0
"""Seconds of the jobs that a fault is meant to hit."""
BULK_EVERY = 0.5
ONE_EVERY = 0.1
MANY_EVERY = 0.5
BURST_EVERY = 2.0
REQUEST_EVERY = 0.4


class Producers:
    """They work from ``start`` to ``stop``. ``ledger`` records what they did."""

    def __init__(self, url: str, folder: Path) -> None:
        self._app = Mainspring(url)
        self.ledger = Ledger(self._app)
        self._mixed = Mixed(self._app)
        self._flow = Flow(self._app)
        self._folder = folder
        self._stopping = threading.Event()
        self._uncancelled: list[Job[Any]] = []
        ways: tuple[Callable[[], None], ...] = (
            self._one_by_one, self._in_bulk, self._many_at_once, self._in_bursts, self._requests, self._requests,
        )  # fmt: skip
        self._threads = [threading.Thread(target=way, name=way.__name__) for way in ways]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Enqueue no more jobs, and cancel the jobs that only a cancel ends."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        while self._uncancelled:
            self._cancel()

    def close(self) -> None:
        self._stopping.set()
        self._app.close()

    # ---- the ways ---------------------------------------------------------------------------

    def _one_by_one(self) -> None:
        for n in itertools.count():
            task = self._mixed.good if n % 2 else self._mixed.thread
            self.ledger.enqueue([task.s(0.05)])
            if self._stopping.wait(ONE_EVERY):
                return

    def _in_bulk(self) -> None:
        for n in itertools.count():
            calls = self._mixed.calls(str(self._folder / f"snoozed{n}"), seconds=0.3)
            calls += [self._mixed.good.s(LONG), self._mixed.thread.s(LONG)]
            self._uncancelled.append(self.ledger.enqueue(calls).jobs[0])
            self._cancel()
            if self._stopping.wait(BULK_EVERY):
                return

    def _many_at_once(self) -> None:
        asyncio.run(self._many())

    async def _many(self) -> None:
        while not self._stopping.is_set():
            await asyncio.gather(*(self.ledger.aenqueue([self._mixed.good.s(0.1)]) for _ in range(5)))
            await asyncio.sleep(MANY_EVERY)
        await self._app.aclose()

    def _in_bursts(self) -> None:
        for n in itertools.count():
            for calls in self._flow.bursts(n):
                self.ledger.enqueue(calls)
            if self._stopping.wait(BURST_EVERY):
                return

    def _requests(self) -> None:
        """Two do this at once: each request comes from both, and every third time with another amount."""
        for n in itertools.count():
            for amount in (n, n, n + n % 3):
                self.ledger.enqueue([self._flow.paid.s(n, amount)])
            if self._stopping.wait(REQUEST_EVERY):
                return

    def _cancel(self) -> None:
        """Cancel the jobs that nothing else ends; what the store did not answer is asked again."""
        for job in tuple(self._uncancelled):
            began = time.time()
            try:
                done = job.cancel()
            except StoreError:
                continue
            self._uncancelled.remove(job)
            if done:
                self.ledger.cancelled(str(job.id), began)
