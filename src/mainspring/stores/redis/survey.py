"""What the server tells of itself when the store is opened, and what is refused or warned of."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from mainspring.errors import StoreError, StoreReadOnly

from .address import Address
from .resp import ServerError

OLDEST = (6, 2)
QUESTIONS: tuple[tuple[str, ...], ...] = (("INFO",), ("CONFIG", "GET", "save"), ("CONFIG", "GET", "appendfsync"))

_AOF = "Without it jobs are lost when the server dies: set appendonly yes."

log = logging.getLogger("mainspring.store")
_said: set[tuple[str, str]] = set()


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Read from INFO, and from CONFIG where that is allowed; None for what nobody tells."""

    version: str
    """That of Redis; Valkey says here which it is compatible with."""
    cluster: bool = False
    replica: bool = False
    replicas: int = 0
    maxmemory: int = 0
    policy: str = "noeviction"
    aof: bool = False
    appendfsync: str | None = None
    saves: bool | None = None
    """Whether snapshots are made by themselves."""

    @property
    def kept(self) -> str:
        """``aof-`` with appendfsync, ``aof``, ``rdb``, ``none``, or ``unknown``: no AOF, and nobody tells of RDB."""
        if self.aof:
            return f"aof-{self.appendfsync}" if self.appendfsync else "aof"
        return {True: "rdb", False: "none", None: "unknown"}[self.saves]


def read(info: bytes, save: Any, appendfsync: Any) -> Facts:
    """From the replies to :data:`QUESTIONS`; the last two may be errors."""
    lines = (line.partition(":") for line in info.decode("utf-8", "replace").splitlines() if ":" in line)
    told = {name: value for name, _, value in lines}
    saves = _setting(save)
    return Facts(
        version=told.get("redis_version", "0"),
        cluster=told.get("cluster_enabled") == "1",
        replica=told.get("role") == "slave",
        replicas=int(told.get("connected_slaves", 0)),
        maxmemory=int(told.get("maxmemory", 0)),
        policy=told.get("maxmemory_policy", "noeviction"),
        aof=told.get("aof_enabled") == "1",
        appendfsync=_setting(appendfsync),
        saves=None if saves is None else bool(saves),
    )


def refusal(facts: Facts, url: str) -> StoreError | None:
    """Why a server cannot be used at all."""
    if tuple(int(part) for part in facts.version.split(".")[:2]) < OLDEST:
        return StoreError(f"Redis {facts.version} is too old", url=url, hint="Use Redis 6.2 or later, or Valkey.")
    if facts.cluster:
        return StoreError(
            "the server is a node of a cluster",
            url=url,
            hint="A namespace lives on one node anyway: use a server that is no cluster, with replicas if you like.",
        )
    if facts.replica:
        return StoreReadOnly("the server is a read-only replica", url=url, hint="Use the address of the primary.")
    if facts.maxmemory and facts.policy != "noeviction":
        return StoreError(
            f"the server's maxmemory-policy is {facts.policy}: it would throw jobs away without a word",
            url=url,
            hint="Set maxmemory-policy noeviction, or use a server of its own for jobs.",
        )
    return None


def weaknesses(facts: Facts, durability: str, replicas: int, wait_fsync: bool) -> list[tuple[str, str]]:
    """How the server falls short of what was asked for, each with its mending."""
    found: list[tuple[str, str]] = []
    if wait_fsync and not facts.aof:
        found.append(("wait_fsync is set and the server keeps no append-only file", _AOF))
    if durability == "full" and not facts.aof:
        found.append((f"durability is full and the server keeps no append-only file ({facts.kept})", _AOF))
    if durability == "normal" and facts.kept == "none":
        found.append(
            ("the server keeps nothing on disk", "Set appendonly yes or save 60 1: else it forgets every job.")
        )
    if durability == "normal" and facts.kept == "unknown":
        found.append(("the server may keep nothing on disk", "Allow CONFIG GET to see it, or set appendonly yes."))
    if facts.replicas < replicas:
        short = f"{replicas} replicas must have each write, and the server has {facts.replicas}"
        found.append((short, "Attach replicas, or lower replicas=."))
    return found


def cautions(facts: Facts, address: Address) -> list[tuple[str, str]]:
    """What is worth a word whatever durability was asked for."""
    found: list[tuple[str, str]] = []
    if facts.policy != "noeviction":
        found.append(
            (
                f"the server's maxmemory-policy is {facts.policy}: with a maxmemory it would throw jobs away",
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


def warn(url: str, found: list[tuple[str, str]]) -> None:
    """Say each thing once in a process: several stores are opened there."""
    for what, mending in found:
        if (url, what) not in _said:
            _said.add((url, what))
            log.warning("%s: %s. %s", url, what, mending)


def _setting(reply: Any) -> str | None:
    """Hosted servers and careful administrators keep CONFIG to themselves: then the reply is an error."""
    return None if isinstance(reply, ServerError) or not reply else str(reply[1].decode())
