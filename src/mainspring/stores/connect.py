"""From a URL to a store. Engines and their drivers are imported here, on first use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mainspring.errors import BadUrl
from mainspring.stores.door import Door

if TYPE_CHECKING:
    from mainspring.clock import Clock
    from mainspring.stores.base import Engine

SCHEMES = {
    "sqlite": "sqlite",
    "postgres": "postgres",
    "postgresql": "postgres",
    "redis": "redis",
    "rediss": "redis",
    "valkey": "redis",
    "unix": "redis",
}


def engine_of(url: str) -> str:
    """Which engine a URL names: ``sqlite``, ``postgres`` or ``redis``."""
    scheme, colon, _ = url.partition(":")
    if colon and scheme in SCHEMES:
        return SCHEMES[scheme]
    raise BadUrl(url, "names no store that is known here")


def connect(
    url: str,
    *,
    namespace: str = "default",
    durability: str = "full",
    clock: Clock | None = None,
    deadline: float = 10.0,
) -> Door:
    """The store at ``url``, not yet opened, behind the door."""
    return Door(_engine(url, namespace, durability, clock), deadline=deadline)


def _engine(url: str, namespace: str, durability: str, clock: Clock | None) -> Engine:
    match engine_of(url):
        case "sqlite":
            from mainspring.stores.sqlite import SqliteStore

            return SqliteStore(sqlite_path(url), namespace=namespace, durability=durability, clock=clock)
        case "postgres":
            from mainspring.stores.postgres import PostgresStore

            return PostgresStore(url, namespace=namespace, durability=durability, clock=clock)
        case _:
            from mainspring.stores.redis import RedisStore

            return RedisStore(url, namespace=namespace, durability=durability, clock=clock)


def sqlite_path(url: str) -> str:
    """The file a SQLite URL names: ``sqlite:///rel.db``, ``sqlite:////abs.db``, ``sqlite://`` in memory."""
    rest = url.removeprefix("sqlite:")
    if rest in ("//", "", "//:memory:", "///:memory:"):
        return ":memory:"
    if not rest.startswith("///"):
        raise BadUrl(
            url,
            "does not name a file",
            hint="Write sqlite:///relative.db or sqlite:////absolute/path.db (three or four slashes).",
        )
    return rest[3:]


def missing_file(url: str) -> str | None:
    """The file that a URL names, if it is not there; opening the store would make it."""
    if engine_of(url) != "sqlite":
        return None
    path = sqlite_path(url)
    return None if path == ":memory:" or Path(path).exists() else path
