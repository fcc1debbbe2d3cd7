"""A worker inside the user's own process: a thread with its own event loop, and no signals.

Its lease does not hang on the host's GIL: a tiny helper process beats for it too, and gives its jobs back
when the host is gone.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from mainspring.errors import ForkedWorker, NotOpen
from mainspring.observe import logs

if TYPE_CHECKING:
    from types import TracebackType

    from mainspring.worker.config import WorkerConfig
    from mainspring.worker.worker import Worker


class EmbeddedWorker:
    """``with app.worker():`` or ``async with``. Entering waits until it claims, leaving drains it."""

    def __init__(self, parts: WorkerConfig) -> None:
        self._parts = parts
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._worker: Worker | None = None
        self._up = threading.Event()
        self._trouble: BaseException | None = None
        self._unlog: Callable[[], None]
        self.exit_code: int | None = None
        """0 when everything finished, 3 when something was handed back at the drain limit."""

    def start(self) -> None:
        """Start the thread and wait until the worker claims; nothing if it is at work already."""
        if self._thread is not None and self._thread.is_alive() and self._pid == os.getpid():
            return
        if self._thread is not None:
            raise NotOpen("this worker was started before; make a new one with app.worker()")
        self._pid = os.getpid()
        self._unlog = logs.configure_for_guest(self._parts.logs)
        self._thread = threading.Thread(target=self._run, name="mainspring-worker", daemon=True)
        self._thread.start()
        self._up.wait()
        if self._trouble is not None:
            self._thread.join()
            raise self._trouble

    def stop(self) -> None:
        """Claim no more, let running jobs finish within the drain limit, hand back the rest."""
        if self._thread is None:
            return
        if self._pid != os.getpid():
            raise ForkedWorker("this worker belongs to the parent process", hint="Start workers after the fork.")
        if self._worker is not None:
            self._worker.drain()
        self._thread.join()
        if self._trouble is not None:
            raise self._trouble

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    def _run(self) -> None:
        from mainspring.worker.supervise.shutdown import run_loop

        try:
            self.exit_code = run_loop(self._main(), grace=self._parts.settings.grace / 1e6)
        except BaseException as error:  # noqa: BLE001 - told to whoever started or stops it
            self._trouble = error
        finally:
            self._unlog()
            self._up.set()

    async def _main(self) -> int:
        from mainspring.stores.connect import connect_to
        from mainspring.worker.lease.death_lock import DeathLock
        from mainspring.worker.lease.heartbeat_process import HeartbeatProcess
        from mainspring.worker.lease.heartbeat_thread import HeartbeatThread
        from mainspring.worker.lease.shared_state import SharedState
        from mainspring.worker.supervise.child_pipe import Hello
        from mainspring.worker.worker import Worker

        parts = self._parts
        store = connect_to(parts.store)
        await store.open()
        board, lock = SharedState.create(), DeathLock.create()
        helper = HeartbeatProcess(board, lock)
        try:
            beater = functools.partial(
                HeartbeatThread, parts.store, settings=parts.settings, board=board,
                announce=lambda name: helper.announce(Hello.of(name, parts)),
            )  # fmt: skip
            worker = Worker(parts, store, board=board, beater=beater, info=lock.facts())
            self._worker = worker
            running = asyncio.create_task(worker.run())
            started = asyncio.create_task(worker.wait_started())
            await asyncio.wait({running, started}, return_when=asyncio.FIRST_COMPLETED)
            started.cancel()
            self._up.set()
            return await running
        finally:
            helper.stop()
            lock.close(unlink=True)
            board.close()
            await store.close()
