"""Translation of psycopg errors into the errors of the store contract."""

from __future__ import annotations

from uuid import UUID

import msgspec
import psycopg
from psycopg import errors as pg

from mainspring.common.redact import redact
from mainspring.errors import (
    EnqueueError,
    FlowClosed,
    KeyConflict,
    KeyTaken,
    QueueDisabled,
    QueueDraining,
    SchemaOutdated,
    StoreConflict,
    StoreError,
    StoreFull,
    StoreMisconfigured,
    StoreReadOnly,
    StoreUnavailable,
)
from mainspring.stores.postgres.driver import constants
from mainspring.stores.shared.depth import queue_full

MIGRATE = "Run: mainspring migrate"

# First match wins; psycopg's classes are a tree, so a subclass comes before its parent.
_MEANINGS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], type[StoreError], str, str], ...] = (
    (
        pg.TooManyConnections, StoreUnavailable, "the server has no connection left",
        "Raise max_connections, or put a pooler in between and set pooler = true.",
    ),
    (
        (pg.DiskFull, pg.OutOfMemory, pg.ConfigurationLimitExceeded, pg.InsufficientResources),
        StoreFull, "the server has no space left", "",
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
        StoreConflict, "another transaction changed the same rows", "Nothing was changed. Repeat the call.",
    ),
    (
        (pg.IntegrityError, pg.DataError, pg.ProgramLimitExceeded, pg.StatementTooComplex),
        StoreConflict, "the data was refused", "",
    ),
    (
        (pg.QueryCanceled, pg.IdleInTransactionSessionTimeout), StoreUnavailable, "the server took too long",
        "Look for a transaction that holds locks, or for an overloaded server.",
    ),
    ((psycopg.OperationalError, psycopg.InterfaceError), StoreUnavailable, "the server cannot be reached", ""),
)  # fmt: skip


def translate(error: Exception, url: str = "", namespace: str = "default") -> StoreError | EnqueueError | None:
    """The contract's error for an error of psycopg; None for an error of another library or a bug of ours."""
    if isinstance(error, psycopg.Error) and (own := _translate_own(error, url)):
        return own
    for kinds, meaning, what, hint in _MEANINGS:
        if isinstance(error, kinds):
            where = f" --url URL --namespace {namespace}" if hint == MIGRATE and namespace != "default" else ""
            return meaning(f"{what}: {redact(_message(error))}", url=url, hint=hint + where)
    return None


_NEVER_CURED = (
    ("password authentication failed", "Check the user and the password in the URL."),
    ("no password supplied", "Write the password into the URL, or into ~/.pgpass."),
    ("no pg_hba.conf entry", "Allow this user and this host in pg_hba.conf."),
    ('database "', "Check the name of the database in the URL, or create it: createdb NAME"),
    ('role "', "Check the user in the URL, or create it: createuser NAME"),
)
"""Words of the server's refusals that another try cannot cure, in English: a server may say them in another language.
A refusal with ``"`` must also say that the thing does not exist."""


def misconfigured(error: Exception, url: str) -> StoreMisconfigured | None:
    """The error of a first connection that fails in the same way at each try; None if waiting may help."""
    text = _message(error)
    for words, hint in _NEVER_CURED:
        if words in text and (not words.endswith('"') or "does not exist" in text):
            return StoreMisconfigured(f"the server refused the connection: {text}", url=url, hint=hint)
    return None


def _translate_own(error: psycopg.Error, url: str) -> StoreError | EnqueueError | None:
    """The error that one of our functions has raised under an SQLSTATE of its own."""
    detail = error.diag.message_detail or ""
    match error.sqlstate:
        case constants.ERROR_KEY_TAKEN:
            return KeyTaken(detail, UUID(_message(error)))
        case constants.ERROR_KEY_CONFLICT:
            return KeyConflict(detail, *map(UUID, _message(error).split()))
        case constants.ERROR_DRAINING:
            return QueueDraining(_message(error))
        case constants.ERROR_DISABLED:
            return QueueDisabled(_message(error), detail)
        case constants.ERROR_QUEUE_FULL:
            return queue_full(_message(error), **msgspec.json.decode(detail or "{}"))
        case constants.ERROR_FLOW_CLOSED:
            return FlowClosed(UUID(_message(error)))
        case constants.ERROR_REFUSED:
            return StoreConflict(_message(error), url=url)
    return None


def _message(error: Exception) -> str:
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return primary or str(error).strip() or type(error).__name__
