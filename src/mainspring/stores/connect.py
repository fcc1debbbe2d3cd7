"""Make a store from a URL. The door, the engine and its driver are imported here, on first use."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mainspring.common.redact import remember_url
from mainspring.errors import BadUrl, InMemoryStore, InvalidOption, MissingDriver

if TYPE_CHECKING:
    from mainspring.common.clock import Clock
    from mainspring.stores.base import Engine
    from mainspring.stores.door import Door

MEMORY = ":memory:"
SCHEMES = {
    "sqlite": "sqlite",
    "postgres": "postgres",
    "postgresql": "postgres",
    "redis": "redis",
    "rediss": "redis",
    "valkey": "redis",
    "unix": "redis",
}

DRIVERS = {"postgres": "psycopg", "redis": "hiredis"}
"""The packages that talk to the servers; each comes with the extra that has the name of the engine."""


def engine_of(url: str) -> str:
    """The engine of a URL: ``sqlite``, ``postgres`` or ``redis``."""
    scheme, colon, _ = url.partition(":")
    if colon and scheme in SCHEMES:
        return SCHEMES[scheme]
    raise BadUrl(url, "names no store that Mainspring knows")


class StoreAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is needed to open the same store again, in another process or on another event loop."""

    url: str
    namespace: str = "default"
    durability: str = "full"
    strict: bool = False
    """Refuse a store that cannot keep the promise of ``durability``, instead of a warning."""
    replicas: int = 0
    """Redis: the number of replicas that must have a write before it is confirmed."""
    wait_fsync: bool = False
    """Redis: a write is confirmed once it is on disk."""
    listen_url: str | None = None
    """PostgreSQL: the URL for LISTEN, if ``url`` is that of a connection pooler."""
    pooler: bool = False
    """PostgreSQL: ``url`` is that of a connection pooler, so no state is left in a session."""
    memory: str = ""
    """SQLite in memory: the name by which the stores of one app find the same database in this process. Without a name,
    each store has a database of its own."""

    def check(self) -> None:
        """Raise ``BadUrl`` for a URL that cannot be used, ``InvalidOption`` for an option that this engine does not
        have."""
        engine = engine_of(self.url)
        for url in (self.url, self.listen_url):
            if url is not None:
                check_url(url)
        for name, only in _ONLY.items():
            if (value := getattr(self, name)) and engine != only:
                hint = f"It is an option of {_NAMES[only]}. Remove it, or change the URL."
                raise InvalidOption(name, value, f"is not an option of {_NAMES[engine]}", hint=hint)

    @property
    def in_memory(self) -> bool:
        """Whether the store is a SQLite database in the memory of this process."""
        return engine_of(self.url) == "sqlite" and sqlite_path(self.url) == MEMORY

    def check_processes(self, what: str) -> None:
        """Raise ``InMemoryStore`` if the store is in memory; ``what`` is, or starts, another process."""
        if self.in_memory:
            raise InMemoryStore(f"{what} cannot use a store in memory (sqlite://): it exists in one process only")


def check_url(url: str) -> None:
    """Raise ``BadUrl`` for a URL that is wrong by its form alone. The driver checks the rest before it connects."""
    if engine_of(url) == "sqlite":
        sqlite_path(url)
        return
    scheme = url.partition(":")[0]
    if not url.startswith(f"{scheme}://"):
        raise BadUrl(url, f"does not begin with {scheme}://")
    check_login(url)
    check_repeated(url)


def check_repeated(url: str) -> None:
    """Raise ``BadUrl`` if the URL has a parameter twice: the driver would use the last one."""
    names = [each.partition("=")[0] for each in url.partition("?")[2].split("&")]
    twice = [name for name in names if name and names.count(name) > 1]
    if twice:
        raise BadUrl(url, f"has the parameter {twice[0]!r} twice", hint="Give it once.")


def check_login(url: str) -> None:
    """Raise ``BadUrl`` unless the user and the password in the URL are percent-encoded.

    The drivers read such a URL differently, and their errors show parts of the password.
    """
    rest = url.partition("://")[2]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    behind = rest[len(authority) :]
    login, at, server = authority.rpartition("@")
    if not re.search(_NOT_ENCODED, login) and (
        "@" not in behind or (re.fullmatch(_PATH_AND_QUERY, behind) and (at or re.fullmatch(_SERVERS, server)))
    ):
        return
    raise BadUrl(
        url,
        "the user or the password has a character that must be percent-encoded",
        hint="Write the password as urllib.parse.quote(password, safe='') returns it: %40 for @, %25 for %, %3F for ?.",
    )


