"""A worker's own heartbeats: a thread that sends them while the worker's event loop is busy.

If a heartbeat of this thread is missing, the supervisor sends one for the worker, over another connection. Both may: a
heartbeat only counts up. The shared state holds the latest end of the lease that either of them had confirmed, and this
thread watches it: the lease may still be valid although the heartbeats of this thread fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future

from mainspring.common.clock import boottime
from mainspring.errors import MainspringError, NotOpen
from mainspring.stores.base import Store
from mainspring.stores.connect import StoreAddress
from mainspring.worker.config import WorkerSettings
from mainspring.worker.lease import fencing
from mainspring.worker.lease.heartbeat import HeartbeatSender
from mainspring.worker.lease.shared_state import SharedState
from mainspring.worker.records import Beat, BeatResult, Registration
from mainspring.worker.retry_log import Outage

log = logging.getLogger("mainspring.heartbeats")

_CHECK = 1.0  # most seconds between two checks of the lease end: a sleep does not count time of a suspended machine
_LOOP_CHECK = 0.5  # seconds between two looks at the worker's event loop

CheckLoop = Callable[[Callable[[], Awaitable[Store]]], Awaitable[None]]
"""Looks whether the worker's event loop runs. Its argument gives the store of the heartbeat thread."""


class HeartbeatThread:
    """Registers the worker, renews its lease and its registration, and reports a lost or low lease.

    ``on_lost`` and ``on_lease_low`` are called in this thread and must not block; ``on_lost`` once per worker id,
    ``on_lease_low`` again and again while the lease is low. After ``on_lost`` the worker takes a new id, which
    ``worker_id`` returns from then on, and calls :meth:`wake`. ``announce`` is called with each id before the id is
    registered, so that the supervisor watches its heartbeats from the start. ``check_loop`` is called twice a second.
    """

    def __init__(
        self,
        address: StoreAddress,
        registration: Callable[[], Registration],
        worker_id: Callable[[], str],
        settings: WorkerSettings,
        shared_state: SharedState,
        *,
        on_lost: Callable[[], None],
        on_lease_low: Callable[[], None],
        outage: Outage,
        announce: Callable[[str], None] | None = None,
        check_loop: CheckLoop | None = None,
    ) -> None:
        self.registered = threading.Event()
        """Set while the current id has a live row in the store, as far as this thread knows."""
        self._registration = registration
        self._worker_id = worker_id
        self._shared_state = shared_state
        self._on_lost = on_lost
        self._on_lease_low = on_lease_low
        self._announce = announce
        self._announced = ""
        self._check_loop = check_loop
        self._sender = HeartbeatSender(address, settings.lease / 1e6, outage)
        self._lock = threading.Lock()
        self._first: Future[None] = Future()
        self._registered_id = ""  # the id that has a row
        self._sent_info = b""  # the info that the row has
        self._lost_id = ""  # the id that the store declared lost
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._main, name="mainspring-heartbeats", daemon=True)

    # ---- for the worker ---------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread. Returns when it has ended, or after a second if a call hangs."""
        self._stopping = True
        self.wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(1.0)
        self._settle(NotOpen("the heartbeats were stopped before the worker was registered"))

    def wake(self) -> None:
        """Send a heartbeat now: the worker has a new id. Any thread."""
        loop, woken = self._loop, self._woken
        if loop is not None and woken is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the thread has ended
                loop.call_soon_threadsafe(woken.set)

    async def wait_registered(self) -> None:
        """Wait, on the caller's loop, until the current id is registered.

        Raises a permanent error, such as a schema newer than this code.
        """
        with self._lock:
            first = self._first
        await asyncio.shield(asyncio.wrap_future(first))

    # ---- in the thread ----------------------------------------------------------------------

    def _main(self) -> None:
        try:
            with asyncio.Runner() as runner:
                self._loop, self._woken = runner.get_loop(), asyncio.Event()
                runner.run(self._run())
        except MainspringError as error:
            log.error("the worker cannot send heartbeats: %s", error)
            self._settle(error)
        except Exception as error:
            log.exception("the heartbeat thread failed with an unexpected error")
            self._settle(error)

    async def _run(self) -> None:
        watches = [asyncio.create_task(self._watch_lease())]
        if self._check_loop is not None:
            watches.append(asyncio.create_task(self._watch_loop(self._check_loop)))
        try:
            while not self._stopping:
                wait = await self._beat()
                await self._sleep(wait)
        finally:
            for watch in watches:
                watch.cancel()
            await self._sender.close()

    async def _sleep(self, seconds: float) -> None:
        assert self._woken is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        self._woken.clear()

    async def _beat(self) -> float:
        """Send one heartbeat. Returns the seconds until the next one."""
        worker = self._worker_id()
        if worker == self._lost_id:
            return self._sender.period  # the worker calls wake() when it has a new id
        if self._announce is not None and worker != self._announced:
            self._announce(worker)
            self._announced = worker
        registration = self._registration()
        changed = worker != self._registered_id or registration.info != self._sent_info
        sent = await self._sender.send([Beat(worker, registration if changed else None)])
        if sent is None:
            return self._sender.retry_in()
        self._sent_info = registration.info
        self._handle_reply(sent.at, sent.replies[0])
        return max(0.0, sent.at + self._sender.period - boottime())

    def _handle_reply(self, at: float, reply: BeatResult) -> None:
        if reply.alive:
            self._shared_state.extend(at + self._sender.lease)
            self._registered_id = reply.worker
            self._settle(None)
            return
        self._lost_id = reply.worker
        self.registered.clear()
        with self._lock:
            if self._first.done():
                self._first = Future()
        log.warning("the store declared worker %s lost: other workers have its jobs", reply.worker)
        self._on_lost()

    def _settle(self, error: Exception | None) -> None:
        """End the waiting for the registration."""
        with self._lock:
            if error is None:
                self.registered.set()
            if self._first.done():
                return
            if error is None:
                self._first.set_result(None)
            else:
                self._first.set_exception(error)

    async def _watch_lease(self) -> None:
        low = False
        while True:
            now, end = boottime(), self._shared_state.lease_end
            was, low = low, fencing.is_low(now, end, self._sender.lease)
            if low and not was:
                log.warning("the store has not confirmed a heartbeat for too long: the lease ends in %.1f s", end - now)
            if low:
                self._on_lease_low()  # at each look: the reply of a slow turn may have started a guarded body
            ahead = end - fencing.margin(self._sender.lease) - now
            await asyncio.sleep(min(_CHECK, ahead) if ahead > 0 else min(_CHECK, self._sender.period / 4))

    async def _watch_loop(self, check_loop: CheckLoop) -> None:
        while True:
            await asyncio.sleep(_LOOP_CHECK)
            if self.registered.is_set():  # so the store is open
                try:
                    await check_loop(self._sender.store)
                except Exception:
                    log.exception("the check of the event loop failed with an unexpected error")
