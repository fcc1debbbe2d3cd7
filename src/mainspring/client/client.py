"""The client of a store: opened on first use, one store per event loop, safe after a fork."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from mainspring.client import blocking, test_guard
from mainspring.client.patience import EnqueuePatience, seconds_of_try
from mainspring.common.clock import boottime
from mainspring.errors import QueueFull, StoreError, StoreUnavailable, mask_url
from mainspring.jobs.records import Enqueued, JobBatch
from mainspring.stores.base import Store
from mainspring.stores.connect import StoreAddress
from mainspring.stores.records import Document, MigrationPlan
from mainspring.stores.shared.deadlines import blocking_deadline
from mainspring.stores.shared.programs import PROGRAMS, describe_foreign

log = logging.getLogger("mainspring.store")

_inherited: list[Any] = []
"""Stores that a forked child got from its parent. They are kept for ever: to collect one would close the parent's."""


class Client:
    """Holds the stores of one app. Opens nothing until a method needs the store."""

    glance = 1.0
    """Seconds between two checks whether a lock is still held."""

    def __init__(
        self, address: StoreAddress, full_wait: int = 10_000_000, enqueue_patience: int = 10_000_000, *,
        program: Callable[[], str] | None = None,
    ) -> None:  # fmt: skip
        """``full_wait``: microseconds that an enqueue waits for capacity in a full queue; ``enqueue_patience``: for a
        store that does not answer. ``program``: the name of the program, for a warning if the store has other
        programs only; None for no such warning."""
        self.address = address
        self.enqueue_patience = enqueue_patience / 1e6
        """Seconds."""
        self._full_wait = full_wait / 1e6
        self._first_try = seconds_of_try(self.enqueue_patience)
        self._program = program
        self._has_looked = program is None
        self.named_in_vain: set[object] = set()
        """Names of queries that found no job, which were looked at: a dashboard asks for them again and again."""
        self._begin()

    def _begin(self) -> None:
        """Reset: no store is open in this process."""
        self._pid = os.getpid()
        self._making = threading.Lock()
        self._own: Store | None = None
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Store] = WeakKeyDictionary()
        self._opening: dict[asyncio.AbstractEventLoop, _PendingStore] = {}

    def enqueue_now(self, batch: JobBatch, connection: Any = None) -> list[Enqueued]:
        """Insert the batch in this thread, blocking. Repeated, and inserted once, while the store is unreachable."""
        if connection is not None:  # the caller repeats its own transaction
            return self._blocking_store().enqueue_now(batch, connection)
        began = time.monotonic()
        patience: EnqueuePatience | None = None
        while True:
            try:
                done = self._try_now(batch, self._first_try if patience is None else patience.seconds())
                if not self._has_looked:
                    self._look_for_programs_now(batch)
                return done
            except (StoreUnavailable, QueueFull) as error:
                if isinstance(error, QueueFull) and blocking.in_loop():  # a wait here would stop the event loop
                    raise
                patience = patience or EnqueuePatience(self.enqueue_patience, self._full_wait, began)
                pause = patience.pause(error)
                batch = _repeated(batch, error)
            time.sleep(pause)

    def _try_now(self, batch: JobBatch, seconds: float) -> list[Enqueued]:
        before = blocking_deadline.until  # of a call that a signal handler has interrupted
        blocking_deadline.until = time.monotonic() + seconds
        try:
            return self._blocking_store().enqueue_now(batch)  # looked up for each try: it may have been closed
        finally:
            blocking_deadline.until = before

    async def enqueue(self, batch: JobBatch) -> list[Enqueued]:
        """Async version of :meth:`enqueue_now`, without a connection."""
        began = time.monotonic()
        patience: EnqueuePatience | None = None
        while True:
            try:
                store = self._by_loop.get(asyncio.get_running_loop()) if patience is None else None
                if (
                    store is not None and self._pid == os.getpid()
                ):  # the common case: the door has the deadline of a try
                    done = await store.enqueue(batch)
                else:
                    done = await self._try(batch, self._first_try if patience is None else patience.seconds())
                if not self._has_looked:
                    await self._look_for_programs(batch)
                return done
            except (StoreUnavailable, QueueFull) as error:
                patience = patience or EnqueuePatience(self.enqueue_patience, self._full_wait, began)
                pause = patience.pause(error)
                batch = _repeated(batch, error)
            await asyncio.sleep(pause)

    async def _try(self, batch: JobBatch, seconds: float) -> list[Enqueued]:
        """Open the store if needed and enqueue, in this time."""
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await (await self.store()).enqueue(batch)
        except TimeoutError as late:
            if not limit.expired():  # a time limit of the job that enqueues
                raise
            raise StoreUnavailable(
                f"the store gave no answer in {seconds:.1f} s",
                url=self.address.url,
                hint="Whether the jobs were enqueued is unknown. Check that the store is running.",
            ) from late

    def _look_for_programs_now(self, batch: JobBatch) -> None:
        """Warn, after the first enqueue of this process, if the store holds only jobs of other programs."""
        self._has_looked = True
        before, blocking_deadline.until = blocking_deadline.until, time.monotonic() + self._first_try
        try:
            self._warn_of_programs(batch, self._blocking_store().documents_now(PROGRAMS))
        except StoreError:
            pass  # the jobs are enqueued; the next call of the caller reports the store
        finally:
            blocking_deadline.until = before

    async def _look_for_programs(self, batch: JobBatch) -> None:
        """Async version of :meth:`_look_for_programs_now`."""
        self._has_looked = True
        with suppress(StoreError):
            self._warn_of_programs(batch, await (await self.store()).documents(PROGRAMS))

    def _warn_of_programs(self, batch: JobBatch, known: Sequence[Document]) -> None:
        if known and self._program is not None and (name := self._program()):
            tasks, url = {job.task for job in batch.jobs}, mask_url(self.address.url)
            if said := describe_foreign(name, tasks, known, url=url, namespace=self.address.namespace):
                log.warning(said)

    def now(self) -> float:
        """Seconds of the clock that this process measures its locks with; goes on while the machine sleeps."""
        return boottime()

    def time_us(self) -> int:
        """The wall clock of this process, in microseconds since 1970. The store's clock may differ."""
        return time.time_ns() // 1_000

    async def store(self) -> Store:
        """The open store of the running event loop."""
        self._check_fork()
        loop = asyncio.get_running_loop()
        store = self._by_loop.get(loop)
        return store if store is not None else await self._open_once(loop)

    async def durability(self) -> str:
        """The durability class of enqueues and acks."""
        return await (await self.store()).durability()

    async def migrate(self) -> tuple[int, int]:
        """Run the missing migrations with a store of its own; returns the schema version before and after."""
        store = self._connect()
        try:
            return await store.migrate()
        finally:
            await store.close()

    async def plan(self) -> MigrationPlan:
        """The plan of :meth:`migrate`, without running it."""
        store = self._connect()
        try:
            return await store.migration_plan()
        finally:
            await store.close()

    async def _open_once(self, loop: asyncio.AbstractEventLoop) -> Store:
        """Open the store of this loop once for all callers that wait; after a failure the next caller tries again."""
        opening = self._opening.get(loop)
        if opening is None or opening.task.done():
            opening = self._opening[loop] = _PendingStore(loop.create_task(self._open(loop)))
        opening.callers += 1
        try:
            return await asyncio.shield(opening.task)
        finally:
            opening.callers -= 1
            if not opening.callers:  # ended, or every caller was cancelled
                if self._opening.get(loop) is opening:
                    del self._opening[loop]
                opening.task.cancel()

    async def _open(self, loop: asyncio.AbstractEventLoop) -> Store:
        store = self._blocking_store() if self._shared else self._connect()
        await store.open()
        self._forget_closed()
        self._by_loop[loop] = store
        return store

    def _forget_closed(self) -> None:
        """Drop the stores of closed loops: the connections of a store keep its loop, and so the entry, alive."""
        for ref in self._by_loop.keyrefs():
            loop = ref()
            if loop is not None and loop.is_closed():
                self._by_loop.pop(loop, None)

    async def close(self) -> None:
        """Close the store of this loop and the blocking store. The next use opens them again."""
        mine = self._by_loop.pop(asyncio.get_running_loop(), None)
        if self._own is not None:
            await self._own.close()
        if mine is not None and mine is not self._own:
            await mine.close()
        self._own = None
        if self._shared:
            self._by_loop.clear()

    @property
    def _shared(self) -> bool:
        """Whether one store serves every loop and thread, as on SQLite; network drivers are bound to one loop."""
        return self.address.url.startswith("sqlite:")

    def _blocking_store(self) -> Store:
        self._check_fork()
        store = self._own
        if store is None:
            with self._making:
                store = self._own = self._own or self._connect()
        return store

    def check_worker(self, verb: str) -> None:  # noqa: ARG002 - the client of a test names it in its error
        """Raise if workers may not be started on this store; ``verb`` is the method that starts them."""
        test_guard.ask(self.address.url)
        if self.address.in_memory:  # the app's store must not end with the worker
            self._blocking_store()

    def _connect(self) -> Store:
        test_guard.ask(self.address.url)
        from mainspring.stores.connect import connect_to

        return connect_to(self.address, enqueue_deadline=self._first_try)

    def _check_fork(self) -> None:
        if self._pid != os.getpid():
            _inherited.append((self._own, self._by_loop, self._opening))
            self._begin()


class _PendingStore:
    """A store that is being opened, and how many callers wait for it."""

    def __init__(self, task: asyncio.Task[Store]) -> None:
        self.task = task
        self.callers = 0


def _repeated(batch: JobBatch, error: StoreUnavailable | QueueFull) -> JobBatch:
    """The batch for the next try: after a lost reply the store must look whether it has the batch already."""
    return msgspec.structs.replace(batch, retry=True) if isinstance(error, StoreUnavailable) else batch
