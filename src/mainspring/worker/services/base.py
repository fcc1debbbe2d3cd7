"""A service: one action that a worker repeats in the background.

A subclass sets ``every`` and writes ``tick``. This class has the loop, the jitter, the handling of errors, and the
event that tests wait for. A failure is logged when it begins, every 30 s while it lasts, and when it is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import ClassVar

from mainspring.common.pause import jittered
from mainspring.stores.base import Store
from mainspring.worker.retry_log import RetryLog


class Service:
    """Runs :meth:`tick` until it is cancelled at the end of its worker."""

    every: ClassVar[float] = 1.0
    """Seconds between two ticks, unless a tick returns another number."""
    jitter: ClassVar[float] = 0.1
    """The largest part of the pause that is cut off at random, so that the workers of a fleet do not act in step."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.ticks = 0
        self._ticked = asyncio.Event()
        self._asked = asyncio.Event()
        name = type(self).__name__.lower()
        self.log = logging.getLogger(f"mainspring.{name}")
        self.retry_log = RetryLog(f"running the {name}", self.log, max_pause=max(1.0, self.every))

    async def tick(self) -> float | None:
        """Do the action once. May return the seconds until the next tick."""
        raise NotImplementedError

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            pause = await self._tick_once()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._asked.wait()
            self._asked.clear()

    def tick_now(self) -> None:
        """Do not wait for the end of the pause."""
        self._asked.set()

    async def wait_tick(self) -> None:
        """Wait for the end of a tick that begins after now."""
        for _ in range(2):
            self._ticked.clear()
            await self._ticked.wait()

    async def _tick_once(self) -> float:
        try:
            wait = await self.tick()
        except Exception as error:  # noqa: BLE001 - a service continues after any error of the store
            return self.retry_log.record_failure(error)
        self.retry_log.record_success()
        self.ticks += 1
        self._ticked.set()
        return jittered(self.every if wait is None else wait, least=1 - self.jitter)
