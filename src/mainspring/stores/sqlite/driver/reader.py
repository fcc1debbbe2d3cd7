"""The reading connection of a process: a read never waits for a commit and never delays one."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from .transaction import Tx

if TYPE_CHECKING:
    from .database import DatabaseCall
    from .files import FileIdentity
    from .statements import SqliteStatements


class FileReplaced(Exception):
    """The path names another file now: the writer must open it first."""


class SqliteReader:
    """One thread, which starts with the first read. Each read sees one snapshot."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        sql: SqliteStatements,
        now: Callable[[], int],
        identity: FileIdentity,
    ) -> None:
        self._connect = connect
        self._identity = identity
        self._sql = sql
        self._now = now
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._forking = False
        self._cursor: sqlite3.Cursor | None = None
        self._calls: SimpleQueue[DatabaseCall | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def send(self, call: DatabaseCall) -> asyncio.Future[Any]:
        """Run the call on a snapshot; the future is awaited on the loop of the call."""
        assert call.future is not None
        if self._thread is None:
            self._start_thread()
        self._calls.put(call)
        return call.future

    def _start_thread(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="mainspring-sqlite-reader", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        calls = self._calls
        while (call := calls.get()) is not None:
            if call.abandoned:
                continue
            try:
                with self._lock:
                    self._answer(call)
            except Exception as error:  # noqa: BLE001  # the error goes to the caller
                call.fail(error)
            call.settle()

    def _answer(self, call: DatabaseCall) -> None:
        if self._identity.has_changed_lately():
            raise FileReplaced
        cursor = self._cursor
        if cursor is None:
            cursor = self._open()
        cursor.execute("begin")
        try:
            call.run(Tx(cursor, self._sql, self._now()))
        finally:
            if cursor.connection.in_transaction:
                cursor.execute("rollback")

    def _open(self) -> sqlite3.Cursor:
        """A connection to the file that the writer has opened, and to no file that has replaced it."""
        self._cursor = self._connect().cursor()
        if self._identity.has_changed():
            self._disconnect()
            raise FileReplaced
        return self._cursor

    def drop(self, patience: float) -> bool:
        """Close the connection; the next read opens another. False if a read takes longer than ``patience`` seconds."""
        if not self._lock.acquire(timeout=patience):
            return False
        try:
            self._disconnect()
        finally:
            self._lock.release()
        return True

    def close(self) -> None:
        if self._thread is not None:
            self._calls.put(None)
            self._thread.join()
            self._thread = None
        with self._lock:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._cursor is not None:
            connection, self._cursor = self._cursor.connection, None
            connection.close()

    def before_fork(self, patience: float) -> None:
        self._forking = self._lock.acquire(timeout=patience)
        if self._forking:
            self._disconnect()

    def after_fork_in_parent(self) -> None:
        if self._forking:
            self._lock.release()

    def after_fork_in_child(self) -> sqlite3.Cursor | None:
        inherited, self._cursor = self._cursor, None
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._calls = SimpleQueue()
        self._thread = None
        return inherited
