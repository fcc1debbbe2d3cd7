"""One server per test run, shared by all xdist workers, with a private database for each."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

from mainspring.stores.connect import check_driver
from mainspring.testing.servers import _ledger, _postgres, _valkey
from mainspring.testing.servers._postgres import Postgres
from mainspring.testing.servers._valkey import Valkey

Engine = Literal["postgres", "redis"]

_URL_VARIABLES = {"postgres": _postgres.URL_VARIABLE, "redis": _valkey.URL_VARIABLE}
_SAFE = {"postgres": {"fsync": "on"}, "redis": {"appendonly": "yes", "appendfsync": "everysec"}}
"""Settings without which Mainspring warns: programs under test are silent. In memory they cost nothing."""


def shared(engine: Engine) -> str:
    """The URL of the server of this test run; the first call starts it.

    It ends with the process named in ``MAINSPRING_TEST_OWNER`` (else this one): see `end` and `sweep`.
    """
    if given := os.environ.get(_URL_VARIABLES[engine]):
        return given
    with _ledger.locked():
        known = _ledger.read(_ledger.directory() / f"{_ledger.owner()}-{engine}.json")
        if known is not None and known["url"] and _ledger.alive(known["pid"], known["born"]):
            return known["url"]
        server = Postgres(settings=_SAFE["postgres"]) if engine == "postgres" else Valkey(settings=_SAFE["redis"])
        try:
            server.start()
            server.hand_over(engine)
        except BaseException:
            server.close()
            raise
        return server.url


@contextlib.contextmanager
def private_database(engine: Engine, url: str, number: int) -> Iterator[str]:
    """The URL of a database for worker `number` alone: a new one in PostgreSQL, a numbered one in Redis."""
    parts = urlsplit(url)
    if engine == "redis":
        first = int(parts.path.strip("/") or 0)
        yield urlunsplit(parts._replace(path=f"/{first + number}"))
        return
    name = f"mainspring_{os.getpid()}_{number}"
    _execute(url, f'create database "{name}"')
    try:
        yield urlunsplit(parts._replace(path=f"/{name}"))
    finally:
        _execute(url, f'drop database "{name}" with (force)')


def _execute(url: str, statement: str) -> None:
    check_driver(url)
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())
