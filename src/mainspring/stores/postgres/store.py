"""The PostgreSQL engine: every method is one statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString

from mainspring.clock import Clock
from mainspring.errors import InvalidOption, StoreError, mask_url
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
from mainspring.states import LIVE, Action, State
from mainspring.stores.base import CRASH_DELAYS, Batch, Turn
from mainspring.stores.postgres import enqueue, errors, fleet, migrate, places, turns
from mainspring.stores.postgres.session import Sessions
from mainspring.stores.postgres.statements import fill, schema_of, statement
from mainspring.stores.postgres.unbuilt import Unbuilt, check_query, not_built

_PROMOTE = "select * from {schema}.promote_v1(%(limit)s::integer, %(now)s::bigint)"
_CANCEL = "select * from {schema}.cancel_v1(%(ids)b::bytea[], %(reason)s::text, %(now)s::bigint)"
_DURABILITY = "select current_setting('synchronous_commit'), current_setting('fsync')"


class PostgresStore(Unbuilt):
    """A :class:`~mainspring.stores.base.Store` in one schema of a PostgreSQL database.

    ``durability="full"`` commits as the server is set up to (see :meth:`durability`), ``"normal"`` does not wait
    for the disk.
    ``prepare_threshold=None`` never prepares on the server: for poolers that give each transaction another session.
    """

    engine = "postgres"

    def __init__(
        self,
        url: str,
        *,
        namespace: str = "default",
        durability: str = "full",
        clock: Clock | None = None,
        prepare_threshold: int | None = 5,
        pool_size: int = 4,
    ) -> None:
        if durability not in {"full", "normal"}:
            raise InvalidOption("durability", durability, "is not one of 'full', 'normal'")
        self.url = mask_url(url)
        self.schema = schema_of(namespace)
        self._clock = clock
        self._relaxed = durability == "normal"
        self._sessions = Sessions(url, relaxed=self._relaxed, prepare_threshold=prepare_threshold, pool_size=pool_size)

    # ---- life -----------------------------------------------------------------------------------------

    async def open(self) -> None:
        await self._sessions.open()
        async with await self._sessions.connect() as connection:
            migrate.refuse_newer(await migrate.read_version(connection, self.schema), self.schema, self.url)

    async def close(self) -> None:
        await self._sessions.close()

    async def migrate(self) -> tuple[int, int]:
        async with await self._sessions.connect() as connection:
            return await migrate.migrate(connection, self.schema, self.url)

    async def durability(self) -> str:
        """``postgres:full`` when commits wait for the disk, ``postgres:normal`` when they need not;
        else which of the server's settings says otherwise."""
        ((commit, fsync),) = await self._sessions.rows(_DURABILITY, {})
        if fsync == "off":
            return "postgres:fsync=off"
        if self._relaxed:
            return "postgres:normal"
        return "postgres:full" if commit != "off" else "postgres:synchronous_commit=off"

    def translate(self, error: Exception) -> StoreError | None:
        return errors.translate(error, self.url)

    # ---- jobs -----------------------------------------------------------------------------------------

    async def enqueue(self, batch: Batch) -> list[Enqueued]:
        return enqueue.reply(batch, await self._sessions.rows(*enqueue.call(batch, self.schema, self._now())))

    def enqueue_now(self, batch: Batch, connection: Any = None) -> list[Enqueued]:
        sql, params = enqueue.call(batch, self.schema, self._now())
        if connection is None:
            return enqueue.reply(batch, self._sessions.rows_now(sql, params))
        return enqueue.reply(batch, enqueue.in_callers_transaction(connection, sql, params, schema=self.schema))

    async def turn(self, turn: Turn) -> Turned:
        acks, unstorable, again = turns.sift(turn.acks)
        rows = await self._sessions.rows(*turns.call(turn, acks, self.schema, self._now()))
        return turns.reply(rows, unstorable, again)

    async def promote(self, limit: int = 1000) -> Promoted:
        ((now, promoted, expired, queues, due),) = await self._sessions.rows(
            self._text(_PROMOTE), {"limit": limit, "now": self._now()}
        )
        return Promoted(now, promoted, expired, tuple(queues), due)

    async def rescue(self, worker: str, number: int, cause: Outcome, delays: Sequence[int] = CRASH_DELAYS) -> Rescued:
        call = fleet.rescue(worker, number, cause, delays, schema=self.schema, now=self._now())
        return fleet.rescued(await self._sessions.rows(*call))

    async def find(self, query: Query, *, limit: int = 100, cursor: str | None = None) -> Found:
        sql = statement("find", self.schema)
        # Never prepared: the plan depends on which of its conditions are there.
        return places.found(await self._sessions.rows(sql, places.find(query, limit, cursor), prepare=False), limit)

    async def count(self, query: Query) -> dict[State, int]:
        sql = statement("count", self.schema)
        return places.counted(await self._sessions.rows(sql, places.filters(query), prepare=False))

    async def attempts(self, job: bytes) -> list[AttemptRow]:
        rows = await self._sessions.rows(statement("attempts", self.schema), {"job": job})
        return [places.attempt_row(row) for row in rows]

    async def act(
        self, action: Action, query: Query, *, limit: int = 1000, reason: str = "", priority: int = 0
    ) -> Acted:
        if action is not Action.CANCEL:
            not_built(f"act({action.value})", priority)
        check_query(query)
        if query.empty:
            raise InvalidOption("query", query, "an empty query means nothing", hint="Say Query.everything().")
        ids = await self._candidates(query, limit)
        rows = await self._sessions.rows(self._text(_CANCEL), {"ids": ids, "reason": reason, "now": self._now()})
        return Acted(
            done=tuple(job for job, state in rows if state is None),
            refused=tuple((job, State(state)) for job, state in rows if state is not None),
            more=len(ids) == limit,
        )

    # ---- fleet ----------------------------------------------------------------------------------------

    async def beat(self, beats: Sequence[Beat]) -> list[Beaten]:
        return fleet.beaten(beats, await self._sessions.rows(*fleet.beat(beats, self.schema, self._now())))

    async def retire(
        self, worker: str, cause: Outcome, acks: Sequence[Ack] = (), delays: Sequence[int] = CRASH_DELAYS
    ) -> Rescued:
        good, _, _ = turns.sift(acks)
        call = fleet.retire(worker, cause, good, delays, schema=self.schema, now=self._now())
        return fleet.rescued(await self._sessions.rows(*call))

    async def workers(self) -> list[WorkerRow]:
        return [fleet.worker_row(row) for row in await self._sessions.rows(statement("workers", self.schema), {})]

    # ---- private --------------------------------------------------------------------------------------

    def _now(self) -> int | None:
        return None if self._clock is None else self._clock.now_us()

    def _text(self, template: str) -> LiteralString:
        return fill(template, self.schema)

    async def _candidates(self, query: Query, limit: int) -> list[bytes]:
        """The jobs to act upon: those named, or the live ones that fit and have no order yet."""
        if query.ids is not None and not (query.states or query.queues or query.tasks):
            return list(query.ids[:limit])
        if query.ids is not None or not LIVE.issuperset(query.states):
            return [job.id for job in (await self.find(query, limit=limit)).jobs]
        sql, params = statement("candidates", self.schema), {**places.filters(query), "limit": limit}
        return [row[0] for row in await self._sessions.rows(sql, params, prepare=False)]
