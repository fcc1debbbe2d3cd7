"""The SQLite store: one file, any number of processes on one machine."""

# SQLite names files by text, and some of this is asked at every commit:
# ruff: noqa: PTH118

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from mainspring.breakers.records import BreakerRow
from mainspring.errors import InvalidOption, StoreError, StoreUnavailable
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
from mainspring.stores.base import CRASH_DELAYS, TallyBy
from mainspring.stores.records import Document, MigrationPlan
from mainspring.worker.records import Beat, BeatResult, RescueResult, Turn, TurnResult, WorkerRow

from . import act, breakers, files, find, fleet, fork, guests, limits, modes, parts, prune, reports, schedules, settings
from .callers import check_schema, enqueue_in_callers, explain_busy
from .connections import MEMORY, open_reader, open_writer
from .enqueue import enqueue
from .errors import is_busy, translate
from .gate import Gate
from .identity import Identity
from .promote import promote
from .reader import Reader
from .reserve import Reserve
from .schema import migrate, plan, prefix_of
from .statements import Statements
from .tally import tally
from .turns import turn
from .tx import Tx
from .wake import SqliteListener, Wake, make_private
from .wall import WallClock
from .writer import Writer

if TYPE_CHECKING:
    from mainspring.common.clock import Clock

R = TypeVar("R")
PROMOTE_SLICE = 200
_DRIVER = (sqlite3.Error, OverflowError, UnicodeEncodeError)


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
    ) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", namespace):
            raise InvalidOption("namespace", namespace, "small letters, digits and _ only, a letter first")
        if durability not in ("full", "normal"):
            raise InvalidOption("durability", durability, 'is "full" or "normal" on SQLite')
        self.path = path if path == MEMORY else os.path.realpath(path)
        self.url = "sqlite://" if path == MEMORY else "sqlite:///" + self.path
        self._namespace = namespace
        self._durability = durability
        self._sql = Statements(prefix_of(namespace))
        self._clock = clock.now_us if clock is not None else WallClock()
        self._last = 0
        on_disk = None if path == MEMORY else self.path
        folder = None if on_disk is None else on_disk + "-wake"
        self._folder = folder
        self._gate = Gate(on_disk, None if folder is None else os.path.join(folder, "gate"))
        self._reserve = Reserve(None if on_disk is None else on_disk + "-reserve", self.url)
        self._wake = Wake(folder)
        self._writer = Writer(
            self._connect, sql=self._sql, now=self._now, gate=self._gate, reserve=self._reserve, wake=self._wake.poke,
            identity=Identity(on_disk), in_memory=on_disk is None,
        )  # fmt: skip
        self._reader = (
            None
            if on_disk is None
            else Reader(partial(open_reader, self.path), self._sql, self._now, Identity(on_disk))
        )
        self._checked = False
        self._found: int | None = None
        self._closed = False
        fork.watch(self)

    # ---- life ---------------------------------------------------------------------------------

    async def open(self) -> None:
        await self._write(_nothing)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._wake.close_listeners()
            await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._writer.close()  # its last commits wake other processes
        self._wake.let_go()
        if self._reader is not None:
            self._reader.close()
        self._gate.close()

    async def migrate(self) -> tuple[int, int]:
        """Opening does it; the first call tells the number that opening found, if it was this store that opened."""
        _, after = await self._write(
            lambda tx: migrate(tx.cursor.connection, self._sql, self._namespace, self._gate, self.url)
        )
        before, self._found = self._found, after
        return after if before is None else before, after

    async def migration_plan(self) -> MigrationPlan:
        return plan(None if self.path == MEMORY else self.path, self._namespace)

    async def durability(self) -> str:
        level = await self._write(lambda tx: tx.cursor.execute("pragma synchronous").fetchall()[0][0])
        return "sqlite:" + ("off", "normal", "full", "extra")[level]

    def translate(self, error: BaseException) -> StoreError | None:
        return translate(error, self.url)

    def _connect(self) -> sqlite3.Connection:
        """A writing connection on a sound file with the right schema."""
        if self.path != MEMORY:
            files.prepare(self.path, self.url)
        connection = open_writer(self.path, self._durability, self.url)
        try:
            if self._folder is not None and not self._checked:
                files.check(connection, self.url)
                make_private(self._folder)
                self._reserve.look()
                self._checked = True
            before, _ = migrate(connection, self._sql, self._namespace, self._gate, self.url)
            self._found = before if self._found is None else self._found
        except BaseException:
            connection.close()
            raise
        return connection

    def _now(self) -> int:
        """The store's time: it never goes back, whatever the machine's clock does."""
        self._last = max(self._last, self._clock())
        return self._last

    # ---- jobs ---------------------------------------------------------------------------------

    async def enqueue(self, batch: Batch) -> list[Enqueued]:
        self._reserve.check()
        return await self._write(lambda tx: enqueue(tx, batch), optional=True)

    def enqueue_now(self, batch: Batch, connection: Any = None) -> list[Enqueued]:
        self._check_open()
        self._reserve.check()
        try:
            if connection is not None:
                return enqueue_in_callers(connection, self.path, partial(self._enqueue_through, batch))
            done: list[Enqueued] = self._writer.do(lambda tx: enqueue(tx, batch), optional=True)
            return done
        except _DRIVER as error:
            raise self._explained(error, optional=True) from error

    def _enqueue_through(self, batch: Batch, cursor: sqlite3.Cursor) -> list[Enqueued]:
        check_schema(cursor, self._namespace, self.url)
        tx = Tx(cursor, self._sql, self._now())
        with tx.savepoint("mainspring"):
            return enqueue(tx, batch)

    async def turn(self, asked: Turn) -> TurnResult:
        return await self._write(lambda tx: turn(tx, asked))

    async def promote(self, limit: int = 1000) -> PromoteResult:
        done = PromoteResult(now=0)
        while True:
            size = min(PROMOTE_SLICE, limit - max(done.promoted, done.expired))
            part = await self._write(partial(promote, limit=size))
            done = PromoteResult(
                now=part.now,
                promoted=done.promoted + part.promoted,
                expired=done.expired + part.expired,
                queues=tuple(sorted({*done.queues, *part.queues})),
                next_due=part.next_due,
                ended=done.ended + part.ended,
            )
            if max(part.promoted, part.expired) < size or max(done.promoted, done.expired) >= limit:
                return done

    async def rescue(
        self, worker: str, number: int, cause: Outcome, delays: Sequence[int] = CRASH_DELAYS
    ) -> RescueResult:
        return await self._write(lambda tx: fleet.rescue(tx, worker, number, cause, delays))

    async def report(self, worker: str, reports_: Sequence[AttemptReport]) -> list[bool]:
        return await self._write(lambda tx: reports.report(tx, worker, reports_))

    async def find(self, query: Query, *, limit: int = 100, cursor: str | None = None) -> JobRows:
        return await self._read(lambda tx: find.find(tx, query, limit, cursor))

    async def count(self, query: Query) -> dict[State, int]:
        return await self._read(lambda tx: find.count(tx, query))

    async def attempts(self, job: bytes) -> list[AttemptRow]:
        return await self._read(lambda tx: reports.attempts(tx, job))

    async def tally(self, query: Query, by: TallyBy) -> list[TallyRow]:
        return await self._read(lambda tx: tally(tx, query, by))

    async def logs(self, job: bytes, after: int = 0) -> list[LogLine]:
        return await self._read(lambda tx: reports.logs(tx, job, after))

    async def items(self, job: bytes, after: int = 0, limit: int = 1000) -> list[tuple[int, bytes]]:
        return await self._read(lambda tx: reports.items(tx, job, after, limit))

    async def act(
        self,
        action: Action,
        query: Query,
        *,
        limit: int = 1000,
        reason: str = "",
        priority: int = 0,
        cursor: str | None = None,  # noqa: ARG002 - nobody has one
    ) -> ActResult:
        """Gives no cursor: what is left is found by its state."""
        act.check(action, query)
        named, more = await self._read(lambda tx: act.candidates(tx, action, query, limit, priority))
        left = [id for id, _ in named]
        said = ActResult(more=more)
        while left:
            looked, part = await self._write(
                partial(act.act, action=action, query=query, jobs=left, reason=reason, priority=priority)
            )
            said = ActResult(said.done + part.done, said.refused + part.refused, more, said.held + part.held)
            left = left[looked:]
        return said

    async def prune(self, retention: Retention, limit: int = 1000) -> int:
        left = await self._read(lambda tx: prune.old(tx, retention, limit))
        gone = 0
        while left:
            looked, dropped = await self._write(partial(prune.drop, jobs=left))
            gone += dropped
            left = left[looked:]
        idle = await self._read(prune.idle)
        if any(idle):
            await self._write(partial(prune.drop_idle, found=idle))
        await self._write(lambda tx: prune.tidy(tx, retention))
        return gone

    # ---- fleet --------------------------------------------------------------------------------

    async def beat(self, beats: Sequence[Beat]) -> list[BeatResult]:
        return await self._write(lambda tx: fleet.beat(tx, beats))

    async def retire(
        self, worker: str, cause: Outcome, acks: Sequence[Ack] = (), delays: Sequence[int] = CRASH_DELAYS
    ) -> RescueResult:
        return await self._write(lambda tx: fleet.retire(tx, worker, cause, acks, delays))

    async def workers(self) -> list[WorkerRow]:
        return await self._read(fleet.workers)

    async def notify(self, queues: Sequence[str]) -> None:
        self._check_open()
        self._wake.poke(set(queues))

    async def listen(self, worker: str, queues: Sequence[str]) -> SqliteListener:
        self._check_open()
        return self._wake.listen(worker, queues)

    # ---- queues -------------------------------------------------------------------------------

    async def set_queue_mode(self, queues: Sequence[str], mode: QueueMode) -> None:
        await self._write(lambda tx: modes.set_mode(tx, queues, mode))

    async def queues(self) -> list[QueueRow]:
        return await self._read(modes.modes)

    async def configure_queue(self, queue: str, given: QueueSettings | None, *, declared: bool = False) -> None:
        await self._write(lambda tx: settings.configure(tx, queue, given, declared=declared))
        last: bytes | None = b""
        while last is not None:
            last = await self._write(partial(settings.bind, queue=queue, after=last))

    async def disable_queues(self, queues: Sequence[str], how: DisabledMode | None, by: str = "") -> None:
        await self._write(lambda tx: settings.disable(tx, queues, how, by))

    # ---- limits -------------------------------------------------------------------------------

    async def declare_limits(self, declared: Sequence[Limit]) -> None:
        await self._write(lambda tx: limits.declare(tx, declared))
        await self._stir_on()

    async def set_limit_size(self, limit: str, size: int | None) -> bool:
        known = await self._write(lambda tx: limits.set_size(tx, limit, size))
        await self._stir_on()
        return known

    async def limits(self) -> list[LimitRow]:
        return await self._read(limits.limits)

    async def forget_limit(self, limit: str) -> bool:
        known = await self._write(lambda tx: limits.forget_limit(tx, limit))
        await self._stir_on()
        return known

    async def _stir_on(self) -> None:
        """A promotion does the rest if this is cut short."""
        while await self._write(limits.stir_on):
            pass

    async def buckets(self, asked: Sequence[Bucket]) -> list[BucketRow]:
        return await self._read(lambda tx: limits.buckets(tx, asked))

    async def hold(
        self, holder: bytes, buckets: Sequence[Bucket], ttl: int, made: Sequence[Limit] = (), keep: int = 0, *,
        info: bytes = b"", fenced: bool = False,
    ) -> HoldResult:  # fmt: skip
        asked = guests.Asked(holder, buckets, ttl, made, keep, info, fenced)
        return await self._write(lambda tx: guests.take(tx, asked))

    async def release(self, holder: bytes, spent: Sequence[tuple[str, int]] = (), slow: int = 0) -> bool:
        return await self._write(lambda tx: guests.give(tx, holder, spent, slow))

    async def holders(self, of: Bucket | str, limit: int = 1000) -> list[HolderRow]:
        return await self._read(lambda tx: guests.guests(tx, of, limit))

    # ---- breakers -----------------------------------------------------------------------------

    async def trip_breaker(self, breaker: str, span: int | None) -> bool:
        return await self._write(lambda tx: breakers.set_until(tx, breaker, span))

    async def reset_breaker(self, breaker: str) -> bool:
        return await self._write(lambda tx: breakers.set_until(tx, breaker, 0))

    async def report_breaker(self, breaker: str, started: int, good: int = 0, fault: str = "") -> BreakerRow | None:
        if not await self._read(lambda tx: breakers.is_news(tx, breaker, good, fault)):
            return None
        return await self._write(lambda tx: breakers.tell(tx, breaker, started, good, fault))

    # ---- schedules ----------------------------------------------------------------------------

    async def swap_schedule(self, swap: ScheduleSwap, batch: Batch | None = None) -> SwapResult:
        self._reserve.check()
        return await self._write(lambda tx: schedules.swap(tx, swap, batch), optional=True)

    async def due_schedules(self, limit: int = 1000) -> DueSchedules:
        return await self._read(lambda tx: schedules.look(tx, limit))

    async def schedules(self, names: Sequence[str] = ()) -> list[ScheduleRow]:
        return await self._read(lambda tx: schedules.schedules(tx, names))

    async def schedule_runs(self, name: str, limit: int = 100, before: int | None = None) -> list[ScheduleRun]:
        return await self._read(lambda tx: schedules.runs(tx, name, limit, before))

    async def set_dependencies(self, links: Sequence[ScheduleDependency]) -> None:
        await self._write(lambda tx: parts.link(tx, links))

    async def dependencies(self) -> list[ScheduleDependencyRow]:
        return await self._read(parts.links)

    # ---- small documents ----------------------------------------------------------------------

    async def put_document(self, doc: Document) -> Document:
        return await self._write(lambda tx: reports.put(tx, doc))

    async def documents(self, kind: str) -> list[Document]:
        return await self._read(lambda tx: reports.docs(tx, kind))

    # ---- fork (see fork.py) --------------------------------------------------------------------

    def parts(self) -> list[Writer | Reader]:
        return [self._writer] if self._reader is None else [self._writer, self._reader]

    def let_go_after_fork(self) -> None:
        self._gate.close()
        self._wake.let_go_after_fork()

    # ---- private ------------------------------------------------------------------------------

    async def _write(self, work: Callable[[Tx], R], *, optional: bool = False) -> R:
        self._check_open()
        try:
            done: R = await self._writer.send(work, optional=optional)
            return done
        except _DRIVER as error:
            raise self._explained(error, optional=optional) from error

    async def _read(self, work: Callable[[Tx], R]) -> R:
        if self._reader is None or not self._writer.is_open:
            return await self._write(work)
        self._check_open()
        try:
            found: R = await self._reader.ask(work)
            return found
        except _DRIVER as error:
            raise self._explained(error) from error

    def _explained(self, error: Exception, *, optional: bool = False) -> Exception:
        """What a driver's error means; ``optional`` calls may be the caller's who holds the lock himself."""
        if optional and is_busy(error):
            return explain_busy(self._gate, self.url)
        return self.translate(error) or error

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store was closed", url=self.url, hint="Open a new one.")


def _nothing(_: Tx) -> None:
    """To connect is enough."""
