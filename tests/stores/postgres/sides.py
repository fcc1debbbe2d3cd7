"""Two sides of an interleaving: each is a connection whose transaction stays open until the test lets it end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, LiteralString, TypeVar

import psycopg

from mainspring.jobs.outcomes import CRASH_DELAYS, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import ActResult, AttemptReport, Enqueued, JobBatch, NewJob
from mainspring.limits.records import Bucket, HoldResult, Limit
from mainspring.queues.records import QueueMode
from mainspring.schedules.records import ScheduleSwap, SwapResult
from mainspring.states import Action
from mainspring.stores.postgres import PostgresStore, fleet, holders, queues, schedules
from mainspring.stores.postgres.driver.database import Database
from mainspring.stores.postgres.driver.session import Step
from mainspring.stores.postgres.driver.statements import fill_schema
from mainspring.stores.postgres.jobs import actions, reports
from mainspring.stores.postgres.jobs.claim import LowWaterMarks
from mainspring.stores.postgres.jobs.enqueue import enqueue_call, enqueue_reply
from mainspring.stores.postgres.limits import limits_json
from mainspring.stores.postgres.turn import turn as run_turn
from mainspring.testing.contract.hands import limits_of
from mainspring.worker.records import Beat, BeatResult, RescueResult, Turn, TurnResult

R = TypeVar("R")
PATIENCE = 30.0


class Side:
    """The engine's own statements in a transaction of the test's: begun by the first, ended by commit or rollback."""

    def __init__(self, connection: psycopg.AsyncConnection, schema: str) -> None:
        self.connection = connection
        self.schema = schema
        self.db = SideDatabase(self)

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
        return await run_turn(self.db, LowWaterMarks(self.db), turn)

    async def enqueue(self, *jobs: NewJob, batch: bytes = b"b", retry: bool = False) -> list[Enqueued]:
        made = JobBatch(id=batch, jobs=jobs, retry=retry, limits=limits_of(jobs))
        return enqueue_reply(made, await self.run(*enqueue_call(made, self.schema, None)))

    async def beat(self, worker: str) -> BeatResult:
        (result,) = await fleet.beat(self.db, [Beat(worker)])
        return result

    async def rescue(self, worker: str, number: int, cause: Outcome = Outcome.LOST) -> RescueResult:
        return await fleet.rescue(self.db, worker, number, cause, CRASH_DELAYS)

    async def act(self, action: Action, *ids: bytes, query: Query | None = None) -> ActResult:
        """Act on the jobs that a list named a moment ago; ``query`` is the query of that list, if not these ids."""
        call = actions.act_call(
            action, query or Query(ids=ids), ids, reason="", priority=0, schema=self.schema, now=None
        )
        result, _ = actions.act_reply(await self.run(*call), by_id=query is None)
        return result

    async def report(self, worker: str, report: AttemptReport) -> bool:
        (good,) = await reports.report(self.db, worker, [report])
        return good

    async def set_mode(self, queue: str, mode: QueueMode) -> None:
        await queues.set_queue_mode(self.db, [queue], mode)

    async def declare(self, *declared: Limit) -> None:
        await self.run(f"select {self.schema}.declare_limits_v1(%s::jsonb)", (limits_json(declared),))

    async def swap(self, swap: ScheduleSwap, *jobs: NewJob) -> SwapResult:
        batch = JobBatch(id=swap.name.encode() + jobs[0].id, jobs=jobs) if jobs else None
        return await schedules.swap_schedule(self.db, swap, batch)

    async def hold(self, holder: bytes, buckets: Sequence[Bucket], *limits: Limit, ttl: int) -> HoldResult:
        return await holders.hold(self.db, holder, buckets, ttl, limits, 0, info=b"", fenced=True)

    async def release(self, holder: bytes) -> bool:
        return await holders.release(self.db, holder, (), 0)

    async def prune_others(self) -> None:
        """What a prune does beside jobs."""
        await self.run(f"select {self.schema}.prune_others_v1({self.schema}.now_v1(null), 0)")


class SideDatabase(Database):
    """Runs the statements of the engine's functions in the transaction of a side; wakes no listener."""

    def __init__(self, side: Side) -> None:
        self.schema = side.schema
        self.clock = None
        self._side = side

    async def rows(self, text: str, params: Any = None, **_: Any) -> list[Any]:
        return await self._side.run(fill_schema(text, self.schema), params)

    async def run(self, call: Step) -> list[Any]:
        return await self._side.run(*call)

    async def wake(self, queues: Iterable[str]) -> None:
        pass


class Sides:
    """Opens sides, and knows which side waits for which."""

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
        """Wait until this many connections of this database wait for locks."""
        watcher = await self.open()
        await watcher.connection.set_autocommit(True)
        waiting = (
            "select count(*) from pg_stat_activity"
            " where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0"
        )
        async with asyncio.timeout(PATIENCE):
            while (await watcher.run(waiting))[0][0] < number:  # noqa: ASYNC110  # the event is the server's
                await asyncio.sleep(0.005)
