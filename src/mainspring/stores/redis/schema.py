"""What is asked of the server and of the namespace when the store is opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mainspring.errors import SchemaOutdated, StoreError, StoreNotDurable

from . import resp, survey
from .connection import Connection
from .errors import at_open

SCHEMA = 1


class Wanted:
    """What the caller asked of the server."""

    def __init__(self, durability: str, *, strict: bool, replicas: int, wait_fsync: bool) -> None:
        self.durability = durability
        self.strict = strict
        self.replicas = replicas
        self.wait_fsync = wait_fsync


async def check(connection: Connection, meta: str, wanted: Wanted) -> None:
    """Refuse a server that cannot keep the promises and a namespace that is newer than this code."""
    with _opening(connection):
        if _judge(connection, wanted, await connection.ask(_questions(meta, wanted))):
            _take(connection, await connection.run("migrate", SCHEMA))


def check_now(connection: Connection, meta: str, wanted: Wanted) -> None:
    """The same, blocking, for whoever enqueues without opening the store."""
    with _opening(connection):
        if _judge(connection, wanted, connection.ask_now(_questions(meta, wanted))):
            _take(connection, connection.run_now("migrate", SCHEMA))


async def durability(connection: Connection, wanted: Wanted) -> str:
    """The class in words: how the server keeps writes, and who else must have them."""
    info, *rest = await connection.ask(survey.QUESTIONS)
    more = f"+replicas={wanted.replicas}" if wanted.replicas else ""
    return f"redis:{survey.read(resp.check(info), *rest).kept}{more}{'+fsync' if wanted.wait_fsync else ''}"


def _questions(meta: str, wanted: Wanted) -> list[tuple[str | int, ...]]:
    probe: list[tuple[str | int, ...]] = [("WAITAOF", 0, 0, 1)] if wanted.wait_fsync else []
    return [*survey.QUESTIONS, ("HGET", meta, "schema"), *probe]


def _judge(connection: Connection, wanted: Wanted, replies: list[Any]) -> bool:
    """Refuse, warn, and say whether the namespace is to be made."""
    info, save, appendfsync, stored, *probe = replies
    url = connection.url
    facts = survey.read(resp.check(info), save, appendfsync)
    if (refused := survey.refusal(facts, url)) is not None:
        raise refused
    stored = resp.check(stored)
    if probe:
        _check_waitaof(probe[0], facts, url)
    weak = survey.weaknesses(facts, wanted.durability, wanted.replicas, wanted.wait_fsync)
    if weak and (wanted.strict or (wanted.wait_fsync and not facts.aof)):
        what, mending = weak[0]
        raise StoreNotDurable(what, url=url, hint=mending)
    survey.warn(url, weak + survey.cautions(facts, connection.address))
    if stored is not None and int(stored) > SCHEMA:
        raise newer(connection, int(stored))
    return stored is None


def _check_waitaof(reply: Any, facts: survey.Facts, url: str) -> None:
    if not isinstance(reply, resp.ServerError):
        return
    if reply.code == "NOPERM":
        raise reply
    raise StoreError(
        f"wait_fsync needs WAITAOF, which Redis {facts.version} has not",
        url=url,
        hint="Use Redis 7.2 or later, or Valkey; or leave wait_fsync out and set appendfsync always.",
    )


def _take(connection: Connection, versions: list[int]) -> None:
    """An empty namespace became ours, unless somebody newer was faster."""
    if versions[1] > SCHEMA:
        raise newer(connection, versions[1])


@contextmanager
def _opening(connection: Connection) -> Iterator[None]:
    try:
        yield
    except resp.ServerError as error:
        raise at_open(error, connection.url) from error


def newer(connection: Connection, stored: int) -> SchemaOutdated:
    return SchemaOutdated(
        f"the namespace has schema {stored}, this version of Mainspring knows up to {SCHEMA}",
        url=connection.url,
        hint="Upgrade Mainspring here; newer workers are already at work on this store.",
    )
