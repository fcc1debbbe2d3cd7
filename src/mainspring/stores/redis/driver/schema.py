"""The checks when a store is opened: the server, its durability, and the schema version of the namespace."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from mainspring.errors import SchemaOutdated, StoreError, StoreNotDurable, StoreReadOnly

from .address import RedisAddress
from .client import RedisClient
from .errors import at_open
from .resp import ServerError, check

SCHEMA = 1
OLDEST = (6, 2)
"""The oldest version of Redis that works."""
QUESTIONS: tuple[tuple[str, ...], ...] = (("INFO",), ("CONFIG", "GET", "save"), ("CONFIG", "GET", "appendfsync"))

_AOF = "Without it jobs are lost when the server crashes: set appendonly yes."

log = logging.getLogger("mainspring.store")
_warned: set[tuple[str, str]] = set()

# ---- open ---------------------------------------------------------------------------------------


class RequestedDurability(msgspec.Struct, frozen=True):
    """What the caller asked of the server: see :class:`mainspring.stores.redis.RedisStore`."""

    durability: str
    strict: bool
    replicas: int
    wait_fsync: bool


async def check_server(client: RedisClient, requested: RequestedDurability) -> None:
    """Refuse a server that cannot keep the promises and a namespace that is newer than this code."""
    with _errors_at_open(client):
        if _judge(client, requested, await client.ask(_questions(client, requested))):
            _check_version(client, await client.run("migrate", SCHEMA))


def check_server_now(client: RedisClient, requested: RequestedDurability) -> None:
    """The same check, blocking, for a caller that enqueues without opening the store."""
    with _errors_at_open(client):
        if _judge(client, requested, client.ask_now(_questions(client, requested))):
            _check_version(client, client.run_now("migrate", SCHEMA))


async def migrate(client: RedisClient) -> tuple[int, int]:
    """Bring the namespace to the version of this code. Returns the versions before and after."""
    before, after = await client.run("migrate", SCHEMA)
    _check_version(client, [before, after])
    return before, after


async def durability(client: RedisClient, requested: RequestedDurability) -> str:
    """The durability class: how the server keeps writes, and which replicas or disk must have them."""
    info, *rest = await client.ask(QUESTIONS)
    more = f"+replicas={requested.replicas}" if requested.replicas else ""
    kept = read_facts(check(info), *rest).kept
    return f"redis:{kept}{more}{'+fsync' if requested.wait_fsync else ''}"


def _questions(client: RedisClient, requested: RequestedDurability) -> list[tuple[str | int, ...]]:
    probe: list[tuple[str | int, ...]] = [("WAITAOF", 0, 0, 1)] if requested.wait_fsync else []
    return [*QUESTIONS, ("HGET", client.key("meta"), "schema"), *probe]


def _judge(client: RedisClient, requested: RequestedDurability, replies: list[Any]) -> bool:
    """Refuse or warn. Returns whether the namespace is empty and has to be made."""
    info, save, appendfsync, stored, *probe = replies
    url = client.url
    facts = read_facts(check(info), save, appendfsync)
    if (refused := refusal(facts, url)) is not None:
        raise refused
    stored = check(stored)
    if probe:
        _check_waitaof(probe[0], facts, url)
    weak = weaknesses(facts, requested)
    if weak and (requested.strict or (requested.wait_fsync and not facts.aof)):
        what, remedy = weak[0]
        raise StoreNotDurable(what, url=url, hint=remedy)
    _warn(url, weak + cautions(facts, client.address))
    if stored is not None:
        _check_version(client, [int(stored), int(stored)])
    return stored is None


def _check_waitaof(reply: Any, facts: ServerFacts, url: str) -> None:
    if not isinstance(reply, ServerError):
        return
    if reply.code == "NOPERM":
        raise reply
    raise StoreError(
        f"wait_fsync needs the command WAITAOF, which Redis {facts.version} does not have",
        url=url,
        hint="Use Redis 7.2 or later, or Valkey; or leave wait_fsync out and set appendfsync always.",
    )


def _check_version(client: RedisClient, versions: list[int]) -> None:
    """Refuse a namespace that a newer version of Mainspring has made or migrated."""
    if versions[1] > SCHEMA:
        raise SchemaOutdated(
            f"the namespace has schema {versions[1]}, this version of Mainspring knows up to {SCHEMA}",
            url=client.url,
            hint="Upgrade Mainspring here; newer workers already use this store.",
        )


@contextmanager
def _errors_at_open(client: RedisClient) -> Iterator[None]:
    try:
        yield
    except ServerError as error:
        raise at_open(error, client.url) from error


# ---- what the server says about itself ----------------------------------------------------------


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts from INFO, and from CONFIG where the server allows it. None: the server does not tell."""

    version: str
    """The version of Redis. Valkey gives the version that it is compatible with."""
    cluster: bool = False
    replica: bool = False
    replicas: int = 0
    maxmemory: int = 0
    policy: str = "noeviction"
    aof: bool = False
    appendfsync: str | None = None
    saves: bool | None = None
    """Whether the server makes snapshots by itself."""

    @property
    def kept(self) -> str:
        """``aof-`` and appendfsync, ``aof``, ``rdb``, ``none``, or ``unknown``: no AOF, and CONFIG is not allowed."""
        if self.aof:
            return f"aof-{self.appendfsync}" if self.appendfsync else "aof"
        return {True: "rdb", False: "none", None: "unknown"}[self.saves]


