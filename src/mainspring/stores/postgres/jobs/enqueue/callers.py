"""Enqueue inside a caller's own transaction: the jobs commit or roll back with the caller's changes."""

from __future__ import annotations

from typing import Any, LiteralString
from weakref import WeakSet

import psycopg
from psycopg.pq import TransactionStatus

from mainspring.errors import WrongConnection
from mainspring.jobs.records import JobBatch
from mainspring.stores.postgres.driver.database import Database
from mainspring.stores.postgres.driver.session import Params, Rows, run_on
from mainspring.stores.postgres.driver.statements import fill_schema

IDENTITY = "select id, current_database()::text, (select system_identifier from pg_control_system()) from {schema}.meta"
"""Which database this is: also two databases of which one is a copy of the other differ."""

Identity = tuple[Any, ...]


class CallerConnections:
    """Checks each connection of a caller once, and runs statements on it."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._identity: Identity | None = None
        self._known: WeakSet[psycopg.Connection[Any]] = WeakSet()

    def run(self, connection: Any, sql: LiteralString, params: Params) -> Rows:
        """Run a statement in the caller's transaction. A statement that fails leaves the transaction as it was."""
        if not isinstance(connection, psycopg.Connection):
            kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
            raise WrongConnection(
                f"connection= is a {kind}, not a psycopg.Connection",
                hint="Pass an open psycopg 3 connection; of an ORM: session.connection().connection.driver_connection.",
            )
        if connection.closed:
            raise WrongConnection(
                "connection= is closed", hint="Enqueue before you close the connection or give it back."
            )
        if connection.info.transaction_status == TransactionStatus.INERROR:
            raise WrongConnection("the transaction of connection= has failed already", hint="Roll it back first.")
        if connection not in self._known:
            self._check(connection)
            self._known.add(connection)
        return _run_in_savepoint(connection, sql, params)

    def _check(self, connection: psycopg.Connection[Any]) -> None:
        schema = self._db.schema
        exists = run_on(connection, "select to_regclass(%(name)s) is not null", {"name": f"{schema}.meta"})
        if exists != [(True,)]:
            raise WrongConnection(
                f"connection= leads to database {connection.info.dbname!r}, which has no schema {schema!r}",
                hint="Pass a connection to the database that the store's URL names; run: mainspring migrate",
            )
        if run_on(connection, fill_schema(IDENTITY, schema), {}) != [self._own_identity()]:
            raise WrongConnection(
                f"connection= leads to database {connection.info.dbname!r} on {connection.info.host}, "
                f"whose schema {schema!r} is not that of the store",
                hint="Pass a connection to the database that the store's URL names.",
            )

    def _own_identity(self) -> Identity:
        if self._identity is None:
            (self._identity,) = self._db.sessions.rows_now(fill_schema(IDENTITY, self._db.schema), {})
        return self._identity


def refuse_inside(batch: JobBatch) -> None:
    """Refuse jobs that would keep running jobs from ending while the caller's transaction is open."""
    if any(job.unique is not None and job.unique.mode == "keep_last" for job in batch.jobs):
        raise WrongConnection(
            'a job whose key has mode="keep_last" cannot be enqueued through connection= on PostgreSQL',
            hint="The running job could not end before your transaction ends. Enqueue the new job after the commit.",
        )


def _run_in_savepoint(connection: psycopg.Connection[Any], sql: LiteralString, params: Params) -> Rows:
    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        return run_on(connection, sql, params)
    connection.execute("savepoint mainspring")
    try:
        rows = run_on(connection, sql, params)
    except psycopg.Error:
        if not connection.closed:
            connection.execute("rollback to savepoint mainspring")
        raise
    connection.execute("release savepoint mainspring")
    return rows
