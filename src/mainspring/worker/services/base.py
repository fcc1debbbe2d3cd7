"""A service: one action that a worker repeats in the background.

A subclass sets ``every`` and writes ``tick``. This class has the loop, the jitter, the handling of errors, and the
event that tests wait for. A failure is logged when it begins, every 30 s while it lasts, and when it is over.

A service may be led (``leader.py``): then the leader of the fleet repeats it, and the other workers only do it when
they are asked to.
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

    every: float = 1.0
    """Seconds between two ticks, unless a tick returns another number."""
    on_demand: ClassVar[bool] = False
    """While the service is led, a tick that returns ``every`` or more waits until it is asked for: the leader learns
    by itself when there is work."""
    ticks_first: ClassVar[bool] = True
    """Tick once at the start, also if another worker leads."""
    jitter: ClassVar[float] = 0.1
    """The largest part of the pause that is cut off at random, so that the workers of a fleet do not act in step."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.ticks = 0
        self._ticked = asyncio.Event()
        self._asked = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._is_led = False
        self.leads = True
        """Whether this worker does the service for the fleet. True for a service that every worker does."""
        name = type(self).__name__.lower()
        self.log = logging.getLogger(f"mainspring.{name}")
        self.retry_log = RetryLog(f"running the {name}", self.log, max_pause=max(1.0, self.every))

    async def tick(self) -> float | None:
        """Do the action once. May return the seconds until the next tick."""
        raise NotImplementedError

    async def run(self) -> None:
        """Tick until cancelled."""
        if not (self.leads or self.ticks_first):
            await self._wait_asked(None)
        while True:
            pause = await self._tick_once()
            await self._wait_asked(None if self._rests(pause) else pause)

    async def _wait_asked(self, pause: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._asked.wait()
        self._asked.clear()

    def _rests(self, pause: float) -> bool:
        """Whether only a call of :meth:`tick_now` ends the pause."""
        return self._is_led and (not self.leads or (self.on_demand and pause >= self.every))

    def tick_now(self) -> None:
        """Do not wait for the end of the pause."""
        self._asked.set()

    def tick_in(self, seconds: float) -> None:
        """Do not wait longer than this. A later moment that was asked for before is forgotten."""
        loop = asyncio.get_running_loop()
        now, at = loop.time(), loop.time() + max(0.0, seconds)
        if self._timer is not None:
            if now < self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer, self._timer_at = loop.call_at(at, self.tick_now), at

    def set_leads(self, leads: bool) -> None:
        """This worker does the service for the fleet from now on, or another worker does."""
        self._is_led = True
        if leads and not self.leads:
            self.tick_now()
        self.leads = leads

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
