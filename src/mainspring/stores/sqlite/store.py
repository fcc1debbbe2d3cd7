"""The SQLite store: one file, any number of processes on one machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from mainspring.breakers.records import BreakerSwap, StoredBreaker
from mainspring.errors import InvalidOption, StoreError
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

from .breakers import swap_breakers
from .documents import documents, put_document
from .driver.database import SqliteDatabase
from .driver.memory import SharedDatabase, join_database
from .fleet import beat, lead, rescue, retire, workers
from .flows import close_join, joins, retry_flow, waits_for
from .holders import HoldRequest, hold, holders, release
from .jobs.actions import act
from .jobs.enqueue import enqueue
from .jobs.promote import promote
from .jobs.prune import prune
from .jobs.query import count, find, tally
from .jobs.reports import attempts, items, logs, report
from .limits import buckets as read_buckets
from .limits import declare_limits, forget_limit, limits, set_limit_size
from .queues import configure_queue, disable_queues, queues, set_queue_mode
from .schedules import due_schedules, schedule_runs, schedules, swap_schedule
from .turn import turn as run_turn

if TYPE_CHECKING:
    from mainspring.common.clock import Clock

    from .driver.wakeups import SqliteListener


class SqliteStore:
    """See :class:`mainspring.stores.base.Store`."""

    engine = "sqlite"

    def __init__(
        self,
        path: str,
        *,
        namespace: str = "default",
        durability: Literal["full", "normal"] | str = "full",
        clock: Clock | None = None,
        shared: str = "",
    ) -> None:
        """``shared``: the name of a database in memory that other stores of this process use too."""
        if not re.fullmatch(r"[a-z][a-z0-9_]*", namespace):
            raise InvalidOption(
                "namespace", namespace, "must be lower-case letters, digits and _, and begin with a letter"
            )
        if durability not in ("full", "normal"):
            raise InvalidOption("durability", durability, 'must be "full" or "normal" on SQLite')
        self._shared: SharedDatabase | None = None
        self._has_left = False
        if shared:
            self._shared = join_database(shared, namespace)
            self.database = self._shared.database
        else:
            self.database = SqliteDatabase(path, namespace=namespace, durability=durability, clock=clock)
        self.path, self.url = self.database.path, self.database.url

    # ---- life ---------------------------------------------------------------------------------------

    async def open(self) -> None:
        await self.database.open()

    async def close(self) -> None:
        if self._has_left:
            return  # other stores of this process may still use the database
        if self._shared is None:
            await self.database.close()
        else:
            shared, self._shared, self._has_left = self._shared, None, True
            await shared.leave()

    async def migrate(self) -> tuple[int, int]:
        return await self.database.migrate()

    async def migration_plan(self) -> MigrationPlan:
        return self.database.migration_plan()

    async def durability(self) -> str:
        return await self.database.durability()

    async def now(self) -> int:
        return await self.database.read(lambda tx: tx.now)

    def translate(self, error: BaseException) -> StoreError | None:
        return self.database.translate(error)

    # ---- jobs ---------------------------------------------------------------------------------------

    async def enqueue(self, batch: JobBatch) -> list[Enqueued]:
        return await self.database.write(lambda tx: enqueue(tx, batch), adds_jobs=True)

    def enqueue_now(self, batch: JobBatch, connection: Any = None) -> list[Enqueued]:
        return self.database.enqueue_now(lambda tx: enqueue(tx, batch), connection)

    async def turn(self, turn: Turn) -> TurnResult:
        return await self.database.write(lambda tx: run_turn(tx, turn))

    async def promote(self, limit: int = 1000) -> PromoteResult:
        return await promote(self.database, limit)

    async def rescue(
        self, worker: str, number: int, cause: Outcome, delays: Sequence[int] = CRASH_DELAYS
    ) -> RescueResult:
        return await self.database.write(lambda tx: rescue(tx, worker, number, cause, delays))

    async def report(self, worker: str, reports: Sequence[AttemptReport]) -> list[bool]:
        return await self.database.write(lambda tx: report(tx, worker, reports))

    async def find(self, query: Query, *, limit: int = 100, cursor: str | None = None) -> JobRows:
        return await self.database.read(lambda tx: find(tx, query, limit, cursor))

    async def count(self, query: Query) -> dict[State, int]:
        return await self.database.read(lambda tx: count(tx, query))

    async def tally(self, query: Query, by: TallyBy) -> list[TallyRow]:
        return await self.database.read(lambda tx: tally(tx, query, by))

    async def attempts(self, job: bytes) -> list[AttemptRow]:
        return await self.database.read(lambda tx: attempts(tx, job))

    async def logs(self, job: bytes, after: int = 0) -> list[LogLine]:
        return await self.database.read(lambda tx: logs(tx, job, after))

    async def items(self, job: bytes, after: int = 0, limit: int = 1000) -> list[tuple[int, bytes]]:
        return await self.database.read(lambda tx: items(tx, job, after, limit))

    async def act(
        self,
        action: Action,
        query: Query,
        *,
        limit: int = 1000,
        reason: str = "",
        priority: int = 0,
        cursor: str | None = None,  # noqa: ARG002 - this engine returns no cursor
    ) -> ActResult:
        return await act(self.database, action, query, limit, reason, priority)

    async def prune(self, retention: Retention, limit: int = 1000) -> int:
        return await prune(self.database, retention, limit)

    # ---- flows --------------------------------------------------------------------------------------

    async def close_join(self, join: bytes) -> JoinRow | None:
        return await self.database.write(lambda tx: close_join(tx, join))

    async def joins(self, ids: Sequence[bytes]) -> list[JoinRow]:
        return await self.database.read(lambda tx: joins(tx, ids))

    async def waits_for(self, job: bytes, limit: int = 100) -> list[Edge]:
        return await self.database.read(lambda tx: waits_for(tx, job, limit))

    async def retry_flow(self, retries: Sequence[FlowRetry]) -> ActResult:
        return await self.database.write(lambda tx: retry_flow(tx, retries))

    # ---- fleet --------------------------------------------------------------------------------------

    async def beat(self, beats: Sequence[Beat]) -> list[BeatResult]:
        return await self.database.write(lambda tx: beat(tx, beats))

    async def retire(
        self, worker: str, cause: Outcome, acks: Sequence[Ack] = (), delays: Sequence[int] = CRASH_DELAYS
    ) -> RescueResult:
        return await self.database.write(lambda tx: retire(tx, worker, cause, acks, delays))

    async def lead(self, worker: str, services: Sequence[str], span: int) -> LeadResult:
        return await lead(self.database, worker, services, span)

    async def workers(self) -> list[WorkerRow]:
        return await self.database.read(workers)

    async def notify(self, queues: Sequence[str]) -> None:
        self.database.notify(queues)

    async def listen(self, worker: str, queues: Sequence[str]) -> SqliteListener:
        return self.database.listen(worker, queues)

    # ---- queues -------------------------------------------------------------------------------------

    async def set_queue_mode(self, queues: Sequence[str], mode: QueueMode) -> None:
        await self.database.write(lambda tx: set_queue_mode(tx, queues, mode))

    async def queues(self) -> list[QueueRow]:
        return await self.database.read(queues)

    async def configure_queue(self, queue: str, settings: QueueSettings | None, *, declared: bool = False) -> None:
        await configure_queue(self.database, queue, settings, declared=declared)

    async def disable_queues(self, queues: Sequence[str], how: DisabledMode | None, by: str = "") -> None:
        await self.database.write(lambda tx: disable_queues(tx, queues, how, by))

    # ---- limits -------------------------------------------------------------------------------------

    async def declare_limits(self, limits: Sequence[Limit]) -> None:
        await declare_limits(self.database, limits)

    async def set_limit_size(self, limit: str, size: int | None) -> bool:
        return await set_limit_size(self.database, limit, size)

    async def limits(self) -> list[LimitRow]:
        return await self.database.read(limits)

    async def forget_limit(self, limit: str) -> bool:
        return await forget_limit(self.database, limit)

    async def buckets(self, buckets: Sequence[Bucket]) -> list[BucketRow]:
        return await self.database.read(lambda tx: read_buckets(tx, buckets))

    async def hold(
        self, holder: bytes, buckets: Sequence[Bucket], ttl: int, limits: Sequence[Limit] = (), keep: int = 0, *,
        info: bytes = b"", fenced: bool = False,
    ) -> HoldResult:  # fmt: skip
        request = HoldRequest(holder, buckets, ttl, limits, keep, info, fenced)
        return await self.database.write(lambda tx: hold(tx, request))

    async def release(self, holder: bytes, spent: Sequence[tuple[str, int]] = (), slow: int = 0) -> bool:
        return await self.database.write(lambda tx: release(tx, holder, spent, slow))

    async def holders(self, of: Bucket | str, limit: int = 1000) -> list[HolderRow]:
        return await self.database.read(lambda tx: holders(tx, of, limit))

    # ---- breakers -----------------------------------------------------------------------------------

    async def swap_breakers(self, swaps: Sequence[BreakerSwap]) -> list[StoredBreaker]:
        return await swap_breakers(self.database, swaps)

    # ---- schedules ----------------------------------------------------------------------------------

    async def swap_schedule(self, swap: ScheduleSwap, batch: JobBatch | None = None) -> SwapResult:
        return await self.database.write(lambda tx: swap_schedule(tx, swap, batch), adds_jobs=True)

    async def due_schedules(self, limit: int = 1000) -> DueSchedules:
        return await self.database.read(lambda tx: due_schedules(tx, limit))

    async def schedules(self, names: Sequence[str] = ()) -> list[ScheduleRow]:
        return await self.database.read(lambda tx: schedules(tx, names))

    async def schedule_runs(self, name: str, limit: int = 100, before: int | None = None) -> list[ScheduleRun]:
        return await self.database.read(lambda tx: schedule_runs(tx, name, limit, before))

    # ---- documents ----------------------------------------------------------------------------------

    async def put_document(self, doc: Document) -> Document:
        return await self.database.write(lambda tx: put_document(tx, doc))

    async def documents(self, kind: str) -> list[Document]:
        return await self.database.read(lambda tx: documents(tx, kind))

    def documents_now(self, kind: str) -> list[Document]:
        found: list[Document] = self.database.writer.do(lambda tx: documents(tx, kind))
        return found
