"""The one door to a store: every call passes it.

Here live the total deadline of a call, the translation of driver errors and the failpoints; an
engine behind it holds data access only. The engine is asked to ``translate`` what it raised: what
it does not know is a bug and comes out as it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from mainspring import failpoints
from mainspring.errors import StoreError, StoreUnavailable
from mainspring.outcomes import Ack, Outcome
from mainspring.query import Query
from mainspring.records import (
    Acted,
    AttemptRow,
    Beat,
    Beaten,
    BreakerRow,
    Bucket,
    BucketRow,
    Disabled,
    Doc,
    Enqueued,
    Found,
    GuestRow,
    Limit,
    LimitRow,
    LogLine,
    MigrationPlan,
    Mode,
    Promoted,
    QueueRow,
    QueueSettings,
    Report,
    Rescued,
    Retention,
    Taken,
    Tally,
    Turned,
    WorkerRow,
)
from mainspring.schedule_rows import Link, LinkRow, Looked, Run, ScheduleRow, Swap, Swapped
from mainspring.states import Action, State
from mainspring.stores.base import CRASH_DELAYS, Batch, Engine, Listener, TallyBy, Turn
from mainspring.stores.deadlines import Deadlines

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
        self._deadlines = Deadlines(seconds)

    async def open(self) -> None:
        await self._call("open", self.inner.open())

    async def close(self) -> None:
        await self._call("close", self.inner.close())

    async def migrate(self) -> tuple[int, int]:
        return await self._call("migrate", self.inner.migrate(), MIGRATION)

    async def plan(self) -> MigrationPlan:
        return await self._call("plan", self.inner.plan())

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

    async def turn(self, turn: Turn) -> Turned:
        return await self._call("turn", self.inner.turn(turn))

    async def promote(self, limit: int = 1000) -> Promoted:
        return await self._call("promote", self.inner.promote(limit))

    async def rescue(self, worker: str, number: int, cause: Outcome, delays: Sequence[int] = CRASH_DELAYS) -> Rescued:
        return await self._call("rescue", self.inner.rescue(worker, number, cause, delays))

    async def report(self, worker: str, reports: Sequence[Report]) -> list[bool]:
        return await self._call("report", self.inner.report(worker, reports))

    async def find(self, query: Query, *, limit: int = 100, cursor: str | None = None) -> Found:
        return await self._call("find", self.inner.find(query, limit=limit, cursor=cursor))

    async def count(self, query: Query) -> dict[State, int]:
        return await self._call("count", self.inner.count(query))

    async def attempts(self, job: bytes) -> list[AttemptRow]:
        return await self._call("attempts", self.inner.attempts(job))

    async def logs(self, job: bytes, after: int = 0) -> list[LogLine]:
        return await self._call("logs", self.inner.logs(job, after))

    async def items(self, job: bytes, after: int = 0, limit: int = 1000) -> list[tuple[int, bytes]]:
        return await self._call("items", self.inner.items(job, after, limit))

    async def tally(self, query: Query, by: TallyBy) -> list[Tally]:
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
    ) -> Acted:
        call = self.inner.act(action, query, limit=limit, reason=reason, priority=priority, cursor=cursor)
        return await self._call("act", call)

    async def prune(self, retention: Retention, limit: int = 1000) -> int:
        return await self._call("prune", self.inner.prune(retention, limit))

    async def beat(self, beats: Sequence[Beat]) -> list[Beaten]:
        return await self._call("beat", self.inner.beat(beats))

    async def retire(
        self, worker: str, cause: Outcome, acks: Sequence[Ack] = (), delays: Sequence[int] = CRASH_DELAYS
    ) -> Rescued:
        return await self._call("retire", self.inner.retire(worker, cause, acks, delays))

    async def workers(self) -> list[WorkerRow]:
        return await self._call("workers", self.inner.workers())

    async def notify(self, queues: Sequence[str]) -> None:
        await self._call("notify", self.inner.notify(queues))

    async def listen(self, worker: str, queues: Sequence[str]) -> Listener:
        return await self._call("listen", self.inner.listen(worker, queues))

    async def set_mode(self, queues: Sequence[str], mode: Mode) -> None:
        await self._call("set_mode", self.inner.set_mode(queues, mode))

    async def modes(self) -> list[QueueRow]:
        return await self._call("modes", self.inner.modes())

    async def configure(self, queue: str, settings: QueueSettings | None, *, declared: bool = False) -> None:
        await self._call("configure", self.inner.configure(queue, settings, declared=declared))

    async def disable(self, queues: Sequence[str], how: Disabled | None, by: str = "") -> None:
        await self._call("disable", self.inner.disable(queues, how, by))

    async def declare(self, limits: Sequence[Limit]) -> None:
        await self._call("declare", self.inner.declare(limits))

    async def set_size(self, limit: str, size: int | None) -> bool:
        return await self._call("set_size", self.inner.set_size(limit, size))

    async def limits(self) -> list[LimitRow]:
        return await self._call("limits", self.inner.limits())

    async def forget_limit(self, limit: str) -> bool:
        return await self._call("forget_limit", self.inner.forget_limit(limit))

    async def buckets(self, buckets: Sequence[Bucket]) -> list[BucketRow]:
        return await self._call("buckets", self.inner.buckets(buckets))

    async def take(
        self, guest: bytes, buckets: Sequence[Bucket], ttl: int, limits: Sequence[Limit] = (), keep: int = 0, *,
        info: bytes = b"", fenced: bool = False,
    ) -> Taken:  # fmt: skip
        call = self.inner.take(guest, buckets, ttl, limits, keep, info=info, fenced=fenced)
        return await self._call("take", call)

    async def give(self, guest: bytes, spent: Sequence[tuple[str, int]] = (), slow: int = 0) -> bool:
        return await self._call("give", self.inner.give(guest, spent, slow))

    async def guests(self, of: Bucket | str, limit: int = 1000) -> list[GuestRow]:
        return await self._call("guests", self.inner.guests(of, limit))

    async def trip(self, breaker: str, span: int | None) -> bool:
        return await self._call("trip", self.inner.trip(breaker, span))

    async def reset(self, breaker: str) -> bool:
        return await self._call("reset", self.inner.reset(breaker))

    async def tell(self, breaker: str, started: int, good: int = 0, fault: str = "") -> BreakerRow | None:
        return await self._call("tell", self.inner.tell(breaker, started, good, fault))

    async def swap(self, swap: Swap, batch: Batch | None = None) -> Swapped:
        return await self._call("swap", self.inner.swap(swap, batch))

    async def look(self, limit: int = 1000) -> Looked:
        return await self._call("look", self.inner.look(limit))

    async def schedules(self, names: Sequence[str] = ()) -> list[ScheduleRow]:
        return await self._call("schedules", self.inner.schedules(names))

    async def runs(self, name: str, limit: int = 100, before: int | None = None) -> list[Run]:
        return await self._call("runs", self.inner.runs(name, limit, before))

    async def link(self, links: Sequence[Link]) -> None:
        await self._call("link", self.inner.link(links))

    async def links(self) -> list[LinkRow]:
        return await self._call("links", self.inner.links())

    async def put(self, doc: Doc) -> Doc:
        return await self._call("put", self.inner.put(doc))

    async def docs(self, kind: str) -> list[Doc]:
        return await self._call("docs", self.inner.docs(kind))

    async def _call(self, name: str, call: Awaitable[R], deadline: float | None = None) -> R:
        failpoints.hit(name + ".before")
        deadlines = self._deadlines if deadline is None else Deadlines(deadline)
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
