"""Pytest plugin: hands on the store from outside, as another program, an operator or an accident has them."""

from __future__ import annotations

import contextlib
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import psycopg
import pytest
import redis

from mainspring.stores.connect import sqlite_path
from mainspring.stores.postgres.driver.statements import schema_of
from mainspring.stores.redis.driver.catalogue import tag
from mainspring.testing import servers

_TABLES = "select string_agg(format('%%I.%%I', schemaname, tablename), ', ') from pg_tables where schemaname = %s"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "own_server: stops the store's server, so it must not be anybody else's")


@pytest.fixture
def outside(store_name: str, store_url: str, request: pytest.FixtureRequest) -> Outside:
    match store_name:
        case "sqlite":
            return OutsideSqlite(sqlite_path(store_url))
        case "postgres":
            return OutsidePostgres(request.getfixturevalue("postgres_owner_url"))
        case _:
            if request.node.get_closest_marker("own_server"):
                return OutsideRedis(store_url, request.getfixturevalue("own_valkey"))
            return OutsideRedis(request.getfixturevalue("redis_owner_url"))


@pytest.fixture
def own_valkey() -> Iterator[servers.Valkey]:
    """A server of this test alone, which it may stop."""
    server = servers.valkey(own=True, settings={"appendonly": "yes", "appendfsync": "everysec"})
    assert isinstance(server, servers.Valkey)
    with server:
        yield server


class Outside(ABC):
    """What can be done to any store, in its default namespace."""

    @abstractmethod
    def hold(self) -> AbstractContextManager[None]:
        """Meanwhile no write gets an answer. On Redis the test must be marked ``own_server``."""

    @abstractmethod
    def raise_version(self, by: int) -> None:
        """Set the version of the schema this many versions higher, as a newer Mainspring would."""


class SqlOutside(Outside):
    """A store in whose transactions a caller may take part."""

    @abstractmethod
    def connect(self) -> Any:
        """A connection of the caller's own, outside any transaction."""


class OutsideSqlite(SqlOutside):
    def __init__(self, path: str) -> None:
        self._path = path

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, isolation_level=None, timeout=30)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        with contextlib.closing(self.connect()) as connection:
            connection.execute("begin immediate")
            yield
            connection.execute("rollback")

    def raise_version(self, by: int) -> None:
        self._execute("update mainspring_meta set version = version + ?", (by,))

    def _execute(self, sql: str, params: tuple[Any, ...]) -> None:
        with contextlib.closing(self.connect()) as connection:
            connection.execute(sql, params)


class OutsidePostgres(SqlOutside):
    schema = schema_of("default")

    def __init__(self, url: str) -> None:
        self._url = url

    def connect(self) -> psycopg.Connection[Any]:
        """Its new tables go with it."""
        return psycopg.connect(self._url, autocommit=True, options="-c search_path=pg_temp")

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        with self.connect() as connection:
            ((tables,),) = self._run(connection, _TABLES, (self.schema,))
            self._run(connection, "begin")
            self._run(connection, f"lock table {tables} in exclusive mode")
            yield
            self._run(connection, "rollback")

    def raise_version(self, by: int) -> None:
        self._execute("update {schema}.schema_version set version = version + %s", (by,))

    def _execute(self, sql: str, params: tuple[Any, ...]) -> None:
        with self.connect() as connection:
            self._run(connection, sql.replace("{schema}", self.schema), params)

    def _run(self, connection: psycopg.Connection[Any], sql: str, params: tuple[Any, ...] | None = None) -> list[Any]:
        cursor = connection.execute(sql, params)
        return cursor.fetchall() if cursor.description is not None else []


class OutsideRedis(Outside):
    def __init__(self, url: str, server: servers.Valkey | None = None) -> None:
        self._url = url
        self._server = server

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        assert self._server is not None, "mark the test with own_server"
        self._server.freeze()
        yield
        self._server.thaw()

    def raise_version(self, by: int) -> None:
        with redis.Redis.from_url(self._url) as client:
            client.hincrby(f"{tag('default')}meta", "schema", by)
