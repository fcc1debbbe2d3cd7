"""Enqueue inside a caller's own transaction: it commits or rolls back with what the caller does there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, LiteralString
from weakref import WeakSet

import psycopg
from psycopg.pq import TransactionStatus

from mainspring.errors import WrongConnection
from mainspring.jobs.records import Batch
from mainspring.schedules.records import part_of
from mainspring.stores.postgres.session import Params, Rows, run
from mainspring.stores.postgres.statements import fill

IDENTITY = "select id, current_database()::text, (select system_identifier from pg_control_system()) from {schema}.meta"
"""Which database this is: two that have the schema are told apart, also when one is the copy of the other."""

Identity = tuple[Any, ...]


class Callers:
    """Checks connections of others once each, and runs statements on them."""

    def __init__(self, schema: str, identity: Callable[[], Identity]) -> None:
        self._schema = schema
        self._identity = identity
        self._known: WeakSet[psycopg.Connection[Any]] = WeakSet()

    def run(self, connection: Any, sql: LiteralString, params: Params) -> Rows:
        """A statement that fails leaves the caller's transaction as it was."""
        if not isinstance(connection, psycopg.Connection):
            kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
            raise WrongConnection(
                f"connection= is a {kind}, not a psycopg.Connection",
                hint="Pass an open psycopg 3 connection; of an ORM: session.connection().connection.driver_connection.",
            )
        if connection.closed:
            raise WrongConnection("connection= is closed", hint="Enqueue before it is closed or given back.")
        if connection.info.transaction_status == TransactionStatus.INERROR:
            raise WrongConnection("the transaction of connection= has failed already", hint="Roll it back first.")
        if connection not in self._known:
            self._check(connection)
            self._known.add(connection)
        return _unless_it_fails(connection, sql, params)

    def _check(self, connection: psycopg.Connection[Any]) -> None:
        there = run(connection, "select to_regclass(%(name)s) is not null", {"name": f"{self._schema}.meta"})
        if there != [(True,)]:
            raise WrongConnection(
                f"connection= leads to database {connection.info.dbname!r}, which has no schema {self._schema!r}",
                hint="Pass a connection to the database that the store's URL names; run: mainspring migrate",
            )
        if run(connection, fill(IDENTITY, self._schema), {}) != [self._identity()]:
            raise WrongConnection(
                f"connection= leads to database {connection.info.dbname!r} on {connection.info.host}, "
                f"whose schema {self._schema!r} is not that of the store",
                hint="Pass a connection to the database that the store's URL names.",
            )


def refuse_inside(batch: Batch) -> None:
    """Refuse what would keep running jobs from ending while a caller's transaction is open."""
    if any(job.unique is not None and job.unique.mode == "keep_last" for job in batch.jobs):
        raise WrongConnection(
            'a job whose key has mode="keep_last" cannot be enqueued through connection= on PostgreSQL',
            hint="The job that runs could not end before your transaction does: enqueue it after the commit.",
        )
    if batch.forced and any(part_of(job.marks) is not None for job in batch.jobs):
        raise WrongConnection(
            "a job that need not wait for others (forced) cannot be enqueued through connection= on PostgreSQL",
            hint="Those that it passes could not end before your transaction does: enqueue it after the commit.",
        )


def _unless_it_fails(connection: psycopg.Connection[Any], sql: LiteralString, params: Params) -> Rows:
    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        return run(connection, sql, params)
    connection.execute("savepoint mainspring")
    try:
        rows = run(connection, sql, params)
    except psycopg.Error:
        if not connection.closed:
            connection.execute("rollback to savepoint mainspring")
        raise
    connection.execute("release savepoint mainspring")
    return rows
