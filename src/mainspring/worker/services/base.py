"""A service: one thing done over and over in the background of a worker.

A subclass says how often and writes ``tick``. The loop, jitter, care for errors and the moment that
tests wait for are here, once. Trouble is said when it begins, every 30 s, and when it is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import ClassVar

from mainspring.stores.base import Store
from mainspring.worker.loop.retry_log import RetryLog


class Service:
    """Runs :meth:`tick` for as long as its worker lives; cancelled at the end."""

    every: ClassVar[float] = 1.0
    """Seconds between two ticks, unless a tick says otherwise."""
    jitter: ClassVar[float] = 0.1
    """Up to this part of the pause is taken away, so that a fleet does not act in step."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.ticks = 0
        self._ticked = asyncio.Event()
        self._hurried = asyncio.Event()
        name = type(self).__name__.lower()
        self.log = logging.getLogger(f"mainspring.{name}")
        self.trouble = RetryLog(f"the {name}", self.log, longest=max(1.0, self.every))

    async def tick(self) -> float | None:
        """Do it once. May return the seconds until the next time."""
        raise NotImplementedError

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            pause = await self._once()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._hurried.wait()
            self._hurried.clear()

    def hurry(self) -> None:
        """Tick now."""
        self._hurried.set()

    async def ticked(self) -> None:
        """Wait for the end of a tick that begins after now."""
        for _ in range(2):
            self._ticked.clear()
            await self._ticked.wait()

    async def _once(self) -> float:
        try:
            wait = await self.tick()
        except Exception as error:  # noqa: BLE001 - a service outlives whatever its store does
            return self.trouble.failed(error)
        self.trouble.over()
        self.ticks += 1
        self._ticked.set()
        pause = self.every if wait is None else wait
        return pause * (1 - random.random() * self.jitter)
