"""Numbered migrations, run once, under the write lock. The number stands in our own table, by namespace."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from mainspring.errors import SchemaOutdated
from mainspring.states import LIVE, REASONS, State
from mainspring.stores.records import MigrationPlan

from .gate import begin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .gate import Gate
    from .statements import Statements

VERSION = 5


def prefix_of(namespace: str) -> str:
    """What the names of a namespace's tables begin with."""
    return "mainspring_" if namespace == "default" else f"mainspring_{namespace}_"


def version_of(connection: sqlite3.Connection | sqlite3.Cursor, namespace: str) -> int:
    """The schema's number; 0 when there is none."""
    if not connection.execute("select 1 from sqlite_master where name = 'mainspring_meta'").fetchall():
        return 0
    found = connection.execute("select version from mainspring_meta where namespace = ?", (namespace,)).fetchall()
    return int(found[0][0]) if found else 0


def migrate(connection: sqlite3.Connection, sql: Statements, namespace: str, gate: Gate, url: str) -> tuple[int, int]:
    """Run what is missing. Returns (number before, number after)."""
    before = version_of(connection, namespace)
    if before < VERSION:
        cursor = connection.cursor()
        begin(cursor, gate)
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


def plan(path: str | None, namespace: str) -> MigrationPlan:
    """What opening would do. The file is read by its bare name: nobody here has opened it yet."""
    before = 0
    if path is not None and Path(path).exists():
        with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)) as connection:
            before = version_of(connection, namespace)
    return MigrationPlan(before=before, after=VERSION)


def _run(cursor: sqlite3.Cursor, sql: Statements, namespace: str, before: int) -> None:
    cursor.execute(sql["meta"])
    for number in range(before + 1, VERSION + 1):
        for statement in _constrained(sql[f"migration_{number}"]).split(";"):
            cursor.execute(statement)
    if before < VERSION:
        cursor.execute(sql["set_version"], (namespace, VERSION))


def _constrained(text: str) -> str:
    """A migration with the states and reasons of ``states.py`` written in."""
    ended = f"(state = 'succeeded' and reason is null) or (state = 'cancelled' and reason in ({_cancelled()}))"
    text = text.replace("{live}", _quoted(LIVE)).replace("{ended}", ended)
    return text.replace("{dead_reasons}", _quoted(REASONS[State.DEAD]))


def _cancelled() -> str:
    return _quoted(REASONS[State.CANCELLED])


def _quoted(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in sorted(words))
