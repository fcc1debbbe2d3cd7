"""A candidate at work: it stands until it is elected, leads until that is over, and stands again.

It lives on the loop of whoever started it and asks the store from the background loop, where its term is renewed too:
a callback may block its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

from mainspring.client import blocking
from mainspring.common.callables import is_async
from mainspring.errors import StoreError
from mainspring.locks.hold import Hold

R = TypeVar("R")
Callback = Callable[[int], object] | Callable[[int], Awaitable[object]]
"""What is called with the term."""

_LOOK = 1.0
"""Seconds between two tries, at most."""

log = logging.getLogger("mainspring.locks")


class Callbacks(NamedTuple):
    """Who is told."""

    elected: Callback | None
    lost: Callback | None


class Campaign:
    """From ``start`` to ``stop``."""

    def __init__(self, new_hold: Callable[[], Hold], told: Callbacks) -> None:
        self.hold: Hold | None = None
        """That of a leader."""
        self.term = 0
        self._new_hold = new_hold
        self._told = told
        self._over: Future[None] = Future()
        self._ending = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed: asyncio.Event | None = None
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether it runs, and in this process: a fork does not take it along."""
        return self._pid == os.getpid() and not self._over.done()

    async def run(self) -> None:
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        try:
            while not self._ending:
                hold = await self._win()
                if hold is not None:
                    await self._lead(hold)
        finally:
            self._over.set_result(None)

    async def end(self) -> None:
        """Step down; from any thread or loop."""
        self._ending = True
        self._wake()
        if self.is_here:
            await asyncio.shield(asyncio.wrap_future(self._over))

    # ---- private ------------------------------------------------------------------------------

    async def _win(self) -> Hold | None:
        """The office, or None when it is told to end."""
        hold, told = self._new_hold(), False
        pause = min(_LOOK, hold.ttl / 3e6)
        while not self._ending:
            try:
                if (await _aside(hold.ask())).ok:
                    return hold
            except StoreError as error:
                if not told:
                    log.warning("%s: it cannot stand: %s", hold.spot, error)
                hold, told = self._new_hold(), True  # of the old one nobody knows whether it arrived
            await self._wait(pause * random.uniform(0.5, 1.0))
        return None

    async def _lead(self, hold: Hold) -> None:
        hold.on_lost = self._wake
        hold.keep()
        self.hold, self.term = hold, hold.token
        log.info("%s: elected, term %d", hold.spot, hold.token)
        acting = asyncio.create_task(_tell(self._told.elected, hold))
        try:
            while not hold.lost and not self._ending:
                await self._wait(None)
            self.hold = None
            await self._hand_over(hold, acting)
            with suppress(StoreError):
                await _aside(hold.end())
        finally:
            self.hold = None
            if not hold.over:  # its loop ends
                hold.give_up()
        log.info("%s: term %d is over", hold.spot, hold.token)

    async def _hand_over(self, hold: Hold, acting: asyncio.Task[None]) -> None:
        """The callbacks end before another is let in, unless they take too long."""
        if self._told.elected is not None and is_async(self._told.elected):
            acting.cancel()
        await self._finished(acting, hold)
        await self._finished(asyncio.create_task(_tell(self._told.lost, hold)), hold)

    async def _finished(self, telling: asyncio.Task[None], hold: Hold) -> None:
        _, left = await asyncio.wait({telling}, timeout=hold.ttl / 1e6)
        if left:
            log.error("%s: a callback of term %d does not end; another may lead meanwhile", hold.spot, hold.token)

    async def _wait(self, seconds: float | None) -> None:
        """Until something changes, or for so long."""
        assert self._changed is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()

    def _wake(self) -> None:
        if self._loop is not None and self._changed is not None and self._pid == os.getpid():
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._changed.set)


async def _tell(callback: Callback | None, hold: Hold) -> None:
    """Call it and wait for its end."""
    if callback is None:
        return
    if is_async(callback):
        with _isolated(hold):
            await callback(hold.token)  # type: ignore[misc]  # it is async
        return
    done: Future[None] = Future()
    done.set_running_or_notify_cancel()  # from now on nobody can cancel it: a thread goes on

    def run() -> None:
        with _isolated(hold):
            callback(hold.token)
        done.set_result(None)

    # it does not keep the process from ending
    threading.Thread(target=run, name="mainspring-election-callback", daemon=True).start()
    await asyncio.wrap_future(done)


@contextmanager
def _isolated(hold: Hold) -> Iterator[None]:
    """What a callback raises is its own affair."""
    try:
        yield
    except (Exception, SystemExit):
        log.exception("%s: a callback of term %d failed", hold.spot, hold.token)


async def _aside(call: Coroutine[Any, Any, R]) -> R:
    """On the background loop."""
    return await asyncio.wrap_future(blocking.spawn(call))
