"""The store on Redis or Valkey. Here is only which script answers which call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from mainspring.clock import Clock
from mainspring.errors import InvalidOption, StoreError, WrongConnection
from mainspring.outcomes import Ack, Outcome
from mainspring.query import Query
from mainspring.records import (
    Acted,
    AttemptRow,
    Beat,
    Beaten,
    Enqueued,
    Found,
    Promoted,
    Rescued,
    Turned,
    WorkerRow,
)
from mainspring.states import Action, State
from mainspring.stores.base import CRASH_DELAYS, Batch, Turn

from . import enqueue, fleet, keys, reads, rows, schema, turns
from .connection import Connection
from .errors import translate
from .unbuilt import Unbuilt, not_built

DURABILITIES = ("full", "strict")
_NAMESPACE = re.compile(r"[A-Za-z0-9_.:-]+")


class RedisStore(Unbuilt):
    """A store in one namespace of a Redis or Valkey server.

    ``durability``: with ``full`` writes are as durable as the server is set up to keep them, and
    :meth:`durability` tells; with ``strict`` a server that may lose a confirmed write is refused.
    """

    engine = "redis"

    def __init__(
        self, url: str, *, namespace: str = "default", durability: str = "full", clock: Clock | None = None
    ) -> None:
        if not _NAMESPACE.fullmatch(namespace):
            raise InvalidOption("namespace", namespace, "may have letters, digits and _ . : - only")
        if durability not in DURABILITIES:
            raise InvalidOption(
                "durability",
                durability,
                f"Redis knows {' and '.join(DURABILITIES)}",
                hint="How often writes reach the disk is set in the server, by appendfsync.",
            )
        self._tag = keys.tag(namespace)
        self._wanted = durability
        self._connection = Connection(url, keys.meta_key(namespace), clock)
        self.url = self._connection.url

    def translate(self, error: Exception) -> Exception | None:
        return translate(error, self.url)

    # ---- life ---------------------------------------------------------------------------------

    async def open(self) -> None:
        self._connection.reopen()
        await schema.check_server(self._connection)
        if self._wanted == "strict" and (kept := await schema.persistence(self._connection)) != "aof-always":
            raise StoreError(
                f"durability is strict and the server's persistence is {kept}",
                url=self.url,
                hint="Set appendonly yes and appendfsync always in the server, or use durability='full'.",
            )
        await schema.check_schema(self._connection, self._tag + "meta")

    async def close(self) -> None:
        await self._connection.close()

    async def migrate(self) -> tuple[int, int]:
        before, after = await self._connection.run("migrate", schema.SCHEMA)
        if after > schema.SCHEMA:
            raise schema.newer(self._connection, after)
        return before, after

    async def durability(self) -> str:
        return f"redis:{await schema.persistence(self._connection)}"

    # ---- jobs ---------------------------------------------------------------------------------

    async def enqueue(self, batch: Batch) -> list[Enqueued]:
        """``batch.retry`` asks for nothing more: one look at the ids of all places is as cheap as one at the live."""
        return enqueue.enqueued(batch, await self._connection.run("enqueue", *enqueue.arguments(batch)))

    def enqueue_now(self, batch: Batch, connection: Any = None) -> list[Enqueued]:
        if connection is not None:
            raise WrongConnection(
                "the Redis store cannot take part in a transaction of the caller",
                hint="Leave connection= out, or keep the jobs in the database that holds the transaction.",
            )
        return enqueue.enqueued(batch, self._connection.run_now("enqueue", *enqueue.arguments(batch)))

    async def turn(self, turn: Turn) -> Turned:
        acks, unstorable = turns.storable(turn.acks)
        return turns.turned(await self._connection.run("turn", *turns.turn_arguments(turn, acks)), unstorable)

    async def promote(self, limit: int = 1000) -> Promoted:
        now, promoted, expired, queues, soonest = await self._connection.run("promote", limit)
        return Promoted(now, promoted, expired, tuple(queue.decode() for queue in queues), soonest)

    async def rescue(self, worker: str, number: int, cause: Outcome, delays: Sequence[int] = CRASH_DELAYS) -> Rescued:
        return turns.rescued(
            await self._connection.run("rescue", *turns.rescue_arguments(worker, number, cause, delays))
        )

    async def find(self, query: Query, *, limit: int = 100, cursor: str | None = None) -> Found:
        return Found(()) if query.empty else await reads.find(self._connection, query, limit, cursor)

    async def count(self, query: Query) -> dict[State, int]:
        return await reads.count(self._connection, query, self._tag + "counts")

    async def attempts(self, job: bytes) -> list[AttemptRow]:
        return rows.attempt_rows(await self._connection.command("HGETALL", self._tag.encode() + b"attempts:" + job))

    async def act(
        self,
        action: Action,
        query: Query,
        *,
        limit: int = 1000,
        reason: str = "",
        priority: int = 0,  # noqa: ARG002 (belongs to an action that is not built yet)
    ) -> Acted:
        if query.empty:
            raise InvalidOption(
                "query", query, "is empty", subject=str(action), hint="Say which jobs, or Query.everything()."
            )
        if action is not Action.CANCEL:
            not_built(f"act({action})")
        return await reads.cancel(self._connection, query, limit, reason)

    # ---- fleet --------------------------------------------------------------------------------

    async def beat(self, beats: Sequence[Beat]) -> list[Beaten]:
        return fleet.beaten(beats, await self._connection.run("beat", *fleet.beat_arguments(beats)))

    async def retire(
        self, worker: str, cause: Outcome, acks: Sequence[Ack] = (), delays: Sequence[int] = CRASH_DELAYS
    ) -> Rescued:
        good, _ = turns.storable(acks)
        return turns.rescued(await self._connection.run("retire", *turns.retire_arguments(worker, cause, good, delays)))

    async def workers(self) -> list[WorkerRow]:
        return fleet.worker_rows(await self._connection.run("workers"))
