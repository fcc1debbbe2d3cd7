"""The ``StoreError`` that each error of SQLite means."""

from __future__ import annotations

import sqlite3

from mainspring.errors import StoreConflict, StoreCorrupt, StoreError, StoreFull, StoreReadOnly, StoreUnavailable

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_UNSTORABLE = (
    sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.DataError, OverflowError, UnicodeEncodeError,
)  # fmt: skip


def code_of(error: BaseException) -> int:
    """The primary result code of a SQLite error; 0 for anything else."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def is_busy(error: BaseException) -> bool:
    """Another connection holds the lock."""
    return isinstance(error, sqlite3.Error) and code_of(error) in _BUSY


def is_full(error: BaseException) -> bool:
    return isinstance(error, sqlite3.Error) and code_of(error) == sqlite3.SQLITE_FULL


def is_unstorable(error: BaseException) -> bool:
    """SQLite refused the data itself: another try with the same data fails in the same way."""
    if isinstance(error, sqlite3.ProgrammingError):
        return str(error).startswith("Error binding parameter")
    return isinstance(error, _UNSTORABLE)


def translate(error: BaseException, url: str = "") -> StoreError | None:
    """The ``StoreError`` that a SQLite error means; None for an error that is not SQLite's, which is a bug."""
    if isinstance(error, StoreError):
        return error
    if is_unstorable(error):
        return StoreConflict(f"SQLite refused the data: {error}", url=url)
    if not isinstance(error, sqlite3.Error):
        return None
    match code_of(error):
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreUnavailable(
                "the SQLite file is locked by another writer", url=url,
                hint="Another process or connection keeps a write transaction open. Commit it sooner.",
            )  # fmt: skip
        case sqlite3.SQLITE_FULL:
            return StoreFull(
                "the disk of the SQLite file is full", url=url, hint="Free disk space. Stored jobs are not lost.",
            )  # fmt: skip
        case sqlite3.SQLITE_READONLY:
            return StoreReadOnly(
                "the SQLite file cannot be written", url=url,
                hint="Give this user write permission on the file and on its directory.",
            )  # fmt: skip
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_FORMAT:
            return StoreCorrupt(
                f"the SQLite file is damaged or not a database: {error}", url=url,
                hint="Stop every process that uses it, keep a copy, and restore a backup or try: sqlite3 FILE .recover",
            )  # fmt: skip
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_INTERRUPT | sqlite3.SQLITE_NOMEM:
            return StoreUnavailable(
                f"SQLite cannot use the file: {error}", url=url, hint="Check the disk and the permissions of the file."
            )
        case sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return StoreReadOnly(f"SQLite may not use the file: {error}", url=url)
    return None
