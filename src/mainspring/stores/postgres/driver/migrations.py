"""Numbered migrations: each runs once, all of one call in one transaction, under a lock of their own.

A function is versioned (``turn_v1``) and belongs to the migration that created it, so that code of two versions
can use one schema while a fleet is being replaced.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, LiteralString

from psycopg import errors as pg

from mainspring.errors import SchemaOutdated
from mainspring.stores.postgres.driver.connections import AsyncServerConnection
from mainspring.stores.postgres.driver.roles import roles_script
from mainspring.stores.postgres.driver.session import Rows
from mainspring.stores.postgres.driver.statements import fill_schema, read_sql
from mainspring.stores.records import MigrationPlan

if TYPE_CHECKING:
    from mainspring.stores.postgres.driver.database import Database

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "schema/base", "schema/jobs", "schema/flows", "schema/keys", "schema/queues", "schema/limits",
        "schema/holders", "schema/breakers", "schema/schedules", "schema/fleet", "schema/reports",
        "lanes", "fair", "limits/declare", "limits/capacity", "limits/rates", "limits/waiting", "limits/clock",
        "holders", "breakers", "queues", "keys", "enqueue", "finish", "flows", "follow_ups", "ack",
        "claim/lanes", "claim/unkeyed", "claim/unlimited", "claim/limited", "claim/take", "claim/low_water",
        "turn", "fleet", "promote", "actions", "prune", "reports", "schedules", "documents",
    ),
)  # fmt: skip
"""The files of each migration; the first migration has number 1."""

VERSION = len(MIGRATIONS)

_LOCK = "select pg_advisory_xact_lock(hashtextextended('mainspring migrate {schema}', 0))"
_READ = "select version from {schema}.schema_version"
_IS_THERE = "select to_regnamespace(%s) is not null, to_regclass(%s) is not null"
_MISSING = (pg.UndefinedTable, pg.InvalidSchemaName)
_VERSION_TABLE = """create table {schema}.schema_version (version integer not null);
insert into {schema}.schema_version values (0)"""


async def check_version(rows: Callable[..., Awaitable[Rows]], schema: str, url: str) -> None:
    """``SchemaOutdated`` for a schema that a newer Mainspring made. A missing schema fails in the first call."""
    try:
        ((version,),) = await rows(fill_schema(_READ, schema), {})
    except _MISSING:
        return
    _refuse_newer(version, schema, url)


def check_version_now(rows: Callable[..., Rows], schema: str, url: str) -> None:
    """:func:`check_version`, blocking."""
    try:
        ((version,),) = rows(fill_schema(_READ, schema), {})
    except _MISSING:
        return
    _refuse_newer(version, schema, url)


async def migrate(db: Database) -> tuple[int, int]:
    """Run the missing migrations; returns (version before, version after)."""
    async with await db.sessions.connect() as connection, connection.transaction():
        await connection.execute("set local statement_timeout = 0")
        await connection.execute(fill_schema(_LOCK, db.schema))
        before, texts = await _missing(connection, db.schema)
        _refuse_newer(before, db.schema, db.url)
        for text in texts:
            await connection.execute(text)
    return before, VERSION


async def migration_plan(db: Database) -> MigrationPlan:
    """The version of the schema, and the script that does what :func:`migrate` would do."""
    async with await db.sessions.connect() as connection:
        before, texts = await _missing(connection, db.schema)
    steps = ("begin", fill_schema(_LOCK, db.schema), *texts, "commit") if texts else ()
    script = "".join(f"{text.strip()};\n\n" for text in steps)
    return MigrationPlan(before=before, after=VERSION, script=script, access=roles_script(db.schema))


async def _missing(connection: AsyncServerConnection, schema: str) -> tuple[int, Sequence[LiteralString]]:
    """The version, and the statements that bring the schema up to date. A schema that an administrator made is used."""
    row = await (await connection.execute(_IS_THERE, (schema, f"{schema}.schema_version"))).fetchone()
    made, versioned = row or (False, False)
    before = 0
    if versioned:
        row = await (await connection.execute(fill_schema(_READ, schema))).fetchone()
        before = int(row[0]) if row else 0
    texts: list[LiteralString] = []
    if not made:
        texts.append(fill_schema("create schema {schema}", schema))
    if not versioned:
        texts.append(fill_schema(_VERSION_TABLE, schema))
    texts += [read_sql(name, schema) for files in MIGRATIONS[before:] for name in files]
    if before < VERSION:
        texts.append(fill_schema(f"update {{schema}}.schema_version set version = {VERSION}", schema))
    return before, texts


def _refuse_newer(version: int, schema: str, url: str) -> None:
    if version > VERSION:
        raise SchemaOutdated(
            f"schema {schema!r} has version {version}, this Mainspring knows {VERSION}",
            url=url, hint="Upgrade Mainspring here: a newer one migrated it.",
        )  # fmt: skip
