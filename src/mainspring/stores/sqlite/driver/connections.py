"""Opening connections, and the connection of a caller who enqueues inside a transaction of their own."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mainspring.errors import (
    InCallerTransaction,
    MainspringError,
    StoreUnavailable,
    UnsupportedFileSystem,
    WrongConnection,
)

if TYPE_CHECKING:
    from mainspring.jobs.records import Enqueued

    from .write_lock import WriteLock

    EnqueuedJobs = list[Enqueued]

MEMORY = ":memory:"
PAGE_SIZE = 2048
"""Bytes, for a file that is made now. A commit writes whole pages: an insert into a table with one index costs 28 us of
CPU with pages of 2 KiB and 39 us with 4 KiB, and half the bytes have to reach the disk."""
CHECKPOINT = {"full": 500, "normal": 4000}
"""Pages in the write-ahead log before SQLite uses it from its beginning again, by durability. A sync of a file that
does not grow is cheaper (single enqueues, full: 500 gave 0.98 of huey's rate, 4000 gave 0.83). Without syncs a long log
is cheaper (normal)."""
LARGEST_LOG = 64 * 1024 * 1024
"""Bytes that the log keeps on the disk after a checkpoint."""
CACHE_KIB = 8000
STATEMENTS_CACHED = 512
BUSY_SECONDS = 5.0


def open_writer(path: str, durability: str, url: str, until: float) -> sqlite3.Connection:
    """A writing connection. Waits for other processes until ``until`` (monotonic), and for at most 5 s."""
    connection = _connect(path, min(BUSY_SECONDS, max(0.0, until - time.monotonic())))
    try:
        connection.execute(f"pragma page_size = {PAGE_SIZE}")
        mode = connection.execute("pragma journal_mode = wal").fetchone()[0]
        if path != MEMORY and mode != "wal":
            raise UnsupportedFileSystem(
                f"SQLite cannot use its write-ahead log here (journal mode {mode})",
                url=url,
                hint="Put the file on a local disk.",
            )
        connection.execute(f"pragma synchronous = {durability}")
        connection.execute(f"pragma wal_autocheckpoint = {CHECKPOINT[durability]}")
        connection.execute(f"pragma journal_size_limit = {LARGEST_LOG}")
        connection.execute(f"pragma cache_size = -{CACHE_KIB}")
        connection.execute("pragma busy_timeout = 0")  # write_lock.begin waits, fairly
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: str) -> sqlite3.Connection:
    connection = _connect(path)
    connection.execute("pragma query_only = on")
    return connection


def _connect(path: str, busy: float = BUSY_SECONDS) -> sqlite3.Connection:
    return sqlite3.connect(
        path, timeout=busy, isolation_level=None, check_same_thread=False, cached_statements=STATEMENTS_CACHED
    )


# ---- the connection of a caller ----------------------------------------------------------------------


def run_in_caller_transaction(
    connection: Any, path: str, enqueue: Callable[[sqlite3.Cursor], EnqueuedJobs]
) -> EnqueuedJobs:
    """Run ``enqueue`` inside the transaction of the caller, all of it or nothing.

    The caller commits, and this process does not learn when: no listener is woken, workers find the jobs by polling.
    """
    check_caller_connection(connection, path)
    text_factory, connection.text_factory = connection.text_factory, str
    try:
        return enqueue(plain_cursor(connection))
    finally:
        connection.text_factory = text_factory


def check_caller_connection(connection: Any, path: str) -> None:
    """Check that jobs can be inserted through the connection; begin a transaction where ``sqlite3`` implies one."""
    if not isinstance(connection, sqlite3.Connection):
        raise WrongConnection(
            f"connection= is a {type(connection).__module__}.{type(connection).__qualname__}, not a sqlite3.Connection",
            hint="With an ORM, pass the driver's connection, e.g. session.connection().connection.driver_connection.",
        )
    try:
        cursor = plain_cursor(connection)
    except sqlite3.ProgrammingError as error:  # closed, or of another thread
        raise WrongConnection(
            f"connection= cannot be used: {error}", hint="Pass an open connection that this thread made."
        ) from None
    main = next((_text(file) for _, name, file in cursor.execute("pragma database_list") if _text(name) == "main"), "")
    if path == MEMORY or not main or os.path.realpath(main) != path:
        raise WrongConnection(
            f"connection= is open on {main or 'a database in memory'}, the jobs are in {path}",
            hint="A transaction cannot span two SQLite files: keep the jobs in the same file as your data.",
        )
    if connection.in_transaction:
        return
    if connection.isolation_level is None:
        raise WrongConnection(
            "connection= has no open transaction: the jobs would not be tied to anything",
            hint='Execute "BEGIN IMMEDIATE" first, or leave connection= out.',
        )
    cursor.execute("begin immediate")


def plain_cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    """A cursor that returns tuples whatever the connection's own factories are."""
    cursor = sqlite3.Cursor(connection)
    cursor.row_factory = None
    return cursor


def _text(value: str | bytes) -> str:
    return os.fsdecode(value)


def explain_busy(lock: WriteLock, url: str) -> MainspringError:
    """The error of an enqueue that waited for the write lock until its time was over."""
    if lock.is_held_by_this_process():
        return InCallerTransaction(
            "enqueue waited for a write transaction that this same process holds open on the SQLite file",
            hint="Pass connection=... so that the job joins that transaction, or commit before enqueueing.",
        )
    return StoreUnavailable(
        "the SQLite file was locked by another writer for too long",
        url=url,
        hint="If this thread opened the transaction, pass connection=...; else let the other writer commit sooner.",
    )
