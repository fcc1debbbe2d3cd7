"""Numbered migrations. Each runs once, under the write lock. The number is kept in our own table, by namespace."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from mainspring.errors import SchemaOutdated
from mainspring.stores.records import MigrationPlan

from .write_lock import begin

if TYPE_CHECKING:
    from .statements import SqliteStatements
    from .write_lock import WriteLock

VERSION = 6


def prefix_of(namespace: str) -> str:
    """The text that the names of a namespace's tables begin with."""
    return "mainspring_" if namespace == "default" else f"mainspring_{namespace}_"


def version_of(connection: sqlite3.Connection | sqlite3.Cursor, namespace: str) -> int:
    """The number of the schema; 0 if the file has no tables of this namespace."""
    if not connection.execute("select 1 from sqlite_master where name = 'mainspring_meta'").fetchall():
        return 0
    found = connection.execute("select version from mainspring_meta where namespace = ?", (namespace,)).fetchall()
    return int(found[0][0]) if found else 0


def migrate(
    connection: sqlite3.Connection,
    sql: SqliteStatements,
    namespace: str,
    lock: WriteLock,
    url: str,
    until: float | None = None,
) -> tuple[int, int]:
    """Run the missing migrations. Returns (number before, number after)."""
    before = version_of(connection, namespace)
    if before < VERSION:
        cursor = connection.cursor()
        begin(cursor, lock, until)
        try:
            before = version_of(connection, namespace)
            _run(cursor, sql, namespace, before)
            cursor.execute("commit")
        except BaseException:
            if connection.in_transaction:
                cursor.execute("rollback")
            raise
    if before > VERSION:
        raise SchemaOutdated(
            f"the schema of namespace {namespace!r} has number {before}, this version of Mainspring knows {VERSION}",
            url=url,
            hint="Upgrade Mainspring here too: pip install -U mainspring",
        )
    return before, VERSION


def check_version(cursor: sqlite3.Cursor, namespace: str, url: str) -> None:
    """Refuse a file without our tables: opening the store makes them, a caller's transaction never does."""
    found = version_of(cursor, namespace)
    if found != VERSION:
        raise SchemaOutdated(
            f"the file has schema number {found} for namespace {namespace!r}, {VERSION} is needed",
            url=url,
            hint="Open the app (app.open()) before the transaction begins: that makes the tables.",
        )


def plan_migration(path: str | None, namespace: str) -> MigrationPlan:
    """Tell what opening would do. Reads the file with a connection of its own: the store may not be open yet."""
    before = 0
    if path is not None and Path(path).exists():
        with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)) as connection:
            before = version_of(connection, namespace)
    return MigrationPlan(before=before, after=VERSION)


def _run(cursor: sqlite3.Cursor, sql: SqliteStatements, namespace: str, before: int) -> None:
    cursor.execute(sql["create_meta"])
    for number in range(before + 1, VERSION + 1):
        for statement in sql[f"migration_{number}"].split(";"):
            cursor.execute(statement)
    if before < VERSION:
        cursor.execute(sql["set_version"], (namespace, VERSION))
