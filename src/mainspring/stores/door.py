"""The one door to a store: every call passes it.

Here live the total deadline of a call, the translation of driver errors and the failpoints; an
engine behind it holds data access only. The engine is asked to ``translate`` what it raised: what
it does not know is a bug and comes out as it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from mainspring.breakers.records import BreakerRow
from mainspring.common import failpoints
from mainspring.errors import StoreError, StoreUnavailable
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
from mainspring.schedules.records import (
    DueSchedules,
    ScheduleDependency,
    ScheduleDependencyRow,
    ScheduleRow,
    ScheduleRun,
    ScheduleSwap,
    SwapResult,
)
from mainspring.states import Action, State
from mainspring.stores.base import CRASH_DELAYS, Engine, Listener, TallyBy
from mainspring.stores.records import Document, MigrationPlan
from mainspring.stores.shared.deadlines import CallDeadlines
from mainspring.worker.records import Beat, BeatResult, RescueResult, Turn, TurnResult, WorkerRow

R = TypeVar("R")

MIGRATION = 3600.0
"""Seconds that a migration may take: it may have much to rewrite, and others to wait for."""


class Door:
    """A :class:`~mainspring.stores.base.Store` around an engine."""

    def __init__(self, inner: Engine, *, deadline: float = 10.0) -> None:
        self.inner = inner
        self.engine = inner.engine
        self.url = inner.url
        self.deadline = deadline

    @property
    def deadline(self) -> float:
        """Seconds that a call may take."""
        return self._deadlines.seconds

    @deadline.setter
    def deadline(self, seconds: float) -> None:
        self._deadlines = CallDeadlines(seconds)

    async def open(self) -> None:
        await self._call("open", self.inner.open())

    async def close(self) -> None:
        await self._call("close", self.inner.close())

    async def migrate(self) -> tuple[int, int]:
        return await self._call("migrate", self.inner.migrate(), MIGRATION)

    async def migration_plan(self) -> MigrationPlan:
        return await self._call("migration_plan", self.inner.migration_plan())

    async def durability(self) -> str:
        return await self._call("durability", self.inner.durability())

    async def enqueue(self, batch: Batch) -> list[Enqueued]:
        return await self._call("enqueue", self.inner.enqueue(batch))

    def enqueue_now(self, batch: Batch, connection: Any = None) -> list[Enqueued]:
        failpoints.hit("enqueue.before")
        try:
            done = self.inner.enqueue_now(batch, connection)
        except Exception as error:
            raise self._translated(error) from error
        failpoints.hit("enqueue.after")
        return done

    async def turn(self, turn: Turn) -> TurnResult:
        return await self._call("turn", self.inner.turn(turn))

    async def promote(self, limit: int = 1000) -> PromoteResult:
        return await self._call("promote", self.inner.promote(limit))

    async def rescue(
        self, worker: str, number: int, cause: Outcome, delays: Sequence[int] = CRASH_DELAYS
    ) -> RescueResult:
        return await self._call("rescue", self.inner.rescue(worker, number, cause, delays))

    async def report(self, worker: str, reports: Sequence[AttemptReport]) -> list[bool]:
        return await self._call("report", self.inner.report(worker, reports))

    async def find(self, query: Query, *, limit: int = 100, cursor: str | None = None) -> JobRows:
        return await self._call("find", self.inner.find(query, limit=limit, cursor=cursor))

    async def count(self, query: Query) -> dict[State, int]:
        return await self._call("count", self.inner.count(query))

    async def attempts(self, job: bytes) -> list[AttemptRow]:
        return await self._call("attempts", self.inner.attempts(job))

    async def logs(self, job: bytes, after: int = 0) -> list[LogLine]:
        return await self._call("logs", self.inner.logs(job, after))

    async def items(self, job: bytes, after: int = 0, limit: int = 1000) -> list[tuple[int, bytes]]:
        return await self._call("items", self.inner.items(job, after, limit))

    async def tally(self, query: Query, by: TallyBy) -> list[TallyRow]:
        return await self._call("tally", self.inner.tally(query, by))

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
        call = self.inner.act(action, query, limit=limit, reason=reason, priority=priority, cursor=cursor)
        return await self._call("act", call)

    async def prune(self, retention: Retention, limit: int = 1000) -> int:
        return await self._call("prune", self.inner.prune(retention, limit))

    async def beat(self, beats: Sequence[Beat]) -> list[BeatResult]:
        return await self._call("beat", self.inner.beat(beats))

    async def retire(
        self, worker: str, cause: Outcome, acks: Sequence[Ack] = (), delays: Sequence[int] = CRASH_DELAYS
    ) -> RescueResult:
        return await self._call("retire", self.inner.retire(worker, cause, acks, delays))

    async def workers(self) -> list[WorkerRow]:
        return await self._call("workers", self.inner.workers())

    async def notify(self, queues: Sequence[str]) -> None:
        await self._call("notify", self.inner.notify(queues))

    async def listen(self, worker: str, queues: Sequence[str]) -> Listener:
        return await self._call("listen", self.inner.listen(worker, queues))

    async def set_queue_mode(self, queues: Sequence[str], mode: QueueMode) -> None:
        await self._call("set_queue_mode", self.inner.set_queue_mode(queues, mode))

    async def queues(self) -> list[QueueRow]:
        return await self._call("queues", self.inner.queues())

    async def configure_queue(self, queue: str, settings: QueueSettings | None, *, declared: bool = False) -> None:
        await self._call("configure_queue", self.inner.configure_queue(queue, settings, declared=declared))

    async def disable_queues(self, queues: Sequence[str], how: DisabledMode | None, by: str = "") -> None:
        await self._call("disable_queues", self.inner.disable_queues(queues, how, by))

    async def declare_limits(self, limits: Sequence[Limit]) -> None:
        await self._call("declare_limits", self.inner.declare_limits(limits))

    async def set_limit_size(self, limit: str, size: int | None) -> bool:
        return await self._call("set_limit_size", self.inner.set_limit_size(limit, size))

    async def limits(self) -> list[LimitRow]:
        return await self._call("limits", self.inner.limits())

    async def forget_limit(self, limit: str) -> bool:
        return await self._call("forget_limit", self.inner.forget_limit(limit))

    async def buckets(self, buckets: Sequence[Bucket]) -> list[BucketRow]:
        return await self._call("buckets", self.inner.buckets(buckets))

    async def hold(
        self, holder: bytes, buckets: Sequence[Bucket], ttl: int, limits: Sequence[Limit] = (), keep: int = 0, *,
        info: bytes = b"", fenced: bool = False,
    ) -> HoldResult:  # fmt: skip
        call = self.inner.hold(holder, buckets, ttl, limits, keep, info=info, fenced=fenced)
        return await self._call("hold", call)

    async def release(self, holder: bytes, spent: Sequence[tuple[str, int]] = (), slow: int = 0) -> bool:
        return await self._call("release", self.inner.release(holder, spent, slow))

    async def holders(self, of: Bucket | str, limit: int = 1000) -> list[HolderRow]:
        return await self._call("holders", self.inner.holders(of, limit))

    async def trip_breaker(self, breaker: str, span: int | None) -> bool:
        return await self._call("trip_breaker", self.inner.trip_breaker(breaker, span))

    async def reset_breaker(self, breaker: str) -> bool:
        return await self._call("reset_breaker", self.inner.reset_breaker(breaker))

    async def report_breaker(self, breaker: str, started: int, good: int = 0, fault: str = "") -> BreakerRow | None:
        return await self._call("report_breaker", self.inner.report_breaker(breaker, started, good, fault))

    async def swap_schedule(self, swap: ScheduleSwap, batch: Batch | None = None) -> SwapResult:
        return await self._call("swap_schedule", self.inner.swap_schedule(swap, batch))

    async def due_schedules(self, limit: int = 1000) -> DueSchedules:
        return await self._call("due_schedules", self.inner.due_schedules(limit))

    async def schedules(self, names: Sequence[str] = ()) -> list[ScheduleRow]:
        return await self._call("schedules", self.inner.schedules(names))

    async def schedule_runs(self, name: str, limit: int = 100, before: int | None = None) -> list[ScheduleRun]:
        return await self._call("schedule_runs", self.inner.schedule_runs(name, limit, before))

    async def set_dependencies(self, links: Sequence[ScheduleDependency]) -> None:
        await self._call("set_dependencies", self.inner.set_dependencies(links))

    async def dependencies(self) -> list[ScheduleDependencyRow]:
        return await self._call("dependencies", self.inner.dependencies())

    async def put_document(self, doc: Document) -> Document:
        return await self._call("put_document", self.inner.put_document(doc))

    async def documents(self, kind: str) -> list[Document]:
        return await self._call("documents", self.inner.documents(kind))

    async def _call(self, name: str, call: Awaitable[R], deadline: float | None = None) -> R:
        failpoints.hit(name + ".before")
        deadlines = self._deadlines if deadline is None else CallDeadlines(deadline)
        try:
            with deadlines.begin():
                reply = await call
        except TimeoutError as late:
            raise StoreUnavailable(
                f"{name}: {self.url} gave no answer in {deadlines.seconds:g} s",
                hint="Whether it took effect is unknown; Mainspring repeats the call in a way that is safe.",
            ) from late
        except Exception as error:
            raise self._translated(error) from error
        failpoints.hit(name + ".after")
        return reply

    def _translated(self, error: Exception) -> Exception:
        if isinstance(error, StoreError):
            return error
        return self.inner.translate(error) or error
