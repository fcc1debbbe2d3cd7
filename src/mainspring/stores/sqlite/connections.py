"""Connections as this engine needs them, and the callers' own."""

from __future__ import annotations

import os
import sqlite3
from typing import Any

from mainspring.errors import UnsupportedFileSystem, WrongConnection

MEMORY = ":memory:"
CHECKPOINT = {"full": 500, "normal": 4000}
"""Pages in the log before it is used from its beginning again. A sync of a file that does not grow is cheaper
(single enqueues, full: 500 gave 0.98 of huey's rate, 4000 gave 0.83); without syncs a long log is (normal)."""


def open_writer(path: str, durability: str, url: str) -> sqlite3.Connection:
    connection = _connect(path)
    try:
        # Only for a file that is made now. A commit writes whole pages: 28 us of CPU at 2 KiB, 39 us at 4 KiB
        # for an insert into a table with one index; half the bytes to sync.
        connection.execute("pragma page_size = 2048")
        mode = connection.execute("pragma journal_mode = wal").fetchone()[0]
        if path != MEMORY and mode != "wal":
            raise UnsupportedFileSystem(
                f"SQLite cannot use its write-ahead log here (journal mode {mode})",
                url=url,
                hint="Put the file on a local disk.",
            )
        connection.execute(f"pragma synchronous = {durability}")
        connection.execute(f"pragma wal_autocheckpoint = {CHECKPOINT[durability]}")
        connection.execute("pragma journal_size_limit = 67108864")
        connection.execute("pragma cache_size = -8000")
        connection.execute("pragma busy_timeout = 0")  # gate.begin waits, fairly
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: str) -> sqlite3.Connection:
    connection = _connect(path)
    connection.execute("pragma query_only = on")
    return connection


def _connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=5.0, isolation_level=None, check_same_thread=False, cached_statements=512)


def check_callers(connection: Any, path: str) -> None:
    """Whether jobs can be inserted through a caller's connection; begins a transaction where one is implied."""
    if not isinstance(connection, sqlite3.Connection):
        raise WrongConnection(
            f"connection= is a {type(connection).__module__}.{type(connection).__qualname__}, not a sqlite3.Connection",
            hint="With an ORM, pass the driver's connection, e.g. session.connection().connection.driver_connection.",
        )
    try:
        cursor = plain_cursor(connection)
    except sqlite3.ProgrammingError as error:  # closed, or of another thread
        raise WrongConnection(f"connection= cannot be used: {error}", hint="Pass an open one of this thread.") from None
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
