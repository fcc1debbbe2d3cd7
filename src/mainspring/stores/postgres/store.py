"""The PostgreSQL engine: every method is one statement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, LiteralString

import msgspec
import psycopg

from mainspring.common.clock import Clock
from mainspring.errors import InvalidOption, mask_url
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
from mainspring.states import Action, State
from mainspring.stores.base import CRASH_DELAYS, Listener, TallyBy
from mainspring.stores.postgres import act, durability, enqueue, errors, find, fleet, migrate, roles, turns
from mainspring.stores.postgres import reports as told
from mainspring.stores.postgres.blocking import Blocking
from mainspring.stores.postgres.chunks import Chunks
from mainspring.stores.postgres.joint import Producers
from mainspring.stores.postgres.limiting import Limiting
from mainspring.stores.postgres.links import listening_at
from mainspring.stores.postgres.listen import RING, Bell, Ears
from mainspring.stores.postgres.prune import prune
from mainspring.stores.postgres.queues import Queueing
from mainspring.stores.postgres.ringing import SETTLE, Ringing
from mainspring.stores.postgres.scheduling import Scheduling
from mainspring.stores.postgres.session import Rows, Sessions, Step
from mainspring.stores.postgres.statements import fill, schema_of, statement
from mainspring.stores.postgres.strays import LowWater
from mainspring.stores.records import Document, MigrationPlan
from mainspring.worker.records import Beat, BeatResult, RescueResult, Turn, TurnResult, WorkerRow

_PROMOTE = "select * from {schema}.promote_v1(%(limit)s::integer, %(now)s::bigint)"
_PUT = "select * from {schema}.put_v1(%(kind)s::text, %(name)s::text, %(version)s::bigint, %(data)b::bytea)"
_DOCS = "select name, version, data from {schema}.docs where kind = %(kind)s order by name"


class PostgresStore(Limiting, Queueing, Scheduling):
    """A :class:`~mainspring.stores.base.Store` in one schema of a PostgreSQL database.

    ``durability="full"``: commits wait for the disk, and for replicas where the server is set up so; ``"normal"``:
    they need not. ``strict`` refuses a server that cannot keep that.
    ``pooler``: each transaction may get another session, so nothing is prepared on the server or left in a session;
    ``listen_url`` leads past the pooler, for listening needs a session of its own.
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
        self.schema = schema_of(namespace)
        self._clock = clock
        self._strict = strict
        self._sessions = Sessions(url, relaxed=durability == "normal", pooler=pooler, pool_size=pool_size)
        self._producers = Producers(self._insert, self.schema, places=pool_size - 1)
        self._chunks = Chunks(self._sessions, self.schema)
        self._low_water = LowWater(self._sessions.rows, self.schema)
        self._bell = Bell(self.schema)
        self._blocking = Blocking(self._sessions, self.schema, self.url, self._bell)
        self._ears = Ears(self.schema, None if pooler and not listen_url else listening_at(listen_url or url))

    # ---- life -----------------------------------------------------------------------------------------

    async def open(self) -> None:
        if not await self._sessions.open():
            return
        try:
            await migrate.check(self._sessions.rows, self.schema, self.url)
            durability.check(self._sessions.server, strict=self._strict, url=self.url)
        except BaseException:
            await self._sessions.close()
            raise
        self._blocking.looked = True

    async def close(self) -> None:
        self._ears.close()
        self._low_water.close()
        self._blocking.looked = False
        await self._sessions.close()

    async def migrate(self) -> tuple[int, int]:
        async with await self._sessions.connect() as link:
            return await migrate.migrate(link, self.schema, self.url)

    async def migration_plan(self) -> MigrationPlan:
        async with await self._sessions.connect() as link:
            before, script = await migrate.plan(link, self.schema)
        return MigrationPlan(before=before, after=migrate.VERSION, script=script, access=roles.script(self.schema))

    async def durability(self) -> str:
        return durability.class_of(self._sessions.server)

    def translate(self, error: Exception) -> Exception | None:
        return errors.translate(error, self.url)

    # ---- jobs -----------------------------------------------------------------------------------------

    async def enqueue(self, batch: Batch) -> list[Enqueued]:
        return await self._producers.enqueue(batch)

    def enqueue_now(self, batch: Batch, connection: Any = None) -> list[Enqueued]:
        return self._blocking.enqueue(batch, connection, self._now())

    async def turn(self, turn: Turn) -> TurnResult:
        acks, unstorable, again = turns.sift(turn.acks)
        lanes = [lane for want in turn.wants for lane in want.lanes]
        low, lowered = self._low_water.above(lanes), self._low_water.lowered
        try:
            rows = await self._sessions.rows(*turns.call(turn, acks, self.schema, self._now(), low))
        except psycopg.errors.QueryCanceled:
            self._low_water.lost(lanes)
            raise
        if ids := turns.left_behind(rows):
            records = await self._sessions.rows(self._text(turns.RECORDS), {"ids": ids, "worker": turn.worker})
            rows = turns.completed(rows, records)
        said, woken, lows = turns.reply(rows, unstorable, again)
        self._low_water.learn(lows, lowered)
        await self._ring(woken)
        return said

    async def promote(self, limit: int = 1000) -> PromoteResult:
        ((now, promoted, ended, queues, woken, due),) = await self._sessions.rows(
            self._text(_PROMOTE), {"limit": limit, "now": self._now()}
        )
        await self._ring({*queues, *woken})
        return PromoteResult(now, promoted, len(ended), tuple(queues), due, tuple(ended))

    async def rescue(
        self, worker: str, number: int, cause: Outcome, delays: Sequence[int] = CRASH_DELAYS
    ) -> RescueResult:
        call = fleet.rescue(worker, number, cause, delays, schema=self.schema, now=self._now())
        return await self._rescued(call)

    async def report(self, worker: str, reports: Sequence[AttemptReport]) -> list[bool]:
        return [good for (good,) in await self._sessions.rows(*told.report(worker, reports, self.schema))]

    async def find(self, query: Query, *, limit: int = 100, cursor: str | None = None) -> JobRows:
        return find.found(await self._asked(find.find(query, limit, cursor, self.schema)), limit)

    async def count(self, query: Query) -> dict[State, int]:
        return find.counted(await self._asked(find.count(query, self.schema)))

    async def tally(self, query: Query, by: TallyBy) -> list[TallyRow]:
        return find.tallied(await self._asked(find.tally(query, by, self.schema)))

    async def attempts(self, job: bytes) -> list[AttemptRow]:
        rows = await self._sessions.rows(statement("attempts", self.schema), {"job": job})
        return [told.attempt_row(row) for row in rows]

    async def logs(self, job: bytes, after: int = 0) -> list[LogLine]:
        rows = await self._sessions.rows(statement("logs", self.schema), {"job": job, "after": after})
        return [told.log_line(row) for row in rows]

    async def items(self, job: bytes, after: int = 0, limit: int = 1000) -> list[tuple[int, bytes]]:
        asked = {"job": job, "after": after, "limit": max(limit, 0)}
        return [(n, data) for n, data in await self._sessions.rows(statement("items", self.schema), asked)]

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
        listed = await self._asked(
            act.candidates(action, query, limit, priority=priority, schema=self.schema, now=self._now())
        )
        jobs = [job for (job,) in listed]
        said = ActResult(more=len(jobs) > limit)
        for start in range(0, min(len(jobs), limit), act.SLICE):
            part = jobs[start : min(start + act.SLICE, limit)]
            call = act.call(action, query, part, reason=reason, priority=priority, schema=self.schema, now=self._now())
            done, woken = act.acted(await self._sessions.rows(*call), named=query.ids is not None)
            said = act.together(said, done)
            await self._ring(woken)
        return said

    async def prune(self, retention: Retention, limit: int = 1000) -> int:
        """A day of history that is over goes whole, however many jobs it had; by a test's clock they go one by one."""
        went = 0 if self._clock is not None else await self._chunks.keep_up(retention)
        if went is None:
            return limit
        ((gone,),) = await self._sessions.rows(*prune(retention, limit, self.schema, self._now()))
        return went + int(gone)

    # ---- fleet ----------------------------------------------------------------------------------------

    async def beat(self, beats: Sequence[Beat]) -> list[BeatResult]:
        return fleet.beaten(beats, await self._sessions.rows(*fleet.beat(beats, self.schema, self._now())))

    async def retire(
        self, worker: str, cause: Outcome, acks: Sequence[Ack] = (), delays: Sequence[int] = CRASH_DELAYS
    ) -> RescueResult:
        good, _, _ = turns.sift(acks)
        call = fleet.retire(worker, cause, good, delays, schema=self.schema, now=self._now())
        return await self._rescued(call)

    async def notify(self, queues: Sequence[str]) -> None:
        await self._sessions.rows(RING, {"channels": self._bell.channels(queues)})

    async def listen(self, worker: str, queues: Sequence[str]) -> Listener:  # noqa: ARG002 - a channel names no worker
        return await self._ears.listen(queues)

    async def workers(self) -> list[WorkerRow]:
        return [fleet.worker_row(row) for row in await self._sessions.rows(statement("workers", self.schema), {})]

    # ---- small documents ------------------------------------------------------------------------------

    async def put_document(self, doc: Document) -> Document:
        ((version, data),) = await self._sessions.rows(self._text(_PUT), msgspec.structs.asdict(doc))
        return Document(doc.kind, doc.name, version, data)

    async def documents(self, kind: str) -> list[Document]:
        return [Document(kind, *row) for row in await self._sessions.rows(self._text(_DOCS), {"kind": kind})]

    # ---- private --------------------------------------------------------------------------------------

    async def _asked(self, call: Step | None) -> Rows:
        """The rows of a question. Never prepared: its plan depends on what is asked for."""
        return [] if call is None else await self._sessions.rows(*call, prepare=False)

    async def _rescued(self, call: Step) -> RescueResult:
        rows = await self._sessions.rows(*call)
        await self._ring({woken for _, state, woken in rows if woken is not None and state is None})
        return fleet.rescued(rows)

    async def _insert(self, batch: Batch, *first: Step) -> list[Enqueued]:
        ringing = Ringing(self._bell, batch, enqueue.call(batch, self.schema, self._now()))
        rows = ringing.ran(await self._sessions.rows(*ringing.step, first=first))
        if ringing.unsettled and self._sessions.patient:
            await self._sessions.rows(*SETTLE)
        await self._tell(ringing.left(rows))
        return enqueue.reply(batch, rows)

    async def _ring(self, queues: Iterable[str]) -> None:
        """Wake listeners of these queues, after the commit."""
        await self._tell(self._bell.due(queues))

    async def _tell(self, channels: list[str]) -> None:
        """What goes wrong here is made good by the polls of those who listen."""
        if channels:
            with suppress(psycopg.Error):
                await self._sessions.rows(RING, {"channels": channels})

    def _now(self) -> int | None:
        return None if self._clock is None else self._clock.now_us()

    def _text(self, template: str) -> LiteralString:
        return fill(template, self.schema)
