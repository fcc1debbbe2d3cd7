"""Two sides of an interleaving: each is a connection whose transaction stays open until the test lets it end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, LiteralString, TypeVar

import psycopg

from mainspring.jobs.outcomes import Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import ActResult, AttemptReport, Batch, Enqueued, NewJob
from mainspring.limits.records import Limit
from mainspring.queues.records import QueueMode
from mainspring.schedules.records import ScheduleDependency, ScheduleSwap, SwapResult
from mainspring.states import Action
from mainspring.stores.base import CRASH_DELAYS
from mainspring.stores.postgres import PostgresStore, act, enqueue, fleet, limits, reports, scheduling, turns
from mainspring.stores.postgres.statements import fill
from mainspring.testing.contract.hands import limits_of
from mainspring.worker.records import Beat, BeatResult, RescueResult, Turn, TurnResult

R = TypeVar("R")
PATIENCE = 30.0


class Side:
    """The engine's own statements in a transaction of the test's: begun by the first, ended by commit or rollback."""

    def __init__(self, connection: psycopg.AsyncConnection, schema: str) -> None:
        self.connection = connection
        self.schema = schema

    @property
    def pid(self) -> int:
        return self.connection.info.backend_pid

    async def run(self, sql: LiteralString, params: Any = None) -> list[Any]:
        return await (await self.connection.execute(sql, params, binary=True)).fetchall()

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()

    async def turn(self, turn: Turn) -> TurnResult:
        acks, unstorable, again = turns.sift(turn.acks)
        said, *_ = turns.reply(await self.run(*turns.call(turn, acks, self.schema, None, {})), unstorable, again)
        return said

    async def enqueue(self, *jobs: NewJob, batch: bytes = b"b", retry: bool = False) -> list[Enqueued]:
        made = Batch(id=batch, jobs=jobs, retry=retry, limits=limits_of(jobs))
        return enqueue.reply(made, await self.run(*enqueue.call(made, self.schema, None)))

    async def beat(self, worker: str) -> BeatResult:
        beats = [Beat(worker)]
        (said,) = fleet.beaten(beats, await self.run(*fleet.beat(beats, self.schema, None)))
        return said

    async def rescue(self, worker: str, number: int, cause: Outcome = Outcome.LOST) -> RescueResult:
        call = fleet.rescue(worker, number, cause, CRASH_DELAYS, schema=self.schema, now=None)
        return fleet.rescued(await self.run(*call))

    async def act(self, action: Action, *ids: bytes, query: Query | None = None) -> ActResult:
        """To the jobs that a list named a moment ago; ``query`` is what was asked for, if not these."""
        asked = query or Query(ids=ids)
        call = act.call(action, asked, ids, reason="", priority=0, schema=self.schema, now=None)
        said, _ = act.acted(await self.run(*call), named=query is None)
        return said

    async def report(self, worker: str, report: AttemptReport) -> bool:
        ((good,),) = await self.run(*reports.report(worker, [report], self.schema))
        return bool(good)

    async def set_mode(self, queue: str, mode: QueueMode) -> None:
        sql = f"select {self.schema}.set_mode_v1(%(queues)b::text[], %(mode)s::text, null)"
        await self.run(sql, {"queues": [queue], "mode": mode.value})

    async def declare(self, *declared: Limit) -> None:
        await self.run(fill(limits.DECLARE, self.schema), {"limits": limits.limits_json(declared)})

    async def swap(self, swap: ScheduleSwap, *jobs: NewJob) -> SwapResult:
        batch = Batch(id=swap.name.encode() + jobs[0].id, jobs=jobs) if jobs else None
        said, _ = scheduling.exchanged(await self.run(*scheduling.exchange(swap, batch, self.schema, None)), batch)
        return said

    async def link(self, *links: ScheduleDependency) -> None:
        await self.run(*scheduling.linking(links, self.schema, None))

    async def give(self, guest: bytes) -> bool:
        ((held, _),) = await self.run(*limits.give(guest, (), 0, schema=self.schema, now=None))
        return bool(held)

    async def tidy(self) -> None:
        """What a prune does beside jobs."""
        await self.run(f"select {self.schema}.tidy_v1({self.schema}.now_v1(null), 0)")


class Sides:
    """Opens sides, and knows who waits for whom."""

    def __init__(self, url: str, store: PostgresStore) -> None:
        self._url = url
        self._schema = store.schema
        self._open: list[psycopg.AsyncConnection] = []

    async def open(self) -> Side:
        connection = await psycopg.AsyncConnection.connect(self._url)
        await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        self._open.append(connection)
        return Side(connection, self._schema)

    async def close(self) -> None:
        for connection in self._open:
            await connection.close()

    async def behind(self, first: Side, second: Side, step: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Start the second side's step while the first holds its locks; once it waits, let the first commit."""
        waiting = asyncio.create_task(step())
        await self.until_blocked(first, second, waiting)
        await first.commit()
        done = await asyncio.wait_for(waiting, PATIENCE)
        await second.commit()
        return done

    async def until_blocked(self, first: Side, second: Side, waiting: asyncio.Task[Any]) -> None:
        """Until the server says that the second side waits for a lock that the first one holds."""
        watcher = await self.open()
        await watcher.connection.set_autocommit(True)
        async with asyncio.timeout(PATIENCE):
            while not (await watcher.run("select %s = any(pg_blocking_pids(%s))", (first.pid, second.pid)))[0][0]:
                assert not waiting.done(), f"it did not wait: {waiting.result()}"
                await asyncio.sleep(0.005)

    async def until_waiting(self, number: int) -> None:
        """Until so many connections of this database wait for locks."""
        watcher = await self.open()
        await watcher.connection.set_autocommit(True)
        waiting = (
            "select count(*) from pg_stat_activity"
            " where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0"
        )
        async with asyncio.timeout(PATIENCE):
            while (await watcher.run(waiting))[0][0] < number:  # noqa: ASYNC110  # the event is the server's
                await asyncio.sleep(0.005)
