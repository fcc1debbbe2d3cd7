"""Numbered migrations: each runs once, all of one call in one transaction, under a lock of its own.

A function is versioned (``turn_v1``) and belongs to the migration that made it, so code of two versions
can use one schema while a fleet is being replaced.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import LiteralString

from psycopg import errors as pg

from mainspring.errors import SchemaOutdated
from mainspring.stores.postgres.links import AsyncLink
from mainspring.stores.postgres.session import Rows
from mainspring.stores.postgres.statements import fill, statement

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "0001", "0001_limits", "0001_breakers", "0001_fair", "0001_schedules", "0001_parts", "0001_locks", "now",
        "limits", "rooms", "starts", "breakers", "lanes", "fair", "guests", "finish", "ack", "relane", "claim", "gates",
        "pick", "limited", "take", "turn", "keys", "latest", "enqueue", "enter", "rescue", "beat", "promote", "act",
        "prune", "report", "modes", "queues", "docs", "chunks", "strays", "schedules", "parts",
    ),
)  # fmt: skip
"""The files of each migration, the first is number 1."""

VERSION = len(MIGRATIONS)

_LOCK = "select pg_advisory_xact_lock(hashtextextended('mainspring migrate {schema}', 0))"
_READ = "select version from {schema}.schema_version"
_IS_THERE = "select to_regnamespace(%s) is not null, to_regclass(%s) is not null"
_MISSING = (pg.UndefinedTable, pg.InvalidSchemaName)
_VERSION = """create table {schema}.schema_version (version integer not null);
insert into {schema}.schema_version values (0)"""


async def check(rows: Callable[..., Awaitable[Rows]], schema: str, url: str) -> None:
    """``SchemaOutdated`` for a schema that a newer Mainspring made; of a missing one the first call tells."""
    try:
        ((version,),) = await rows(fill(_READ, schema), {})
    except _MISSING:
        return
    _refuse_newer(version, schema, url)


def check_now(rows: Callable[..., Rows], schema: str, url: str) -> None:
    """The same, blocking."""
    try:
        ((version,),) = rows(fill(_READ, schema), {})
    except _MISSING:
        return
    _refuse_newer(version, schema, url)


async def migrate(link: AsyncLink, schema: str, url: str) -> tuple[int, int]:
    """Run what is missing; returns (version before, version after)."""
    async with link.transaction():
        await link.execute("set local statement_timeout = 0")
        await link.execute(fill(_LOCK, schema))
        before, texts = await _missing(link, schema)
        _refuse_newer(before, schema, url)
        for text in texts:
            await link.execute(text)
    return before, VERSION


async def plan(link: AsyncLink, schema: str) -> tuple[int, str]:
    """The version that stands, and the script that makes up for what is missing."""
    before, texts = await _missing(link, schema)
    if not texts:
        return before, ""
    return before, "".join(f"{text.strip()};\n\n" for text in ("begin", fill(_LOCK, schema), *texts, "commit"))


async def _missing(link: AsyncLink, schema: str) -> tuple[int, Sequence[LiteralString]]:
    """The version, and what brings the schema up to date, in order; a schema that an administrator made is taken."""
    row = await (await link.execute(_IS_THERE, (schema, f"{schema}.schema_version"))).fetchone()
    made, versioned = row or (False, False)
    before = 0
    if versioned:
        row = await (await link.execute(fill(_READ, schema))).fetchone()
        before = int(row[0]) if row else 0
    texts: list[LiteralString] = []
    if not made:
        texts.append(fill("create schema {schema}", schema))
    if not versioned:
        texts.append(fill(_VERSION, schema))
    texts += [statement(name, schema) for files in MIGRATIONS[before:] for name in files]
    if before < VERSION:
        texts.append(fill(f"update {{schema}}.schema_version set version = {VERSION}", schema))
    return before, texts


def _refuse_newer(version: int, schema: str, url: str) -> None:
    if version > VERSION:
        raise SchemaOutdated(
            f"schema {schema!r} has version {version}, this Mainspring knows {VERSION}",
            url=url, hint="Upgrade Mainspring here: a newer one migrated it.",
        )  # fmt: skip