_NOT_ENCODED = r"[\s\x00-\x1f@\[\]]|%(?![0-9A-Fa-f]{2})"
_PATH_AND_QUERY = r"(/[^?#@]*)?(\?[\w.-]+=[^&#]*(&[\w.-]+=[^&#]*)*)?"
_SERVERS = r"(\[[^\]]*\]|[^:,]*)(:\d*)?(,(\[[^\]]*\]|[^:,]*)(:\d*)?)*"
_ONLY = {"replicas": "redis", "wait_fsync": "redis", "listen_url": "postgres", "pooler": "postgres"}
_NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "redis": "Redis"}


def connect(
    url: str,
    *,
    namespace: str = "default",
    durability: str = "full",
    clock: Clock | None = None,
    deadline: float = 10.0,
) -> Door:
    """The store at ``url`` behind the door, not opened yet."""
    address = StoreAddress(url=url, namespace=namespace, durability=durability)
    return connect_to(address, clock=clock, deadline=deadline)


def connect_to(
    address: StoreAddress,
    *,
    clock: Clock | None = None,
    deadline: float = 10.0,
    enqueue_deadline: float | None = None,
) -> Door:
    """The store at an address behind the door, not opened yet."""
    from mainspring.stores.door import Door

    address.check()
    for url in (address.url, address.listen_url):
        if url is not None:
            remember_url(url)
    try:
        engine = _engine(address, clock)
    except ImportError as error:
        raise _missing_driver(address.url, error) from None
    return Door(engine, deadline=deadline, enqueue_deadline=enqueue_deadline)


def check_driver(url: str) -> None:
    """Raise ``MissingDriver`` if the driver of this store cannot be imported."""
    driver = DRIVERS.get(engine_of(url))
    if driver is not None:
        try:
            import_module(driver)
        except ImportError as error:
            raise _missing_driver(url, error) from None


def _missing_driver(url: str, error: ImportError) -> ImportError | MissingDriver:
    """The error to raise instead of an import error of the engine at this URL."""
    engine = engine_of(url)
    if engine not in DRIVERS or (error.name or "").startswith("mainspring"):
        return error
    driver, first_line = DRIVERS[engine], str(error).partition("\n")[0]
    missing = isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == driver
    return MissingDriver(url, driver, engine, "" if missing else f"cannot be imported: {first_line}")


def _engine(at: StoreAddress, clock: Clock | None) -> Engine:
    match engine_of(at.url):
        case "sqlite":
            from mainspring.stores.sqlite import SqliteStore

            return SqliteStore(
                sqlite_path(at.url), namespace=at.namespace, durability=at.durability, clock=clock, shared=at.memory
            )
        case "postgres":
            from mainspring.stores.postgres import PostgresStore

            return PostgresStore(
                at.url, namespace=at.namespace, durability=at.durability, clock=clock,
                strict=at.strict, listen_url=at.listen_url, pooler=at.pooler,
            )  # fmt: skip
        case _:
            from mainspring.stores.redis import RedisStore

            return RedisStore(
                at.url, namespace=at.namespace, durability=at.durability, clock=clock,
                strict=at.strict, replicas=at.replicas, wait_fsync=at.wait_fsync,
            )  # fmt: skip


def sqlite_path(url: str) -> str:
    """The file of a SQLite URL: ``sqlite:///rel.db``, ``sqlite:////abs.db``, or ``sqlite://`` for memory."""
    rest = url.removeprefix("sqlite:")
    if rest in ("//", "//:memory:", "///:memory:"):
        return MEMORY
    path, parameters = rest.removeprefix("///").partition("?")[::2]
    if not rest.startswith("///") or not path:
        raise BadUrl(
            url,
            "does not name a file",
            hint="Write sqlite:///relative.db or sqlite:////absolute/path.db (three or four slashes); "
            "sqlite:// is a store in memory.",
        )
    if (inside := path.lstrip("/").removeprefix("~/")) != path.lstrip("/"):
        why = "begins with ~, which a shell expands and a URL does not"
        raise BadUrl(url, why, hint=f"Write sqlite:///{Path.home() / inside}.")
    if "?" in rest:
        name = parameters.partition("=")[0] or "?"
        raise BadUrl(
            url,
            f"has the unknown parameter {name!r}: a SQLite URL has no parameters",
            hint=f"Write sqlite:///{path}. Settings of the app are in its code: Mainspring(url, durability=...).",
        )
    return path


def missing_file(url: str) -> str | None:
    """The file of a URL if it does not exist; opening the store would create it."""
    if engine_of(url) != "sqlite":
        return None
    path = sqlite_path(url)
    return None if path == MEMORY or Path(path).exists() else path
