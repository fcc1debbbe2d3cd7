"""An app's way to its store: opened on first use, one client per event loop, safe after a fork."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from mainspring.client import blocking, test_guard
from mainspring.client.patience import EnqueueRetry, WaitForCapacity
from mainspring.common.clock import boottime
from mainspring.errors import QueueFull, StoreUnavailable
from mainspring.jobs.records import Batch, Enqueued
from mainspring.stores.base import Store
from mainspring.stores.connect import StoreAddress
from mainspring.stores.records import MigrationPlan

ENQUEUE_PATIENCE = 10.0
"""Seconds during which an enqueue is repeated while the store cannot be reached."""

_inherited: list[Any] = []
"""What a forked child got from its parent: kept for ever, for collecting a handle would close the parent's."""


class Client:
    """Holds the stores of one app. Opens nothing until a verb needs it."""

    glance = 1.0
    """Seconds between two looks at whether what is held is over."""

    def __init__(self, address: StoreAddress, full_wait: int = 10_000_000) -> None:
        """``full_wait``: microseconds that an enqueue waits for room in a full queue."""
        self.address = address
        self._full_wait = full_wait / 1e6
        self._begin()

    def _begin(self) -> None:
        """Nothing is open yet in this process."""
        self._pid = os.getpid()
        self._making = threading.Lock()
        self._own: Store | None = None
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Store] = WeakKeyDictionary()
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Task[Store]] = {}

    def enqueue_now(self, batch: Batch, connection: Any = None) -> list[Enqueued]:
        """Insert the batch, blocking, in this thread. Repeated safely while the store is out of reach."""
        if connection is not None:  # the caller's transaction: the caller repeats it
            return self._blocking_store().enqueue_now(batch, connection)
        room: WaitForCapacity | None = None
        trouble: EnqueueRetry | None = None
        while True:
            try:
                return self._blocking_store().enqueue_now(batch)  # asked anew: it may have been closed meanwhile
            except StoreUnavailable as error:
                batch = msgspec.structs.replace(batch, retry=True)
                trouble = trouble or EnqueueRetry(ENQUEUE_PATIENCE)
                pause = trouble.pause(error)
            except QueueFull as full:
                if blocking.in_loop():  # to wait here would stop everything else
                    raise
                room, trouble = room or WaitForCapacity(self._full_wait), None
                pause = room.pause(full)
            time.sleep(pause)

    async def enqueue(self, batch: Batch) -> list[Enqueued]:
        """The async twin of :meth:`enqueue_now`."""
        room: WaitForCapacity | None = None
        trouble: EnqueueRetry | None = None
        while True:
            try:
                return await (await self.store()).enqueue(batch)
            except StoreUnavailable as error:
                batch = msgspec.structs.replace(batch, retry=True)
                trouble = trouble or EnqueueRetry(ENQUEUE_PATIENCE)
                pause = trouble.pause(error)
            except QueueFull as full:
                room, trouble = room or WaitForCapacity(self._full_wait), None
                pause = room.pause(full)
            await asyncio.sleep(pause)

    def now(self) -> float:
        """Seconds by which this process tells for how long it holds what the store gave it."""
        return boottime()

    async def store(self) -> Store:
        """The store for the running loop, open."""
        self._check_fork()
        loop = asyncio.get_running_loop()
        store = self._by_loop.get(loop)
        return store if store is not None else await self._open_once(loop)

    async def durability(self) -> str:
        """The class that enqueues and acks are held to."""
        return await (await self.store()).durability()

    async def migrate(self) -> tuple[int, int]:
        """Run the missing migrations; the schema's number before and after. Opens a store of its own for it."""
        store = self._connect()
        try:
            return await store.migrate()
        finally:
            await store.close()

    async def plan(self) -> MigrationPlan:
        """What :meth:`migrate` would do."""
        store = self._connect()
        try:
            return await store.migration_plan()
        finally:
            await store.close()

    async def _open_once(self, loop: asyncio.AbstractEventLoop) -> Store:
        """Whoever comes while it is being opened waits for the same one; what failed is tried anew by the next."""
        opening = self._opening.get(loop)
        if opening is None:
            opening = self._opening[loop] = loop.create_task(self._open(loop))
        return await asyncio.shield(opening)

    async def _open(self, loop: asyncio.AbstractEventLoop) -> Store:
        try:
            store = self._blocking_store() if self._shared else self._connect()
            await store.open()
            self._forget_closed()
            self._by_loop[loop] = store
            return store
        finally:
            self._opening.pop(loop, None)

    def _forget_closed(self) -> None:
        """A loop that was closed without closing its async generators: its connections keep it, and nobody else."""
        for ref in self._by_loop.keyrefs():
            loop = ref()
            if loop is not None and loop.is_closed():
                self._by_loop.pop(loop, None)

    async def close(self) -> None:
        """Let go of what this loop and the blocking side hold. The next use opens anew."""
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
        """SQLite's writer serves every loop and thread of the process; network drivers live on one loop."""
        return self.address.url.startswith("sqlite:")

    def _blocking_store(self) -> Store:
        self._check_fork()
        store = self._own
        if store is None:
            with self._making:
                store = self._own = self._own or self._connect()
        return store

    def check_worker(self, verb: str) -> None:  # noqa: ARG002 - named by the client of a test, which refuses
        """Whether workers may be started on this store; ``verb`` is what would start them."""
        test_guard.ask(self.address.url)

    def _connect(self) -> Store:
        test_guard.ask(self.address.url)
        from mainspring.stores.connect import connect_to

        return connect_to(self.address)

    def _check_fork(self) -> None:
        if self._pid != os.getpid():
            _inherited.append((self._own, self._by_loop, self._opening))
            self._begin()
