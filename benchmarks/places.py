"""A fresh store for one measurement, with its private server where the engine has one.

PostgreSQL runs with fsync and synchronous_commit, Valkey with an append-only file synced each second: the same for
every system.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import psutil

from benchmarks.frame import Engine, Failed
from benchmarks.processes import tree_cpu
from mainspring.testing import servers

POSTGRES = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",  # a checkpoint in the middle of one system's turn would be charged to it alone
}
VALKEY = {"appendonly": "yes", "appendfsync": "everysec"}


class Look(ABC):
    """Questions to the store, in its own language, each answered by one number; never asked by a process measured."""

    @abstractmethod
    def ask(self, question: str) -> int: ...

    @abstractmethod
    def close(self) -> None: ...


class Place(ABC):
    """One store."""

    address: str
    """What the programs get."""
    counts_late = 0.0
    """Seconds after which a request is counted at the latest."""

    @abstractmethod
    def look(self) -> Look: ...

    @abstractmethod
    def version(self) -> str:
        """What the engine calls itself."""

    def cpu(self) -> float:
        """Seconds of processor time of all processes of the server, without those that answer our own looks."""
        return 0.0

    def operations(self, look: Look) -> float:  # noqa: ARG002  # there is no server to ask
        """Commands or transactions of the server so far."""
        return 0.0

    def round_trips(self, look: Look) -> float:  # noqa: ARG002
        """Requests of clients so far, those of ``look`` too."""
        return 0.0

    def stop_maintenance(self, look: Look) -> None:  # noqa: B027  # a file does nothing by itself
        """End what the server does by itself, which its counters do not tell from the requests of clients."""

    def pid(self) -> int | None:
        """The server's main process."""
        return None


@contextmanager
def fresh(engine: Engine, folder: Path) -> Iterator[Place]:
    """An empty store, gone afterwards."""
    if engine == "sqlite":
        yield SqlitePlace(folder)
        return
    try:
        server = (
            servers.Postgres(durable=True, settings=POSTGRES)
            if engine == "postgres"
            else servers.Valkey(settings=VALKEY)
        )
    except servers.EngineMissing as error:
        raise Failed(str(error)) from None
    with server:
        yield PostgresPlace(server) if engine == "postgres" else RedisPlace(server)


class SqlLook(Look):
    """On any connection that executes."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def ask(self, question: str) -> int:
        return int(self.connection.execute(question).fetchone()[0])

    def close(self) -> None:
        self.connection.close()


class SqlitePlace(Place):
    def __init__(self, folder: Path) -> None:
        self.address = str(folder / "bench.db")

    def look(self) -> SqlLook:
        return SqlLook(sqlite3.connect(f"file:{self.address}?mode=ro", uri=True, isolation_level=None, timeout=10))

    def version(self) -> str:
        return sqlite3.sqlite_version


class ServerPlace(Place):
    def __init__(self, server: servers.Server) -> None:
        self.address = server.url
        self.server = server
        self.ours: set[int] = set()
        """Processes of the server that answer our looks."""

    def pid(self) -> int:
        return self.server.pid

    def cpu(self) -> float:
        return tree_cpu(psutil.Process(self.server.pid), self.ours)


class PostgresPlace(ServerPlace):
    counts_late = 10.0  # a connection that is idle hands over its counters after 10 s

    def look(self) -> SqlLook:
        import psycopg

        connection = psycopg.connect(self.address, autocommit=True)
        self.ours.add(connection.info.backend_pid)
        return SqlLook(connection)

    def operations(self, look: Look) -> float:
        return look.ask("select sum(xact_commit + xact_rollback) from pg_stat_database")

    def stop_maintenance(self, look: Look) -> None:
        assert isinstance(look, SqlLook)
        look.connection.execute("alter system set autovacuum = off")
        look.connection.execute("select pg_reload_conf()")

    def round_trips(self, look: Look) -> float:
        return look.ask("select xact_commit + xact_rollback from pg_stat_database where datname = current_database()")

    def version(self) -> str:
        with closing(self.look()) as look:
            return str(look.connection.execute("show server_version").fetchone()[0])


class RedisLook(Look):
    """A question is a script."""

    def __init__(self, url: str) -> None:
        import redis

        self.client = redis.Redis.from_url(url)

    def ask(self, question: str) -> int:
        return int(cast("int", self.client.eval(question, 0)))

    def close(self) -> None:
        self.client.close()


class RedisPlace(ServerPlace):
    def look(self) -> RedisLook:
        return RedisLook(self.address)

    def operations(self, look: Look) -> float:
        return self._stats(look)["total_commands_processed"]

    def round_trips(self, look: Look) -> float:
        return self._stats(look)["total_reads_processed"]

    def _stats(self, look: Look) -> dict[str, int]:
        assert isinstance(look, RedisLook)
        return cast("dict[str, int]", look.client.info("stats"))

    def version(self) -> str:
        with closing(self.look()) as look:
            told = look.client.info("server")
        return f"{told.get('server_name', 'redis')} {told.get('valkey_version') or told['redis_version']}"
