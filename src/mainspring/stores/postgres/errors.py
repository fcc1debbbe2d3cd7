"""What psycopg raises, in the contract's words."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import msgspec
import psycopg
from psycopg import errors as pg

from mainspring.errors import (
    EnqueueError,
    KeyConflict,
    KeyTaken,
    QueueDisabled,
    QueueDraining,
    SchemaOutdated,
    StoreConflict,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from mainspring.stores.shared.depth import queue_full

REFUSED: Final = "MS001"
"""The SQLSTATE under which our own functions refuse."""

TAKEN: Final = "MS002"
"""Another job, the message, holds the unique key; the detail is the task of the job that wanted it."""

DRAINING: Final = "MS003"
"""The queue that the message names takes no more jobs."""

DISABLED: Final = "MS004"
"""The queue that the message names rejects jobs; the detail is who disabled it."""

FULL: Final = "MS005"
"""No more jobs may wait in the queue that the message names; the detail tells the numbers, as JSON."""

CONFLICT: Final = "MS006"
"""The first job of the message holds the key with other arguments than the second; the detail is the task."""

MIGRATE = "Run: mainspring migrate"

# First match wins; psycopg's classes are a tree, so the particular come before the general.
_MEANINGS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], type[StoreError], str, str], ...] = (
    (
        pg.TooManyConnections, StoreUnavailable, "the server has no connection left",
        "Raise max_connections, or put a pooler in between and set pooler = true.",
    ),
    (
        (pg.DiskFull, pg.OutOfMemory, pg.ConfigurationLimitExceeded, pg.InsufficientResources),
        StoreFull, "the server has no room", "",
    ),
    (
        (pg.InvalidSchemaName, pg.UndefinedTable, pg.UndefinedFunction, pg.UndefinedColumn, pg.UndefinedObject),
        SchemaOutdated, "the schema is missing or older than this version of Mainspring", MIGRATE,
    ),
    (
        pg.ReadOnlySqlTransaction, StoreUnavailable, "the server takes no writes",
        "It is a replica, or a failover is under way: point the URL at the primary.",
    ),
    (pg.InsufficientPrivilege, StoreReadOnly, "the role may not do this", "Grant it the schema and all in it."),
    (
        (pg.SerializationFailure, pg.DeadlockDetected, pg.LockNotAvailable),
        StoreConflict, "somebody else changed the same rows", "Nothing was changed; the call may be repeated.",
    ),
    (
        (pg.IntegrityError, pg.DataError, pg.ProgramLimitExceeded, pg.StatementTooComplex),
        StoreConflict, "the data was refused", "",
    ),
    (
        (pg.QueryCanceled, pg.IdleInTransactionSessionTimeout), StoreUnavailable, "the server took too long",
        "Is somebody holding locks, or is the server overloaded?",
    ),
    ((psycopg.OperationalError, psycopg.InterfaceError), StoreUnavailable, "the server cannot be reached", ""),
)  # fmt: skip


def translate(error: Exception, url: str = "") -> StoreError | EnqueueError | None:
    """The error of ours that a driver's error means; None for what is not the driver's or is a bug of ours."""
    if isinstance(error, psycopg.Error) and error.sqlstate == TAKEN:
        return KeyTaken(error.diag.message_detail or "", UUID(_said(error)))
    if isinstance(error, psycopg.Error) and error.sqlstate == CONFLICT:
        return KeyConflict(error.diag.message_detail or "", *map(UUID, _said(error).split()))
    if isinstance(error, psycopg.Error) and error.sqlstate == DRAINING:
        return QueueDraining(_said(error))
    if isinstance(error, psycopg.Error) and error.sqlstate == DISABLED:
        return QueueDisabled(_said(error), error.diag.message_detail or "")
    if isinstance(error, psycopg.Error) and error.sqlstate == FULL:
        return queue_full(_said(error), **msgspec.json.decode(error.diag.message_detail or "{}"))
    if isinstance(error, psycopg.Error) and error.sqlstate == REFUSED:
        return StoreConflict(_said(error), url=url)
    for kinds, meaning, what, hint in _MEANINGS:
        if isinstance(error, kinds):
            return meaning(f"{what}: {_said(error)}", url=url, hint=hint)
    return None


def _said(error: Exception) -> str:
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return primary or str(error).strip() or type(error).__name__
