"""A running candidate: it waits until it is elected, leads until its term ends, and becomes a candidate again.

It runs on the event loop that started it. It calls the store from the background loop, where its term is renewed too,
because a callback may block the loop of the candidate.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

from mainspring.client import blocking
from mainspring.common.callables import is_async
from mainspring.common.pause import jittered
from mainspring.errors import StoreError
from mainspring.locks.hold import Hold

R = TypeVar("R")
Callback = Callable[[int], object] | Callable[[int], Awaitable[object]]
"""A function of the term."""

_LONGEST_POLL = 1.0
"""Seconds between two tries, at most."""

log = logging.getLogger("mainspring.locks")


class ElectionCallbacks(NamedTuple):
    """The functions that are called when the leadership begins and ends."""

    elected: Callback | None
    lost: Callback | None


class Campaign:
    """The life of a candidate, from ``start`` to ``stop``."""

    def __init__(self, new_hold: Callable[[], Hold], callbacks: ElectionCallbacks) -> None:
        self.hold: Hold | None = None
        """The hold of the leader; None while it does not lead."""
        self.term = 0
        self._new_hold = new_hold
        self._callbacks = callbacks
        self._over: Future[None] = Future()
        self._ending = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed: asyncio.Event | None = None
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether it runs in this process. A forked child does not continue it."""
        return self._pid == os.getpid() and not self._over.done()

    async def run(self) -> None:
        """Run the candidate until ``end``."""
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        try:
            while not self._ending:
                hold = await self._wait_for_election()
                if hold is not None:
                    await self._lead(hold)
        finally:
            self._over.set_result(None)

    async def end(self) -> None:
        """End the leadership and the candidacy; from any thread or loop."""
        self._ending = True
        self._wake()
        if self.is_here:
            await asyncio.shield(asyncio.wrap_future(self._over))

    # ---- private ------------------------------------------------------------------------------

    async def _wait_for_election(self) -> Hold | None:
        """Return the hold of the leader; None if ``end`` was called first."""
        hold, logged = self._new_hold(), False
        pause = min(_LONGEST_POLL, hold.ttl / 3e6)
        while not self._ending:
            try:
                if (await _on_background_loop(hold.ask())).ok:
                    return hold
            except StoreError as error:
                if not logged:
                    log.warning("%s: the candidate cannot reach the store: %s", hold.lock, error)
                hold, logged = self._new_hold(), True  # the old hold may or may not be stored
            await self._wait(jittered(pause))
        return None

    async def _lead(self, hold: Hold) -> None:
        hold.on_lost = self._wake
        hold.keep()
        self.hold, self.term = hold, hold.token
        log.info("%s: elected, term %d", hold.lock, hold.token)
        acting = asyncio.create_task(_call(self._callbacks.elected, hold))
        try:
            while not hold.lost and not self._ending:
                await self._wait(None)
            self.hold = None
            await self._hand_over(hold, acting)
            with suppress(StoreError):
                await _on_background_loop(hold.end())
        finally:
            self.hold = None
            if not hold.over:  # the event loop is closing
                hold.give_up()
        log.info("%s: term %d has ended", hold.lock, hold.token)

    async def _hand_over(self, hold: Hold, acting: asyncio.Task[None]) -> None:
        """Wait for the callbacks before another leader can be elected; at most one ttl for each."""
        if self._callbacks.elected is not None and is_async(self._callbacks.elected):
            acting.cancel()
        await self._wait_for_callback(acting, hold)
        await self._wait_for_callback(asyncio.create_task(_call(self._callbacks.lost, hold)), hold)

    async def _wait_for_callback(self, telling: asyncio.Task[None], hold: Hold) -> None:
        _, left = await asyncio.wait({telling}, timeout=hold.ttl / 1e6)
        if left:
            log.error(
                "%s: a callback of term %d has not ended; another leader may be elected meanwhile",
                hold.lock,
                hold.token,
            )

    async def _wait(self, seconds: float | None) -> None:
        """Wait until something changes, or for this time."""
        assert self._changed is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()

    def _wake(self) -> None:
        if self._loop is not None and self._changed is not None and self._pid == os.getpid():
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._changed.set)


async def _call(callback: Callback | None, hold: Hold) -> None:
    """Call a callback and wait for its end."""
    if callback is None:
        return
    if is_async(callback):
        with _log_errors(hold):
            await callback(hold.token)  # type: ignore[misc]  # it is async
        return
    done: Future[None] = Future()
    done.set_running_or_notify_cancel()  # so that it cannot be cancelled: the thread continues anyway

    def run() -> None:
        with _log_errors(hold):
            callback(hold.token)
        done.set_result(None)

    # daemon: the thread must not keep the process alive
    threading.Thread(target=run, name="mainspring-election-callback", daemon=True).start()
    await asyncio.wrap_future(done)


@contextmanager
def _log_errors(hold: Hold) -> Iterator[None]:
    """Log the errors of a callback; they do not end the candidate."""
    try:
        yield
    except (Exception, SystemExit):
        log.exception("%s: a callback of term %d failed", hold.lock, hold.token)


async def _on_background_loop(call: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine on the background loop."""
    return await asyncio.wrap_future(blocking.spawn(call))
