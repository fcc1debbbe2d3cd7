"""Numbered migrations: each runs once, all of one call in one transaction, under a lock of its own.

A function is versioned (``turn_v1``) and belongs to the migration that made it, so code of two versions
can use one schema while a fleet is being replaced.
"""

from __future__ import annotations

import psycopg

from mainspring.errors import SchemaOutdated
from mainspring.stores.postgres.statements import fill, statement

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    ("0001", "now", "finish", "ack", "claim", "pick", "turn", "enqueue", "rescue", "beat", "promote", "cancel"),
)
"""The files of each migration, the first is number 1."""

VERSION = len(MIGRATIONS)

_LOCK = "select pg_advisory_xact_lock(hashtextextended('mainspring migrate {schema}', 0))"
_READ = "select version from {schema}.schema_version"
_START = """
create schema if not exists {schema};
create table if not exists {schema}.schema_version (version integer not null);
insert into {schema}.schema_version select 0 where not exists (select 1 from {schema}.schema_version);
"""


async def read_version(connection: psycopg.AsyncConnection, schema: str) -> int:
    """The schema's version; 0 when there is none."""
    there = await connection.execute("select to_regclass(%s)", (f"{schema}.schema_version",))
    if await there.fetchone() == (None,):
        return 0
    row = await (await connection.execute(fill(_READ, schema))).fetchone()
    return int(row[0]) if row else 0


def refuse_newer(version: int, schema: str, url: str) -> None:
    if version > VERSION:
        raise SchemaOutdated(
            f"schema {schema!r} has version {version}, this Mainspring knows {VERSION}",
            url=url, hint="A newer Mainspring migrated it: upgrade this installation.",
        )  # fmt: skip


async def migrate(connection: psycopg.AsyncConnection, schema: str, url: str) -> tuple[int, int]:
    """Run what is missing; returns (version before, version after)."""
    async with connection.transaction():
        await connection.execute(fill(_LOCK, schema))
        before = await read_version(connection, schema)
        refuse_newer(before, schema, url)
        if before < VERSION:
            await connection.execute(fill(_START, schema))
        for files in MIGRATIONS[before:]:
            for name in files:
                await connection.execute(statement(name, schema))
        if before < VERSION:
            await connection.execute(fill("update {schema}.schema_version set version = %s", schema), (VERSION,))
    return before, VERSION
