"""A worker inside the user's own process: a thread with its own event loop, without signal handlers.

Its lease does not depend on the host's GIL: a small heartbeat process sends heartbeats for it too, and gives its jobs
back when the host is gone. A store in memory ends with the host and no other process can take its jobs, so there the
lease is long and needs no such process.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import threading
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import msgspec

from mainspring.errors import ForkedWorker, LoopEnded, NotOpen
from mainspring.observe import logs

if TYPE_CHECKING:
    from types import TracebackType

    from mainspring.worker.config import WorkerConfig
    from mainspring.worker.worker import Worker

log = logging.getLogger("mainspring.worker")

LEASE_IN_MEMORY = 600_000_000
"""Microseconds: the shortest lease of a worker whose store is in memory."""


_UNUSED = "app.worker() was never started, so no job ran: write 'with app.worker():', or call its start()"


class EmbeddedWorker:
    """``with app.worker():`` or ``async with``. Entering waits until the worker claims jobs, leaving drains it."""

    def __init__(self, config: WorkerConfig, served: list[frozenset[str]] | None = None) -> None:
        """``served`` has the queues of each embedded worker of the program that runs now."""
        self._config = config
        self._served = served if served is not None else []
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._worker: Worker | None = None
        self._started = threading.Event()
        self._began = False  # the worker has begun to claim
        self._error: BaseException | None = None
        self._restore_logs: Callable[[], None]
        self.exit_code: int | None = None
        """0 if the started jobs finished, 3 if jobs were handed back at the drain limit."""

    def start(self) -> None:
        """Start the thread, and wait until the worker claims jobs. Does nothing if the worker runs already."""
        if self._thread is not None and self._thread.is_alive() and self._pid == os.getpid():
            return
        if self._thread is not None:
            raise NotOpen("this worker was started before", hint="Create a new one with app.worker().")
        self._pid = os.getpid()
        self._restore_logs = logs.configure_for_embedded(self._config.logs)
        self._thread = threading.Thread(target=self._run, name="mainspring-worker", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._began:
            self._served.append(frozenset(self._config.settings.queues))
        if self._error is not None and not self._began:
            self._thread.join()
            raise self._error

    def stop(self) -> None:
        """Claim no more, let the running jobs finish within the drain limit, and hand back the rest."""
        if (error := self._stop()) is not None:
            raise error

    def _stop(self) -> BaseException | None:
        """Stop the worker. Returns the error that has ended it."""
        if self._thread is None:
            return None
        if self._pid != os.getpid():
            raise ForkedWorker("this worker belongs to the parent process", hint="Start workers after the fork.")
        if self._worker is not None:
            self._worker.drain()
        self._thread.join()
        if self._began:
            self._began = False
            self._served.remove(frozenset(self._config.settings.queues))
        return self._error

    def __del__(self) -> None:
        if getattr(self, "_thread", None) is None and hasattr(self, "_error"):
            with contextlib.suppress(Exception):  # the interpreter may be shutting down
                warnings.warn(_UNUSED, RuntimeWarning, stacklevel=2)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        _raise_or_chain(self._stop(), error)

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        _raise_or_chain(await asyncio.to_thread(self._stop), error)

    def _run(self) -> None:
        from mainspring.worker.supervise.shutdown import run_loop

        try:
            grace = self._config.settings.grace / 1e6
            self.exit_code = run_loop(self._main(), grace=grace, on_broken=self._on_broken)
        except BaseException as error:  # noqa: BLE001 - raised by start() or stop()
            if self._error is None:
                self._error = error
                if self._began:
                    log.critical("the embedded worker has ended: %r", error)
        finally:
            self._restore_logs()
            self._started.set()

    def _on_broken(self, error: BaseException) -> None:
        """User code has ended the event loop. It runs again until the worker has given its jobs back."""
        from mainspring.worker.supervise.shutdown import describe_broken

        if self._error is None:
            self._error = LoopEnded(describe_broken(error))
            self._error.__cause__ = error
            if self._began:  # else start() raises the error
                log.critical("the embedded worker has ended: %s", self._error.args[0])
        if self._worker is not None:
            self._worker.on_loop_broken()

    async def _main(self) -> int:
        from mainspring.launch.services import build_services
        from mainspring.stores.connect import connect_to
        from mainspring.worker.lease.death_lock import DeathLock
        from mainspring.worker.lease.heartbeat_thread import HeartbeatThread
        from mainspring.worker.lease.shared_state import SharedState
        from mainspring.worker.supervise.child_pipe import Hello
        from mainspring.worker.supervise.heartbeat_process import HeartbeatProcess
        from mainspring.worker.worker import Worker

        config = _with_long_lease(self._config) if self._config.store.in_memory else self._config
        store = connect_to(config.store)
        await store.open()
        shared_state, lock = SharedState.create(), DeathLock.create()
        process = None if config.store.in_memory else HeartbeatProcess(shared_state, lock)
        try:
            heartbeats = functools.partial(
                HeartbeatThread, config.store, settings=config.settings, shared_state=shared_state,
                announce=None if process is None else lambda name: process.announce(Hello.of(name, config)),
            )  # fmt: skip
            worker = Worker(
                config, store, shared_state=shared_state, services=build_services, heartbeats=heartbeats,
                info=lock.facts(),
            )  # fmt: skip
            self._worker = worker
            running = asyncio.create_task(worker.run())
            started = asyncio.create_task(worker.wait_started())
            await asyncio.wait({running, started}, return_when=asyncio.FIRST_COMPLETED)
            started.cancel()
            if not running.done():  # else start() raises the error
                self._began = True
                self._started.set()
            return await running
        finally:
            if process is not None:
                process.stop()
            lock.close(unlink=True)
            shared_state.close()
            await store.close()


def _raise_or_chain(own: BaseException | None, users: BaseException | None) -> None:
    """Raise the error that has ended the worker. If the block raises an error of the user, that one goes on, and the
    error of the worker is shown above it."""
    if own is None or own is users:
        return
    if users is None:
        raise own
    last = users
    while (before := last.__cause__ or last.__context__) is not None:
        if before is own:
            return
        last = before
    last.__context__ = own


def _with_long_lease(config: WorkerConfig) -> WorkerConfig:
    """The configuration of a worker whose jobs no other process can take."""
    settings = config.settings
    return config._replace(settings=msgspec.structs.replace(settings, lease=max(settings.lease, LEASE_IN_MEMORY)))
