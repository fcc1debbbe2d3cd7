"""A worker's own beats: a thread that no busy loop can stop.

The supervisor beats for the worker as well, through another connection; beats only count up, so
both may. The board holds the lease end that either of them had confirmed, and this thread watches
it: the lease can run low although *its* beats fail, and be good although they do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future

from mainspring.common.clock import boottime
from mainspring.errors import MainspringError, NotOpen
from mainspring.stores.connect import StoreAddress
from mainspring.worker.config import WorkerSettings
from mainspring.worker.lease import fencing
from mainspring.worker.lease.heartbeat import HeartbeatSender
from mainspring.worker.lease.shared_state import SharedState
from mainspring.worker.loop.outage import Outage
from mainspring.worker.records import Beat, BeatResult, Registration

log = logging.getLogger("mainspring.beats")

_LOOK = 1.0  # most seconds between two looks at the lease end: a sleep does not count a suspended machine


class HeartbeatThread:
    """Registers the worker, keeps its lease and what it says of itself, and tells when the lease is lost or low.

    ``on_lost`` and ``on_lease_low`` are called in the beater's thread and must not block; the first
    once per worker id, the second once per outage. After ``on_lost`` the worker takes a new id (which
    ``worker_id`` returns from then on) and calls :meth:`wake`. ``announce`` hears of each id before
    it is registered: so that a supervisor never learns too late whom to beat for.
    """

    def __init__(
        self,
        address: StoreAddress,
        registration: Callable[[], Registration],
        worker_id: Callable[[], str],
        settings: WorkerSettings,
        board: SharedState,
        *,
        on_lost: Callable[[], None],
        on_lease_low: Callable[[], None],
        outage: Outage,
        announce: Callable[[str], None] | None = None,
    ) -> None:
        self.registered = threading.Event()
        """Set while the current id has a row that lives, as far as is known."""
        self._registration = registration
        self._worker_id = worker_id
        self._board = board
        self._on_lost = on_lost
        self._on_lease_low = on_lease_low
        self._announce = announce
        self._announced = ""
        self._pulse = HeartbeatSender(address, settings.lease / 1e6, outage)
        self._lock = threading.Lock()
        self._first: Future[None] = Future()
        self._known = ""  # the id that has a row
        self._said = b""  # what it was told to say of the worker
        self._given_up = ""  # the id that the store called lost
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._main, name="mainspring-beater", daemon=True)

    # ---- for the worker ---------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; returns when it has ended, or after a second if a call hangs."""
        self._stopping = True
        self.wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(1.0)
        self._settle(NotOpen("the beater was stopped before the worker was registered"))

    def wake(self) -> None:
        """Beat now, from any thread: the worker has a new id."""
        loop, woken = self._loop, self._woken
        if loop is not None and woken is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody to wake
                loop.call_soon_threadsafe(woken.set)

    async def wait_registered(self) -> None:
        """Wait, on the caller's loop, until the current id is registered.

        Raises the error that makes it impossible, such as a schema newer than this code.
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
            log.error("the worker cannot beat: %s", error)
            self._settle(error)
        except Exception as error:
            log.exception("the beater ended by an error of its own")
            self._settle(error)

    async def _run(self) -> None:
        watch = asyncio.create_task(self._watch())
        try:
            while not self._stopping:
                wait = await self._beat()
                await self._sleep(wait)
        finally:
            watch.cancel()
            await self._pulse.close()

    async def _sleep(self, seconds: float) -> None:
        assert self._woken is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        self._woken.clear()

    async def _beat(self) -> float:
        """Beat once; returns the seconds until the next."""
        worker = self._worker_id()
        if worker == self._given_up:
            return self._pulse.period  # its successor's id will come by wake()
        if self._announce is not None and worker != self._announced:
            self._announce(worker)
            self._announced = worker
        said = self._registration()
        news = worker != self._known or said.info != self._said
        sent = await self._pulse.send([Beat(worker, said if news else None)])
        if sent is None:
            return self._pulse.retry_in()
        self._said = said.info
        self._heard(sent.at, sent.replies[0])
        return max(0.0, sent.at + self._pulse.period - boottime())

    def _heard(self, at: float, reply: BeatResult) -> None:
        if reply.alive:
            self._board.extend(at + self._pulse.lease)
            self._known = reply.worker
            self._settle(None)
            return
        self._given_up = reply.worker
        self.registered.clear()
        with self._lock:
            if self._first.done():
                self._first = Future()
        log.warning("worker %s was given up for lost: its jobs are with others", reply.worker)
        self._on_lost()

    def _settle(self, error: Exception | None) -> None:
        """Tell those who wait for the registration."""
        with self._lock:
            if error is None:
                self.registered.set()
            if self._first.done():
                return
            if error is None:
                self._first.set_result(None)
            else:
                self._first.set_exception(error)

    async def _watch(self) -> None:
        low = False
        while True:
            now, end = boottime(), self._board.lease_end
            was, low = low, fencing.is_low(now, end, self._pulse.lease)
            if low and not was:
                log.warning("no beat was confirmed for long: the lease ends in %.1f s", end - now)
                self._on_lease_low()
            ahead = end - fencing.margin(self._pulse.lease) - now
            await asyncio.sleep(min(_LOOK, ahead) if ahead > 0 else min(_LOOK, self._pulse.period / 4))
