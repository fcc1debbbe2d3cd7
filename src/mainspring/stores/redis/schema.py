"""What is asked of the server and of the namespace when the store is opened."""

from __future__ import annotations

from redis.exceptions import NoPermissionError, ResponseError

from mainspring.errors import SchemaOutdated, StoreError

from .connection import Connection

SCHEMA = 1
OLDEST = (6, 2)


async def check_server(connection: Connection) -> None:
    """Refuse a server that is too old or that may throw jobs away."""
    server = await connection.command("INFO", "server")
    version = str(server["redis_version"])  # Valkey says here which Redis it is compatible with
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise StoreError(f"Redis {version} is too old", url=connection.url, hint="Use Redis 6.2 or later, or Valkey.")
    policy = (await connection.command("INFO", "memory"))["maxmemory_policy"]
    if policy != "noeviction":
        raise StoreError(
            f"the server's maxmemory-policy is {policy}: it would throw jobs away without a word",
            url=connection.url,
            hint="Set maxmemory-policy noeviction, or use a server of its own for jobs.",
        )


async def check_schema(connection: Connection, meta: str) -> None:
    """An empty namespace becomes ours; a newer one is refused."""
    stored = await connection.command("HGET", meta, "schema")
    if stored is None:
        stored = (await connection.run("migrate", SCHEMA))[1]
    if int(stored) > SCHEMA:
        raise newer(connection, int(stored))


def newer(connection: Connection, stored: int) -> SchemaOutdated:
    return SchemaOutdated(
        f"the namespace has schema {stored}, this version of Mainspring knows up to {SCHEMA}",
        url=connection.url,
        hint="Upgrade Mainspring here; newer workers are already at work on this store.",
    )


async def persistence(connection: Connection) -> str:
    """How the server keeps writes: ``aof-always``, ``aof-everysec``, ``aof-no``, ``aof``, ``rdb`` or ``none``."""
    state = await connection.command("INFO", "persistence")
    try:
        settings = {name: await _setting(connection, name) for name in ("appendfsync", "save")}
    except (NoPermissionError, ResponseError):  # hosted servers keep CONFIG to themselves
        settings = {}
    if int(state.get("aof_enabled", 0)):
        return f"aof-{settings['appendfsync']}" if "appendfsync" in settings else "aof"
    if settings:
        return "rdb" if settings["save"] else "none"
    return "rdb" if int(state.get("rdb_saves", 0)) else "none"


async def _setting(connection: Connection, name: str) -> str:
    _, value = await connection.command("CONFIG", "GET", name)
    return str(value.decode())
