"""Opening migrates a file of version 1, and its jobs stay as they were."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mainspring.common.ids import new_id
from mainspring.errors import SchemaOutdated
from mainspring.jobs.outcomes import Ack, Lease
from mainspring.jobs.query import Query
from mainspring.jobs.records import Enqueued, FollowUp, Retention, UniqueKey
from mainspring.queues.records import QueueMode, QueueRow
from mainspring.states import Action, Reason, State
from mainspring.stores.sqlite import SqliteStore
from mainspring.stores.sqlite.driver import schema
from mainspring.stores.sqlite.driver.statements import SqliteStatements
from mainspring.worker.records import Turn

from .helpers import TASK, Worker, batch, close, enqueue, job, states, succeeded

LANE, TOKEN = "q/any", 7
READY, LATER, RUNNING, CHILD, DONE, DEAD, CANCELLED = (new_id().bytes for _ in range(7))


def insert(connection: sqlite3.Connection, table: str, **values: Any) -> None:
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    connection.execute(f"insert into mainspring_{table} ({names}) values ({marks})", list(values.values()))


def first_version(path: Path) -> None:
    """A file as version 1 wrote it: a job in each state, a child that waits, and the worker that runs its parent."""
    connection = sqlite3.connect(path)
    sql = SqliteStatements("mainspring_")
    connection.execute(sql["create_meta"])
    for statement in sql["migration_1"].split(";"):
        connection.execute(statement)
    connection.execute(sql["set_version"], ("default", 1))
    live = {"queue": "q", "lane": LANE, "task": TASK, "priority": 3, "crash_limit": 3, "early": 0, "enqueued": 1}
    insert(connection, "jobs", id=READY, state="ready", seq=1, record=b"ready", **live)
    insert(connection, "jobs", id=LATER, state="scheduled", seq=2, due=2**60, record=b"later", **live)
    insert(
        connection, "jobs", id=RUNNING, state="running", seq=3, token=TOKEN, worker="w", turn=1, attempt=1, started=2,
        flags=1, record=b"running", **live,
    )  # fmt: skip
    insert(connection, "jobs", id=CHILD, state="blocked", seq=4, deps=1, record=b"child", **live)
    insert(connection, "edges", parent=RUNNING, child=CHILD, policy="fail")
    ended = {**live, "attempt": 1, "epoch": 1, "crashes": 0, "token": 5, "seq": 0, "finished": 9}
    insert(connection, "finished", id=DONE, state="succeeded", result=b"1", record=b"done", **ended)
    insert(connection, "finished", id=CANCELLED, state="cancelled", reason="by_user", note="why", record=b"", **ended)
    insert(connection, "dead", id=DEAD, state="dead", reason="crashed", record=b"dead", **ended)
    insert(
        connection, "workers", id="w", number=1, turn=1, lost=0, started=1, seen=1, queues='["q"]',
        tasks=f'["{TASK}"]', lease=15_000_000, info=b"{}",
    )  # fmt: skip
    connection.execute("update mainspring_counters set value = 4")
    connection.commit()
    connection.close()


@pytest.fixture
def old(path: Path) -> SqliteStore:
    first_version(path)
    return SqliteStore(str(path), durability="normal")


async def records(store: SqliteStore, ids: Sequence[bytes]) -> list[bytes]:
    found = {each.id: each for each in (await store.find(Query(ids=tuple(ids)))).jobs}
    return [found[id].record for id in ids]


async def test_every_job_keeps_its_state(old: SqliteStore) -> None:
    await old.open()
    assert await old.migrate() == (1, schema.VERSION)
    assert await states(old) == {
        State.READY: 1, State.SCHEDULED: 1, State.RUNNING: 1, State.BLOCKED: 1, State.SUCCEEDED: 1, State.DEAD: 1,
        State.CANCELLED: 1,
    }  # fmt: skip
    kept = await records(old, (READY, LATER, RUNNING, CHILD, DONE, DEAD))
    assert kept == [b"ready", b"later", b"running", b"child", b"done", b"dead"]
    (cancelled,) = (await old.find(Query(ids=(CANCELLED,)))).jobs
    assert (cancelled.reason, cancelled.note) == (Reason.BY_USER, "why")
    assert [(each.value, each.count) for each in await old.tally(Query.everything(), "error")] == [("crashed", 1)]
    await close(old)


async def test_old_jobs_run_to_their_end(old: SqliteStore) -> None:
    """The running job is acked, its child released, waiting jobs are claimed, ended jobs retried, all are pruned."""
    said = await old.turn(Turn(worker="w", number=2, seen=1, acks=(Ack.succeeded(Lease(RUNNING, TOKEN), b"2"),)))
    assert (said.already, said.stale) == ((), ())
    await old.act(Action.RUN_NOW, Query(ids=(LATER,)))
    await old.act(Action.RETRY, Query(ids=(DEAD, DONE)))
    worker = await Worker(old, "new").join()
    claims = await worker.take(9)
    assert {claim.id for claim in claims} == {READY, LATER, CHILD, DEAD, DONE}
    await worker.turn(*(succeeded(claim) for claim in claims))
    assert await states(old) == {State.SUCCEEDED: 6, State.CANCELLED: 1}
    assert await old.prune(Retention(keep=0, keep_count=0, keep_at_least=-1)) == 7
    await close(old)


async def test_new_features_work_beside_old_jobs(old: SqliteStore) -> None:
    await old.open()
    made = job(unique=UniqueKey(b"k" * 16), marks=("red",), follows=(FollowUp(State.CANCELLED, job(id=bytes(16))),))
    assert await old.enqueue(batch(made)) == [Enqueued(made.id, True)]
    assert await old.enqueue(batch(job(unique=UniqueKey(b"k" * 16)))) == [Enqueued(made.id, False)]
    assert [each.id for each in (await old.find(Query(marks=("red",)))).jobs] == [made.id]
    await old.set_queue_mode(["q"], QueueMode.PAUSED)
    assert [(each.name, each.mode) for each in await old.queues()] == [("q", QueueMode.PAUSED)]
    assert isinstance((await old.queues())[0], QueueRow)
    await old.act(Action.CANCEL, Query(ids=(made.id,)))
    assert (await states(old))[State.READY] == 2
    await close(old)


def test_a_callers_transaction_never_migrates(path: Path) -> None:
    """The tables are changed when the store is opened, never by an enqueue in the transaction of a caller."""
    first_version(path)
    store, mine = SqliteStore(str(path)), sqlite3.connect(path)
    mine.execute("create table orders (x)")
    mine.execute("insert into orders values (1)")
    with pytest.raises(SchemaOutdated, match="number 1"):
        enqueue(store, job(), connection=mine)
    mine.rollback()
    mine.close()