def read_facts(info: bytes, save: Any, appendfsync: Any) -> ServerFacts:
    """From the replies to :data:`QUESTIONS`. The last two may be errors."""
    lines = (line.partition(":") for line in info.decode("utf-8", "replace").splitlines() if ":" in line)
    values = {name: value for name, _, value in lines}
    saves = _setting(save)
    return ServerFacts(
        version=values.get("redis_version", "0"),
        cluster=values.get("cluster_enabled") == "1",
        replica=values.get("role") == "slave",
        replicas=int(values.get("connected_slaves", 0)),
        maxmemory=int(values.get("maxmemory", 0)),
        policy=values.get("maxmemory_policy", "noeviction"),
        aof=values.get("aof_enabled") == "1",
        appendfsync=_setting(appendfsync),
        saves=None if saves is None else bool(saves),
    )


def refusal(facts: ServerFacts, url: str) -> StoreError | None:
    """The error for a server that cannot be used at all."""
    if tuple(int(part) for part in facts.version.split(".")[:2]) < OLDEST:
        return StoreError(f"Redis {facts.version} is too old", url=url, hint="Use Redis 6.2 or later, or Valkey.")
    if facts.cluster:
        return StoreError(
            "the server is a node of a cluster",
            url=url,
            hint="All keys of a namespace are on one node: use a server without cluster mode, with replicas if needed.",
        )
    if facts.replica:
        return StoreReadOnly("the server is a read-only replica", url=url, hint="Use the address of the primary.")
    if facts.maxmemory and facts.policy != "noeviction":
        return StoreError(
            f"the server's maxmemory-policy is {facts.policy}: it would delete jobs without an error",
            url=url,
            hint="Set maxmemory-policy noeviction, or use a separate server for jobs.",
        )
    return None


def weaknesses(facts: ServerFacts, requested: RequestedDurability) -> list[tuple[str, str]]:
    """How the server falls short of the requested durability: pairs of a problem and its remedy."""
    found: list[tuple[str, str]] = []
    if requested.wait_fsync and not facts.aof:
        found.append(("wait_fsync is set and the server keeps no append-only file", _AOF))
    if requested.durability == "full" and not facts.aof:
        found.append((f"durability is full and the server keeps no append-only file ({facts.kept})", _AOF))
    if requested.durability == "normal" and facts.kept == "none":
        found.append(
            ("the server keeps nothing on disk", "Set appendonly yes or save 60 1: else a restart loses every job.")
        )
    if requested.durability == "normal" and facts.kept == "unknown":
        found.append(("the server may keep nothing on disk", "Allow CONFIG GET to see it, or set appendonly yes."))
    if facts.replicas < requested.replicas:
        short = f"{requested.replicas} replicas must have each write, and the server has {facts.replicas}"
        found.append((short, "Attach replicas, or lower replicas=."))
    return found


def cautions(facts: ServerFacts, address: RedisAddress) -> list[tuple[str, str]]:
    """Problems to warn of whatever durability was requested: pairs of a problem and its remedy."""
    found: list[tuple[str, str]] = []
    if facts.policy != "noeviction":
        found.append(
            (
                f"the server's maxmemory-policy is {facts.policy}: with a maxmemory it would delete jobs",
                "Set maxmemory-policy noeviction.",
            )
        )
    if not address.is_local and not address.password:
        found.append(
            (
                "the server lets everybody on the network in without a password",
                "Set requirepass or an ACL in the server, and write user and password into the URL.",
            )
        )
    return found


def _warn(url: str, found: list[tuple[str, str]]) -> None:
    """Log each warning once in a process, however many stores are opened there."""
    for what, remedy in found:
        if (url, what) not in _warned:
            _warned.add((url, what))
            log.warning("%s: %s. %s", url, what, remedy)


def _setting(reply: Any) -> str | None:
    """The value of a CONFIG GET. Hosted servers often forbid CONFIG: then the reply is an error."""
    return None if isinstance(reply, ServerError) or not reply else str(reply[1].decode())
