"""The store on Redis or Valkey. Here is only which script answers which call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from mainspring.breakers.records import BreakerRow
from mainspring.common.clock import Clock
from mainspring.errors import InvalidOption, WrongConnection
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import (
    ActResult,
    AttemptReport,
    AttemptRow,
    Batch,
    Enqueued,
    JobRows,
    LogLine,
    PromoteResult,
    Retention,
    TallyRow,
)
from mainspring.limits.records import Bucket, BucketRow, HolderRow, HoldResult, Limit, LimitRow
from mainspring.queues.records import DisabledMode, QueueMode, QueueRow, QueueSettings
from mainspring.states import Action, State
from mainspring.stores.base import CRASH_DELAYS, TallyBy
from mainspring.stores.records import Document, MigrationPlan
from mainspring.worker.records import Beat, BeatResult, RescueResult, Turn, TurnResult, WorkerRow

from . import acl, act, fleet, keys, listen, queues, reads, rooms, rows, schema, turns
from . import reports as side
from .confirm import Confirm
from .connection import Connection
from .errors import translate
from .joint import Enqueuer
from .schedules import Schedules

DURABILITIES = ("full", "normal")
_NAMESPACE = re.compile(r"[A-Za-z0-9_.:-]+")


class RedisStore(Schedules):
    """A store in one namespace of a Redis or Valkey server.

    ``durability`` is what the server should keep by its own settings: ``full`` an append-only file,
    ``normal`` that or snapshots. One that keeps less is warned of, or refused if ``strict``.
    ``replicas`` and ``wait_fsync``: a caller's write counts once so many replicas, or the disk, have it.
    """

    engine = "redis"

    def __init__(
        self,
        url: str,
        *,
        namespace: str = "default",
        durability: str = "full",
        clock: Clock | None = None,
        strict: bool = False,
        replicas: int = 0,
        wait_fsync: bool = False,
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
        self._namespace = namespace
        self._tag = keys.tag(namespace)
        self._wanted = schema.Wanted(durability, strict=strict, replicas=replicas, wait_fsync=wait_fsync)
        meta = keys.meta_key(namespace)
        self._connection = Connection(url, meta, clock, Confirm(meta, replicas, wait_fsync))
        self._enqueuer = Enqueuer(self._connection)
        self._is_checked = False
        self.url = self._connection.url

    def translate(self, error: Exception) -> Exception | None:
        return translate(error, self.url)

    # ---- life ---------------------------------------------------------------------------------

    async def open(self) -> None:
        self._connection.reopen()
        try:
            await schema.check(self._connection, self._tag + "meta", self._wanted)
        except BaseException:
            if not self._is_checked:  # it was not open before: whoever hears this need not close it
                await self._connection.close()
                self._connection.reopen()
            raise
        self._is_checked = True

    async def close(self) -> None:
        self._is_checked = False
        await self._connection.close()

    async def migrate(self) -> tuple[int, int]:
        before, after = await self._connection.run("migrate", schema.SCHEMA)
        if after > schema.SCHEMA:
            raise schema.newer(self._connection, after)
        return before, after

    async def migration_plan(self) -> MigrationPlan:
        stored = await self._connection.command("HGET", self._tag + "meta", "schema")
        return MigrationPlan(
            before=int(stored or 0),
            after=schema.SCHEMA,
            access=acl.line(self._namespace, wait_fsync=self._wanted.wait_fsync),
        )

    async def durability(self) -> str:
        return await schema.durability(self._connection, self._wanted)

    # ---- jobs ---------------------------------------------------------------------------------

    async def enqueue(self, batch: Batch) -> list[Enqueued]:
        return await self._enqueuer.enqueue(batch)

    def enqueue_now(self, batch: Batch, connection: Any = None) -> list[Enqueued]:
        if connection is not None:
            raise WrongConnection(
                "the Redis store cannot take part in a transaction of the caller",
                hint="Leave connection= out, or keep the jobs in the database that holds the transaction.",
            )
        if not self._is_checked:  # whoever only enqueues does not open it
            schema.check_now(self._connection, self._tag + "meta", self._wanted)
            self._is_checked = True
        return self._enqueuer.enqueue_now(batch)

    async def turn(self, turn: Turn) -> TurnResult:
        acks, unstorable = turns.storable(turn.acks)
        return turns.turned(turn, await self._connection.run("turn", *turns.turn_arguments(turn, acks)), unstorable)

    async def promote(self, limit: int = 1000) -> PromoteResult:
        now, promoted, queues, soonest, ended = await self._connection.run("promote", limit)
        names = tuple(sorted(queue.decode() for queue in queues))
        return PromoteResult(now, promoted, len(ended), names, soonest, tuple(ended))

    async def rescue(
        self, worker: str, number: int, cause: Outcome, delays: Sequence[int] = CRASH_DELAYS
    ) -> RescueResult:
        return turns.rescued(
            await self._connection.run("rescue", *turns.rescue_arguments(worker, number, cause, delays))
        )

    async def report(self, worker: str, reports: Sequence[AttemptReport]) -> list[bool]:
        said = await self._connection.run("report", *side.report_arguments(worker, reports))
        return [stored == 1 for stored in said]

    async def find(self, query: Query, *, limit: int = 100, cursor: str | None = None) -> JobRows:
        return await reads.find(self._connection, query, limit, cursor)

    async def count(self, query: Query) -> dict[State, int]:
        return await reads.count(self._connection, query, self._tag + "counts")

    async def tally(self, query: Query, by: TallyBy) -> list[TallyRow]:
        return await reads.tally(self._connection, query, by, self._tag + "counts")

    async def attempts(self, job: bytes) -> list[AttemptRow]:
        entries = await self._connection.command("LRANGE", self._beside("attempts", job), 0, -1)
        return [rows.attempt_row(entry) for entry in entries]

    async def logs(self, job: bytes, after: int = 0) -> list[LogLine]:
        return side.log_lines(await self._connection.command("LRANGE", self._beside("logs", job), 0, -1), after)

    async def items(self, job: bytes, after: int = 0, limit: int = 1000) -> list[tuple[int, bytes]]:
        key, above = self._beside("items", job), f"({after}"
        words = ("ZRANGEBYSCORE", key, above, "+inf", "LIMIT", 0, max(limit, 0))
        return side.items(await self._connection.command(*words))

    def _beside(self, kind: str, job: bytes) -> bytes:
        return f"{self._tag}{kind}:".encode() + job

    async def act(
        self,
        action: Action,
        query: Query,
        *,
        limit: int = 1000,
        reason: str = "",
        priority: int = 0,
        cursor: str | None = None,
    ) -> ActResult:
        return await act.act(
            self._connection, action, query, limit=limit, reason=reason, priority=priority, cursor=cursor
        )

    async def prune(self, retention: Retention, limit: int = 1000) -> int:
        return await act.prune(self._connection, retention, limit)

    # ---- fleet --------------------------------------------------------------------------------

    async def beat(self, beats: Sequence[Beat]) -> list[BeatResult]:
        return fleet.beaten(beats, await self._connection.run("beat", *fleet.beat_arguments(beats)))

    async def retire(
        self, worker: str, cause: Outcome, acks: Sequence[Ack] = (), delays: Sequence[int] = CRASH_DELAYS
    ) -> RescueResult:
        good, _ = turns.storable(acks)
        return turns.rescued(await self._connection.run("retire", *turns.retire_arguments(worker, cause, good, delays)))

    async def workers(self) -> list[WorkerRow]:
        return fleet.worker_rows(await self._connection.run("workers"))

    async def notify(self, queues: Sequence[str]) -> None:
        await listen.notify(self._connection, queues)

    async def listen(self, worker: str, queues: Sequence[str]) -> listen.RedisListener:
        return await listen.listen(self._connection, self._tag, worker, queues)

    # ---- queues -------------------------------------------------------------------------------

    async def set_queue_mode(self, names: Sequence[str], mode: QueueMode) -> None:
        await self._connection.run("set_mode", mode.value, *names)

    async def queues(self) -> list[QueueRow]:
        return queues.queue_rows(await self._connection.command("HGETALL", self._tag + "modes"))

    async def configure_queue(self, queue: str, settings: QueueSettings | None, *, declared: bool = False) -> None:
        await queues.configure(self._connection, queue, settings, "declared" if declared else "given")

    async def disable_queues(self, names: Sequence[str], how: DisabledMode | None, by: str = "") -> None:
        await self._connection.run("disable", "" if how is None else how.value, by, *names)

    # ---- limits -------------------------------------------------------------------------------

    async def declare_limits(self, limits: Sequence[Limit]) -> None:
        await rooms.declare(self._connection, limits)

    async def set_limit_size(self, limit: str, size: int | None) -> bool:
        return await rooms.change(self._connection, "set_size", limit, "" if size is None else size)

    async def limits(self) -> list[LimitRow]:
        return rooms.limit_rows(await self._connection.command("HGETALL", self._tag + "limits"))

    async def forget_limit(self, limit: str) -> bool:
        return await rooms.change(self._connection, "forget_limit", limit)

    async def buckets(self, buckets: Sequence[Bucket]) -> list[BucketRow]:
        return rooms.bucket_rows(await self._connection.run("buckets", rooms.asked(buckets)))

    async def hold(
        self, holder: bytes, buckets: Sequence[Bucket], ttl: int, limits: Sequence[Limit] = (), keep: int = 0, *,
        info: bytes = b"", fenced: bool = False,
    ) -> HoldResult:  # fmt: skip
        words = rooms.packed_buckets(buckets), rooms.packed(limits), keep, info, int(fenced)
        return rooms.taken(await self._connection.run("take", holder, ttl, *words))

    async def release(self, holder: bytes, spent: Sequence[tuple[str, int]] = (), slow: int = 0) -> bool:
        return bool(await self._connection.run("give", holder, rooms.packed_costs(spent), slow))

    async def holders(self, of: Bucket | str, limit: int = 1000) -> list[HolderRow]:
        words = (of.name, "") if isinstance(of, Bucket) else ("", of)
        return rooms.guest_rows(await self._connection.run("guests", *words), limit)

    # ---- breakers -----------------------------------------------------------------------------

    async def trip_breaker(self, breaker: str, span: int | None) -> bool:
        return bool(await self._connection.run("trip", breaker, "" if span is None else span))

    async def reset_breaker(self, breaker: str) -> bool:
        return await self.trip_breaker(breaker, 0)

    async def report_breaker(self, breaker: str, started: int, good: int = 0, fault: str = "") -> BreakerRow | None:
        said = await self._connection.run("tell", breaker, started, good, fault)
        return rooms.breaker_row(said[-1]) if said else None

    # ---- small documents ----------------------------------------------------------------------

    async def put_document(self, doc: Document) -> Document:
        version, data = await self._connection.run("put", doc.kind, doc.name, doc.version, doc.data)
        return Document(doc.kind, doc.name, int(version), data)

    async def documents(self, kind: str) -> list[Document]:
        return side.documents(kind, await self._connection.command("HGETALL", f"{self._tag}docs:{kind}"))
