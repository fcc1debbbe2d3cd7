"""Pytest plugin: a store that looks new to each test, at the price of a few statements.

A schema of PostgreSQL takes long to make, so each test process makes it once and empties its tables before every
test. What the migration itself wrote stays. A test that changed anything else (the version, a table, a function)
costs the next one a schema made anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
import redis

from mainspring.stores.connect import connect
from mainspring.stores.postgres.driver.statements import schema_of
from mainspring.testing import servers

LARGE = 1_000_000
"""Bytes of a table from which it is truncated: deleted rows would slow the tests that follow."""

_OBJECTS = """
select c.relkind::text, c.relname::text, pg_relation_size(c.oid), c.relispartition from pg_class c
where c.relnamespace = to_regnamespace(%(schema)s) and c.relkind in ('r', 'p', 'i', 'I', 'S', 'v')
union all
select 'f', p.oid::text, 0, false from pg_proc p where p.pronamespace = to_regnamespace(%(schema)s)
order by 1, 2
"""


@pytest.fixture(scope="session")
def clean_schemas(postgres_owner_url: str) -> Iterator[CleanSchemas]:
    schemas = CleanSchemas(postgres_owner_url)
    yield schemas
    schemas.close()


@pytest.fixture
def fresh_postgres_url(clean_schemas: CleanSchemas, postgres_url: str) -> str:
    """A database whose default namespace is empty."""
    clean_schemas.clean()
    return postgres_url


@pytest.fixture
def fresh_redis_url(request: pytest.FixtureRequest) -> str:
    """An empty numbered database, or a server of the test's own."""
    if request.node.get_closest_marker("own_server"):
        own: servers.Valkey = request.getfixturevalue("own_valkey")
        return own.url
    redis_url: str = request.getfixturevalue("redis_url")
    with redis.Redis.from_url(request.getfixturevalue("redis_owner_url")) as client:
        client.flushdb()
    return redis_url


@pytest.fixture
def make_namespace(store_name: str, store_url: str, request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Empty namespaces beside the default one; PostgreSQL wants them made."""

    def make(name: str) -> str:
        if store_name == "postgres":
            request.getfixturevalue("clean_schemas").clean(name)
        return name

    return make


class CleanSchemas:
    """The schemas of one database, by namespace. ``url`` is that of their owner."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection | None = None
        self._objects: dict[str, list[Any]] = {}
        self._rows: dict[str, dict[str, list[Any]]] = {}

    def clean(self, namespace: str = "default") -> None:
        """Make the namespace, or make it as empty as it was at first."""
        schema = schema_of(namespace)
        if schema not in self._objects or not self._emptied(schema):
            self._make(namespace, schema)

    def drop(self, namespace: str) -> None:
        """Drop the schema. No test uses it again."""
        self._run(f"drop schema if exists {schema_of(namespace)} cascade")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _make(self, namespace: str, schema: str) -> None:
        self.drop(namespace)
        with ThreadPoolExecutor(1) as thread:  # this one may have an event loop already
            thread.submit(asyncio.run, _migrate(self._url, namespace)).result()
        found = self._look(schema)
        self._objects[schema] = _names(found)
        self._rows[schema] = {name: rows for name in _tables(found) if (rows := self._run(f"table {schema}.{name}"))}

    def _emptied(self, schema: str) -> bool:
        """Whether the schema is as it was made, now that its rows are gone."""
        found = self._look(schema)
        if _names(found) != self._objects[schema]:
            return False
        tables, kept = _tables(found), self._rows[schema]
        if any(self._run(f"table {schema}.{name}") != rows for name, rows in kept.items()):
            return False
        sizes = {name: size for name, size in tables.items() if name not in kept}
        steps = [f"{'truncate' if size > LARGE else 'delete from'} {schema}.{name}" for name, size in sizes.items()]
        steps += [f"alter sequence {schema}.{name} restart" for kind, name, _, _ in found if kind == "S"]
        self._run("; ".join(steps))
        return True

    def _look(self, schema: str) -> list[Any]:
        return self._run(_OBJECTS, {"schema": schema})

    def _run(self, sql: str, params: dict[str, str] | None = None) -> list[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._url, autocommit=True)
        try:
            cursor = self._connection.execute(sql, params)
        except psycopg.OperationalError:
            if not self._connection.closed:
                raise
            return self._run(sql, params)  # a test had ended every session
        return cursor.fetchall() if cursor.description is not None else []


async def _migrate(url: str, namespace: str) -> None:
    store = connect(url, namespace=namespace)
    try:
        await store.migrate()
    finally:
        await store.close()


def _names(found: list[Any]) -> list[Any]:
    return [(kind, name) for kind, name, _, _ in found]


def _tables(found: list[Any]) -> dict[str, int]:
    """Tables that hold rows, by name, with their size; partitions go by their parent."""
    return {name: size for kind, name, size, part in found if kind in "rp" and not part}
