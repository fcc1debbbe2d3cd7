"""The PostgreSQL engine: one line per method of the contract; the work is in the module of each feature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mainspring.breakers.records import BreakerSwap, StoredBreaker
from mainspring.common.clock import Clock
from mainspring.errors import InvalidOption, mask_url
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
from mainspring.stores.base import Listener, TallyBy
from mainspring.stores.postgres.breakers import swap_breakers
from mainspring.stores.postgres.documents import documents, documents_now, put_document
from mainspring.stores.postgres.driver import migrations
from mainspring.stores.postgres.driver.connections import make_listen_connect
from mainspring.stores.postgres.driver.database import Database
from mainspring.stores.postgres.driver.durability import durability_class
from mainspring.stores.postgres.driver.errors import translate
from mainspring.stores.postgres.driver.session import Sessions
from mainspring.stores.postgres.driver.statements import schema_of
from mainspring.stores.postgres.driver.wakeups import ListenerHub
from mainspring.stores.postgres.fleet import beat, lead, rescue, retire, workers
from mainspring.stores.postgres.flows import close_join, joins, retry_flow, waits_for
from mainspring.stores.postgres.holders import hold, holders, release
from mainspring.stores.postgres.jobs.actions import act
from mainspring.stores.postgres.jobs.claim import LowWaterMarks
from mainspring.stores.postgres.jobs.enqueue import BlockingProducer, JointProducers
from mainspring.stores.postgres.jobs.promote import promote
from mainspring.stores.postgres.jobs.prune import PartitionKeeper, prune
from mainspring.stores.postgres.jobs.query import count, find, tally
from mainspring.stores.postgres.jobs.reports import attempts, items, logs, report
from mainspring.stores.postgres.limits import buckets as read_buckets
from mainspring.stores.postgres.limits import declare_limits, forget_limit, limits, set_limit_size
from mainspring.stores.postgres.queues import configure_queue, disable_queues, queues, set_queue_mode
from mainspring.stores.postgres.schedules import due_schedules, schedule_runs, schedules, swap_schedule
from mainspring.stores.postgres.turn import turn as run_turn
from mainspring.stores.records import Document, MigrationPlan
from mainspring.worker.records import Beat, BeatResult, LeadResult, RescueResult, Turn, TurnResult, WorkerRow


class PostgresStore:
    """A :class:`~mainspring.stores.base.Store` in one schema of a PostgreSQL database.

    ``durability="full"``: commits wait for the disk, and for replicas if the server is set up so; ``"normal"``: they do
    not wait. ``strict`` refuses a server that cannot keep this promise. ``pooler``: each transaction may get another
    session, so nothing is prepared on the server or left in a session; ``listen_url`` leads past the pooler, for LISTEN
    needs a session of its own.
    """

    engine = "postgres"

    def __init__(
        self,
        url: str,
        *,
        namespace: str = "default",
        durability: str = "full",
        clock: Clock | None = None,
        strict: bool = False,
        listen_url: str | None = None,
        pooler: bool = False,
        pool_size: int = 4,
    ) -> None:
        if durability not in {"full", "normal"}:
            raise InvalidOption("durability", durability, "is not one of 'full', 'normal'")
        self.url = mask_url(url)
        self._namespace = namespace
        self.schema = schema_of(namespace)
        sessions = Sessions(url, relaxed=durability == "normal", pooler=pooler, pool_size=pool_size)
        hub = ListenerHub(self.schema, None if pooler and not listen_url else make_listen_connect(listen_url or url))
        self._db = Database(sessions, self.schema, self.url, clock=clock, strict=strict, hub=hub)
        self._producers = JointProducers(self._db, places=pool_size - 1)
        self._blocking = BlockingProducer(self._db)
        self._low_water = LowWaterMarks(self._db)
        self._partitions = PartitionKeeper(self._db)

    # ---- life -----------------------------------------------------------------------------------------

    async def open(self) -> None:
        await self._db.open()

    async def close(self) -> None:
        self._low_water.close()
        await self._db.close()

    async def migrate(self) -> tuple[int, int]:
        return await migrations.migrate(self._db)

    async def migration_plan(self) -> MigrationPlan:
        return await migrations.migration_plan(self._db)

    async def durability(self) -> str:
        return durability_class(self._db.sessions.server)

    async def now(self) -> int:
        return await self._db.read_time()

    def translate(self, error: Exception) -> Exception | None:
        return translate(error, self.url, self._namespace)

    # ---- jobs -----------------------------------------------------------------------------------------

    async def enqueue(self, batch: JobBatch) -> list[Enqueued]:
        return await self._producers.enqueue(batch)

    def enqueue_now(self, batch: JobBatch, connection: Any = None) -> list[Enqueued]:
        return self._blocking.enqueue(batch, connection)

    async def turn(self, turn: Turn) -> TurnResult:
        return await run_turn(self._db, self._low_water, turn)

    async def promote(self, limit: int = 1000) -> PromoteResult:
        return await promote(self._db, limit)

    async def rescue(
        self, worker: str, number: int, cause: Outcome, delays: Sequence[int] = CRASH_DELAYS
    ) -> RescueResult:
        return await rescue(self._db, worker, number, cause, delays)

    async def report(self, worker: str, reports: Sequence[AttemptReport]) -> list[bool]:
        return await report(self._db, worker, reports)

    async def find(self, query: Query, *, limit: int = 100, cursor: str | None = None) -> JobRows:
        return await find(self._db, query, limit, cursor)

    async def count(self, query: Query) -> dict[State, int]:
        return await count(self._db, query)

    async def tally(self, query: Query, by: TallyBy) -> list[TallyRow]:
        return await tally(self._db, query, by)

    async def attempts(self, job: bytes) -> list[AttemptRow]:
        return await attempts(self._db, job)

    async def logs(self, job: bytes, after: int = 0) -> list[LogLine]:
        return await logs(self._db, job, after)

    async def items(self, job: bytes, after: int = 0, limit: int = 1000) -> list[tuple[int, bytes]]:
        return await items(self._db, job, after, limit)

    async def act(
        self,
        action: Action,
        query: Query,
        *,
        limit: int = 1000,
        reason: str = "",
        priority: int = 0,
        cursor: str | None = None,  # noqa: ARG002 - this engine gives no cursor
    ) -> ActResult:
        return await act(self._db, action, query, limit=limit, reason=reason, priority=priority)

    async def prune(self, retention: Retention, limit: int = 1000) -> int:
        return await prune(self._db, self._partitions, retention, limit)

    # ---- flows ----------------------------------------------------------------------------------------

    async def close_join(self, join: bytes) -> JoinRow | None:
        return await close_join(self._db, join)

    async def joins(self, ids: Sequence[bytes]) -> list[JoinRow]:
        return await joins(self._db, ids)

    async def waits_for(self, job: bytes, limit: int = 100) -> list[Edge]:
        return await waits_for(self._db, job, limit)

    async def retry_flow(self, retries: Sequence[FlowRetry]) -> ActResult:
        return await retry_flow(self._db, retries)

    # ---- fleet ----------------------------------------------------------------------------------------

    async def beat(self, beats: Sequence[Beat]) -> list[BeatResult]:
        return await beat(self._db, beats)

    async def retire(
        self, worker: str, cause: Outcome, acks: Sequence[Ack] = (), delays: Sequence[int] = CRASH_DELAYS
    ) -> RescueResult:
        return await retire(self._db, worker, cause, acks, delays)

    async def lead(self, worker: str, services: Sequence[str], span: int) -> LeadResult:
        return await lead(self._db, worker, services, span)

    async def workers(self) -> list[WorkerRow]:
        return await workers(self._db)

    async def notify(self, queues: Sequence[str]) -> None:
        await self._db.notify(queues)

    async def listen(self, worker: str, queues: Sequence[str]) -> Listener:  # noqa: ARG002 - a channel names no worker
        return await self._db.listen(queues)

    # ---- queues ---------------------------------------------------------------------------------------

    async def set_queue_mode(self, queues: Sequence[str], mode: QueueMode) -> None:
        await set_queue_mode(self._db, queues, mode)

    async def queues(self) -> list[QueueRow]:
        return await queues(self._db)

    async def configure_queue(self, queue: str, settings: QueueSettings | None, *, declared: bool = False) -> None:
        await configure_queue(self._db, queue, settings, declared=declared)

    async def disable_queues(self, queues: Sequence[str], how: DisabledMode | None, by: str = "") -> None:
        await disable_queues(self._db, queues, how, by)

    # ---- limits ---------------------------------------------------------------------------------------

    async def declare_limits(self, limits: Sequence[Limit]) -> None:
        await declare_limits(self._db, limits)

    async def set_limit_size(self, limit: str, size: int | None) -> bool:
        return await set_limit_size(self._db, limit, size)

    async def limits(self) -> list[LimitRow]:
        return await limits(self._db)

    async def forget_limit(self, limit: str) -> bool:
        return await forget_limit(self._db, limit)

    async def buckets(self, buckets: Sequence[Bucket]) -> list[BucketRow]:
        return await read_buckets(self._db, buckets)

    async def hold(
        self,
        holder: bytes,
        buckets: Sequence[Bucket],
        ttl: int,
        limits: Sequence[Limit] = (),
        keep: int = 0,
        *,
        info: bytes = b"",
        fenced: bool = False,
    ) -> HoldResult:
        return await hold(self._db, holder, buckets, ttl, limits, keep, info=info, fenced=fenced)

    async def release(self, holder: bytes, spent: Sequence[tuple[str, int]] = (), slow: int = 0) -> bool:
        return await release(self._db, holder, spent, slow)

    async def holders(self, of: Bucket | str, limit: int = 1000) -> list[HolderRow]:
        return await holders(self._db, of, limit)

    # ---- breakers -------------------------------------------------------------------------------------

    async def swap_breakers(self, swaps: Sequence[BreakerSwap]) -> list[StoredBreaker]:
        return await swap_breakers(self._db, swaps)

    # ---- schedules ------------------------------------------------------------------------------------

    async def swap_schedule(self, swap: ScheduleSwap, batch: JobBatch | None = None) -> SwapResult:
        return await swap_schedule(self._db, swap, batch)

    async def due_schedules(self, limit: int = 1000) -> DueSchedules:
        return await due_schedules(self._db, limit)

    async def schedules(self, names: Sequence[str] = ()) -> list[ScheduleRow]:
        return await schedules(self._db, names)

    async def schedule_runs(self, name: str, limit: int = 100, before: int | None = None) -> list[ScheduleRun]:
        return await schedule_runs(self._db, name, limit, before)

    # ---- small documents ------------------------------------------------------------------------------

    async def put_document(self, doc: Document) -> Document:
        return await put_document(self._db, doc)

    async def documents(self, kind: str) -> list[Document]:
        return await documents(self._db, kind)

    def documents_now(self, kind: str) -> list[Document]:
        return documents_now(self._db, kind)
