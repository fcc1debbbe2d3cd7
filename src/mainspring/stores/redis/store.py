"""The store on Redis or Valkey: one line for each method of the contract."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from mainspring.breakers.records import BreakerSwap, StoredBreaker
from mainspring.common.clock import Clock
from mainspring.errors import InvalidOption, WrongConnection
from mainspring.jobs.outcomes import CRASH_DELAYS, Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import (
    ActResult,
    AttemptReport,
    AttemptRow,
    Edge,
    Enqueued,
    FlowRetry,
    JobBatch,
    JobRows,
    JoinRow,
    LogLine,
    PromoteResult,
    Retention,
    TallyRow,
)
from mainspring.limits.records import Bucket, BucketRow, HolderRow, HoldResult, Limit, LimitRow
from mainspring.queues.records import DisabledMode, QueueMode, QueueRow, QueueSettings
from mainspring.schedules.records import (
    DueSchedules,
    ScheduleRow,
    ScheduleRun,
    ScheduleSwap,
    SwapResult,
)
from mainspring.states import Action, State
from mainspring.stores.base import TallyBy
from mainspring.stores.records import Document, MigrationPlan
from mainspring.worker.records import Beat, BeatResult, LeadResult, RescueResult, Turn, TurnResult, WorkerRow

from . import breakers, documents, fleet, flows, holders, schedules
from . import limits as limit_calls
from . import queues as queue_calls
from . import turn as turn_calls
from .driver import acl, listen, schema
from .driver.client import RedisClient
from .driver.errors import translate
from .driver.schema import RequestedDurability
from .jobs import actions, promote, prune
from .jobs import query as query_calls
from .jobs import reports as report_calls
from .jobs.enqueue import JointEnqueue

DURABILITIES = ("full", "normal")
_NAMESPACE = re.compile(r"[A-Za-z0-9_.:-]+")


class RedisStore:
    """A store in one namespace of a Redis or Valkey server.

    ``durability`` is what the server should do by its own settings: ``full``: keep an append-only file; ``normal``:
    keep an append-only file or snapshots. A server that does less causes a warning, or an error if ``strict``. With
    ``replicas`` or ``wait_fsync`` a write counts when this many replicas, or the disk, have it.
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
        self._requested = RequestedDurability(durability, strict, replicas, wait_fsync)
        self._client = RedisClient(url, namespace, clock, replicas=replicas, wait_fsync=wait_fsync)
        self._joint_enqueue = JointEnqueue(self._client)
        self._is_checked = False
        self.url = self._client.url

    def translate(self, error: Exception) -> Exception | None:
        return translate(error, self.url)

    # ---- life ---------------------------------------------------------------------------------

    async def open(self) -> None:
        self._client.reopen()
        try:
            await schema.check_server(self._client, self._requested)
        except BaseException:
            if not self._is_checked:  # it was not open before: a caller that gets the error need not close it
                await self._client.close()
                self._client.reopen()
            raise
        self._is_checked = True

    async def close(self) -> None:
        self._is_checked = False
        await self._client.close()

    async def migrate(self) -> tuple[int, int]:
        return await schema.migrate(self._client)

    async def migration_plan(self) -> MigrationPlan:
        stored = await self._client.command("HGET", self._client.key("meta"), "schema")
        return MigrationPlan(
            before=int(stored or 0),
            after=schema.SCHEMA,
            access=acl.line(self._namespace, wait_fsync=self._requested.wait_fsync),
        )

    async def durability(self) -> str:
        return await schema.durability(self._client, self._requested)

    async def now(self) -> int:
        return await self._client.now()

    # ---- jobs ---------------------------------------------------------------------------------

    async def enqueue(self, batch: JobBatch) -> list[Enqueued]:
        return await self._joint_enqueue.enqueue(batch)

    def enqueue_now(self, batch: JobBatch, connection: Any = None) -> list[Enqueued]:
        if connection is not None:
            raise WrongConnection(
                "the Redis store cannot take part in a transaction of the caller",
                hint="Leave connection= out, or keep the jobs in the database that holds the transaction.",
            )
        if not self._is_checked:  # a program that only enqueues does not open the store
            schema.check_server_now(self._client, self._requested)
            self._is_checked = True
        return self._joint_enqueue.enqueue_now(batch)

    async def turn(self, turn: Turn) -> TurnResult:
        return await turn_calls.turn(self._client, turn)

    async def promote(self, limit: int = 1000) -> PromoteResult:
        return await promote.promote(self._client, limit)

    async def rescue(
        self, worker: str, number: int, cause: Outcome, delays: Sequence[int] = CRASH_DELAYS
    ) -> RescueResult:
        return await fleet.rescue(self._client, worker, number, cause, delays)

    async def report(self, worker: str, reports: Sequence[AttemptReport]) -> list[bool]:
        return await report_calls.report(self._client, worker, reports)

    async def find(self, query: Query, *, limit: int = 100, cursor: str | None = None) -> JobRows:
        return await query_calls.find(self._client, query, limit, cursor)

    async def count(self, query: Query) -> dict[State, int]:
        return await query_calls.count(self._client, query)

    async def tally(self, query: Query, by: TallyBy) -> list[TallyRow]:
        return await query_calls.tally(self._client, query, by)

    async def attempts(self, job: bytes) -> list[AttemptRow]:
        return await report_calls.attempts(self._client, job)

    async def logs(self, job: bytes, after: int = 0) -> list[LogLine]:
        return await report_calls.logs(self._client, job, after)

    async def items(self, job: bytes, after: int = 0, limit: int = 1000) -> list[tuple[int, bytes]]:
        return await report_calls.items(self._client, job, after, limit)

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
        return await actions.act(
            self._client, action, query, limit=limit, reason=reason, priority=priority, cursor=cursor
        )

    async def prune(self, retention: Retention, limit: int = 1000) -> int:
        return await prune.prune(self._client, retention, limit)

    # ---- flows --------------------------------------------------------------------------------

    async def close_join(self, join: bytes) -> JoinRow | None:
        return await flows.close_join(self._client, join)

    async def joins(self, ids: Sequence[bytes]) -> list[JoinRow]:
        return await flows.joins(self._client, ids)

    async def waits_for(self, job: bytes, limit: int = 100) -> list[Edge]:
        return await flows.waits_for(self._client, job, limit)

    async def retry_flow(self, retries: Sequence[FlowRetry]) -> ActResult:
        return await flows.retry_flow(self._client, retries)

    # ---- fleet --------------------------------------------------------------------------------

    async def beat(self, beats: Sequence[Beat]) -> list[BeatResult]:
        return await fleet.beat(self._client, beats)

    async def retire(
        self, worker: str, cause: Outcome, acks: Sequence[Ack] = (), delays: Sequence[int] = CRASH_DELAYS
    ) -> RescueResult:
        return await fleet.retire(self._client, worker, cause, acks, delays)

    async def lead(self, worker: str, services: Sequence[str], span: int) -> LeadResult:
        return await fleet.lead(self._client, worker, services, span)

    async def workers(self) -> list[WorkerRow]:
        return await fleet.workers(self._client)

    async def notify(self, queues: Sequence[str]) -> None:
        await listen.notify(self._client, queues)

    async def listen(self, worker: str, queues: Sequence[str]) -> listen.RedisListener:
        return await listen.listen(self._client, worker, queues)

    # ---- queues -------------------------------------------------------------------------------

    async def set_queue_mode(self, queues: Sequence[str], mode: QueueMode) -> None:
        await queue_calls.set_queue_mode(self._client, queues, mode)

    async def queues(self) -> list[QueueRow]:
        return await queue_calls.queues(self._client)

    async def configure_queue(self, queue: str, settings: QueueSettings | None, *, declared: bool = False) -> None:
        await queue_calls.configure_queue(self._client, queue, settings, declared=declared)

    async def disable_queues(self, queues: Sequence[str], how: DisabledMode | None, by: str = "") -> None:
        await queue_calls.disable_queues(self._client, queues, how, by)

    # ---- limits -------------------------------------------------------------------------------

    async def declare_limits(self, limits: Sequence[Limit]) -> None:
        await limit_calls.declare_limits(self._client, limits)

    async def set_limit_size(self, limit: str, size: int | None) -> bool:
        return await limit_calls.set_limit_size(self._client, limit, size)

    async def limits(self) -> list[LimitRow]:
        return await limit_calls.limits(self._client)

    async def forget_limit(self, limit: str) -> bool:
        return await limit_calls.forget_limit(self._client, limit)

    async def buckets(self, buckets: Sequence[Bucket]) -> list[BucketRow]:
        return await limit_calls.buckets(self._client, buckets)

    async def hold(
        self, holder: bytes, buckets: Sequence[Bucket], ttl: int, limits: Sequence[Limit] = (), keep: int = 0, *,
        info: bytes = b"", fenced: bool = False,
    ) -> HoldResult:  # fmt: skip
        return await holders.hold(self._client, holder, buckets, ttl, limits, keep, info=info, fenced=fenced)

    async def release(self, holder: bytes, spent: Sequence[tuple[str, int]] = (), slow: int = 0) -> bool:
        return await holders.release(self._client, holder, spent, slow)

    async def holders(self, of: Bucket | str, limit: int = 1000) -> list[HolderRow]:
        return await holders.holders(self._client, of, limit)

    # ---- breakers -----------------------------------------------------------------------------

    async def swap_breakers(self, swaps: Sequence[BreakerSwap]) -> list[StoredBreaker]:
        return await breakers.swap_breakers(self._client, swaps)

    # ---- schedules ----------------------------------------------------------------------------

    async def swap_schedule(self, swap: ScheduleSwap, batch: JobBatch | None = None) -> SwapResult:
        return await schedules.swap_schedule(self._client, swap, batch)

    async def due_schedules(self, limit: int = 1000) -> DueSchedules:
        return await schedules.due_schedules(self._client, limit)

    async def schedules(self, names: Sequence[str] = ()) -> list[ScheduleRow]:
        return await schedules.schedules(self._client, names)

    async def schedule_runs(self, name: str, limit: int = 100, before: int | None = None) -> list[ScheduleRun]:
        return await schedules.schedule_runs(self._client, name, limit, before)

    # ---- small documents ----------------------------------------------------------------------

    async def put_document(self, doc: Document) -> Document:
        return await documents.put_document(self._client, doc)

    async def documents(self, kind: str) -> list[Document]:
        return await documents.documents(self._client, kind)

    def documents_now(self, kind: str) -> list[Document]:
        return documents.documents_now(self._client, kind)
