"""The store of a run: a SQLite file, or a server of its own that can be killed, frozen and started again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psycopg
import redis

from mainspring.client.blocking import run as blocking
from mainspring.stores.connect import connect
from mainspring.testing import chaos, servers

EVERY_SECOND = {"appendonly": "yes", "appendfsync": "everysec"}
"""What a Valkey keeps through a kill: all that it has answered; through a power cut: all but the last second."""


class Arena:
    """Where the store is, and what can be done to its server."""

    def __init__(self, name: str, url: str, server: servers.Postgres | servers.Valkey | None = None) -> None:
        self.name = name
        self.url = url
        self.server = server

    @contextlib.contextmanager
    def wire(self) -> Iterator[chaos.Proxy | None]:
        """A way to the store that can be cut; a file has none."""
        if self.server is None:
            yield None
            return
        with chaos.Proxy(self.url) as wire:
            yield wire

    def end_connections(self) -> None:
        """Close every connection at the server's end."""
        if self.name == "postgres":
            with psycopg.connect(self.url, autocommit=True) as admin:
                admin.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where backend_type = 'client backend' and pid <> pg_backend_pid()"
                )
        else:
            with redis.Redis.from_url(self.url) as admin:
                for kind in ("normal", "pubsub"):
                    admin.execute_command("CLIENT", "KILL", "TYPE", kind)


@contextlib.contextmanager
def arena(name: str, folder: Path) -> Iterator[Arena]:
    """A fresh store, ready for use."""
    with contextlib.ExitStack() as stack:
        if name == "sqlite":
            made = Arena(name, f"sqlite:///{folder}/mainspring.db")
        else:
            server = _server(name)
            stack.enter_context(server)
            made = Arena(name, server.url, server)
        blocking("migrate", _migrate(made.url))
        yield made


def _server(name: str) -> servers.Postgres | servers.Valkey:
    server = (
        servers.postgres(own=True, durable=True)
        if name == "postgres"
        else servers.valkey(own=True, settings=EVERY_SECOND)
    )
    assert not isinstance(server, servers.External)
    return server


async def _migrate(url: str) -> None:
    store = connect(url)
    try:
        await store.migrate()
    finally:
        await store.close()
