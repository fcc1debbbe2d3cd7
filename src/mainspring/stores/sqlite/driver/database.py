"""One database as the store uses it: functions run in transactions of the writer or of the reader."""

# SQLite names files by text, and some of this is asked at every commit:
# ruff: noqa: PTH118

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.errors import StoreError, StoreUnavailable
from mainspring.stores.records import MigrationPlan

from . import files, fork
from .clock import WallClock
from .connections import MEMORY, explain_busy, open_reader, open_writer, run_in_caller_transaction
from .errors import is_busy, translate
from .files import DiskReserve, FileIdentity
from .reader import SqliteReader
from .schema import check_version, migrate, plan_migration, prefix_of
from .statements import SqliteStatements
from .transaction import Tx
from .wakeups import SqliteListener, SqliteWakeups, make_private
from .write_lock import WriteLock
from .writer import SqliteWriter

if TYPE_CHECKING:
    from mainspring.common.clock import Clock
    from mainspring.jobs.records import Enqueued

R = TypeVar("R")
_DRIVER_ERRORS = (sqlite3.Error, OverflowError, UnicodeEncodeError)
_SYNCHRONOUS = ("off", "normal", "full", "extra")
"""The values of ``pragma synchronous``, by number."""


class SqliteDatabase:
    """A database file, or a database in memory, with its connections, its files beside it, and its time."""

    def __init__(self, path: str, *, namespace: str, durability: str, clock: Clock | None) -> None:
        self.path = path if path == MEMORY else os.path.realpath(path)
        self.url = "sqlite://" if path == MEMORY else "sqlite:///" + self.path
        self._namespace = namespace
        self._durability = durability
        self._sql = SqliteStatements(prefix_of(namespace))
        self._clock = clock.now_us if clock is not None else WallClock()
        self._last = 0
        on_disk = None if path == MEMORY else self.path
        self._folder = None if on_disk is None else on_disk + "-wake"
        self.write_lock = WriteLock(on_disk, None if self._folder is None else os.path.join(self._folder, "waiting"))
        self.reserve = DiskReserve(None if on_disk is None else on_disk + "-reserve", self.url)
        self._wakeups = SqliteWakeups(self._folder)
        self.writer = SqliteWriter(
            self._connect, sql=self._sql, now=self._now, lock=self.write_lock, reserve=self.reserve,
            wake=self._wakeups.wake, identity=FileIdentity(on_disk), in_memory=on_disk is None,
        )  # fmt: skip
        self._reader = (
            None
            if on_disk is None
            else SqliteReader(partial(open_reader, self.path), self._sql, self._now, FileIdentity(on_disk))
        )
        self._is_checked = False
        self._version_found: int | None = None
        self._is_closed = False
        fork.watch(self)

    # ---- transactions ---------------------------------------------------------------------------

    async def write(self, work: Callable[[Tx], R], *, adds_jobs: bool = False) -> R:
        """Run ``work`` in a writing transaction and return its result after the commit.

        ``adds_jobs``: refuse the call with ``StoreFull`` if the disk is nearly full.
        """
        self._check_open()
        if adds_jobs:
            self.reserve.check()
        try:
            done: R = await self.writer.send(work, adds_jobs=adds_jobs)
            return done
        except _DRIVER_ERRORS as error:
            raise self._explain(error, adds_jobs=adds_jobs) from error

    async def read(self, work: Callable[[Tx], R]) -> R:
        """Run ``work`` on a snapshot. A database in memory has one connection, so there the writer runs it."""
        if self._reader is None or not self.writer.is_open:
            return await self.write(work)
        self._check_open()
        try:
            found: R = await self._reader.send(work)
            return found
        except _DRIVER_ERRORS as error:
            raise self._explain(error) from error

    def enqueue_now(self, work: Callable[[Tx], list[Enqueued]], connection: Any) -> list[Enqueued]:
        """Run ``work`` in the calling thread: in a transaction of the writer, or in that of a caller's connection."""
        self._check_open()
        self.reserve.check()
        try:
            if connection is not None:
                return run_in_caller_transaction(connection, self.path, partial(self._run_in_cursor, work))
            done: list[Enqueued] = self.writer.do(work, adds_jobs=True)
            return done
        except _DRIVER_ERRORS as error:
            raise self._explain(error, adds_jobs=True) from error

    def _run_in_cursor(self, work: Callable[[Tx], R], cursor: sqlite3.Cursor) -> R:
        check_version(cursor, self._namespace, self.url)
        tx = Tx(cursor, self._sql, self._now())
        with tx.savepoint("mainspring"):
            return work(tx)

    def _now(self) -> int:
        """The time of the store: it never goes back, whatever the clock of the machine does."""
        self._last = max(self._last, self._clock())
        return self._last

    def translate(self, error: BaseException) -> StoreError | None:
        return translate(error, self.url)

    def _explain(self, error: Exception, *, adds_jobs: bool = False) -> Exception:
        """The error to raise for an error of the driver. An enqueue may wait for the transaction of its own caller."""
        if adds_jobs and is_busy(error):
            return explain_busy(self.write_lock, self.url)
        return self.translate(error) or error

    # ---- life -------------------------------------------------------------------------------------

    async def open(self) -> None:
        await self.write(_do_nothing)

    def _connect(self) -> sqlite3.Connection:
        """Open a writing connection: check the file, and bring its schema up to date."""
        if self.path != MEMORY:
            files.prepare(self.path, self.url)
        connection = open_writer(self.path, self._durability, self.url)
        try:
            if self._folder is not None and not self._is_checked:
                files.check_content(connection, self.url)
                make_private(self._folder)
                self.reserve.look()
                self._is_checked = True
            before, _ = migrate(connection, self._sql, self._namespace, self.write_lock, self.url)
            self._version_found = before if self._version_found is None else self._version_found
        except BaseException:
            connection.close()
            raise
        return connection

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._wakeups.close_listeners()
            await asyncio.to_thread(self._close_connections)

    def _close_connections(self) -> None:
        self.writer.close()  # its last commits wake other processes
        self._wakeups.close()
        if self._reader is not None:
            self._reader.close()
        self.write_lock.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailable("the store was closed", url=self.url, hint="Make a new store and open it.")

    async def migrate(self) -> tuple[int, int]:
        """Opening migrates. The first call returns the number that opening found, if this store opened the file."""
        _, after = await self.write(
            lambda tx: migrate(tx.cursor.connection, self._sql, self._namespace, self.write_lock, self.url)
        )
        before, self._version_found = self._version_found, after
        return after if before is None else before, after

    def migration_plan(self) -> MigrationPlan:
        return plan_migration(None if self.path == MEMORY else self.path, self._namespace)

    async def durability(self) -> str:
        level = await self.write(lambda tx: tx.cursor.execute("pragma synchronous").fetchall()[0][0])
        return "sqlite:" + _SYNCHRONOUS[level]

    # ---- wake-ups -----------------------------------------------------------------------------------

    def notify(self, queues: Iterable[str]) -> None:
        self._check_open()
        self._wakeups.wake(set(queues))

    def listen(self, worker: str, queues: Iterable[str]) -> SqliteListener:
        self._check_open()
        return self._wakeups.listen(worker, queues)

    # ---- fork (see fork.py) -------------------------------------------------------------------------

    def connections(self) -> list[SqliteWriter | SqliteReader]:
        return [self.writer] if self._reader is None else [self.writer, self._reader]

    def close_files_after_fork(self) -> None:
        self.write_lock.close()
        self._wakeups.close_after_fork()


def _do_nothing(_: Tx) -> None:
    """Connecting is all that ``open`` needs."""
