"""The statements that dependencies and schedules cost other jobs, and the rows that they leave behind."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from mainspring.common.clock import MovableClock
from mainspring.common.ids import new_id
from mainspring.jobs.query import Query
from mainspring.jobs.records import Batch, Retention
from mainspring.schedules.records import ScheduleDependency, ScheduleSwap, part_mark
from mainspring.states import Action, State
from mainspring.stores.sqlite import SqliteStore
from mainspring.stores.sqlite.driver import schema
from mainspring.stores.sqlite.driver.statements import SqliteStatements

from .helpers import Worker, batch, enqueue, job, jobs, states, succeeded
from .test_limits import statements

TABLES = ("mainspring_dependents", "mainspring_dependencies", "mainspring_schedules", "mainspring_schedule_runs")
MARKED: dict[str, Any] = {"marks": (part_mark("x"),)}


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest_asyncio.fixture
async def store(path: Path, clock: MovableClock) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(str(path), durability="normal", clock=clock)
    await opened.open()
    yield opened
    await opened.close()


async def life(store: SqliteStore, **options: Any) -> list[str]:
    """The statements of some jobs from their enqueue to their success."""
    worker = await Worker(store, name=new_id().hex).join()
    with statements(store) as heard:
        await store.enqueue(batch(*jobs(8, **options)))
        claims = await worker.take(8)
        await worker.turn(*(succeeded(claim) for claim in claims))
    assert len(claims) == 8
    return heard


def shape(heard: list[str]) -> list[str]:
    """The first words of each statement, without its values."""
    return [" ".join(text.split()[:4]) for text in heard]


async def test_a_plain_job_runs_no_statement_for_dependencies(store: SqliteStore) -> None:
    """Only the statement of the acks reads dependencies, and no other one is run once dependencies are set."""
    await life(store)  # takes places in the store's order, for many
    before = await life(store)
    (asked,) = (text for text in before if any(table in text for table in TABLES))
    assert "insert into mainspring_finished" in asked
    await store.set_dependencies([ScheduleDependency("x", ("a",))])
    assert shape(await life(store)) == shape(before)


async def test_a_dependency_mark_without_dependents_costs_one_statement(store: SqliteStore) -> None:
    """Its success is applied in bulk like all others. One read for all jobs asks whether their name waits."""
    await store.set_dependencies([ScheduleDependency("y", ("a",))])
    await life(store)
    plain = await life(store, marks=("tag",))
    marked = await life(store, **MARKED)
    more = [text for text in shape(marked) if text not in shape(plain)]
    assert len(marked) == len(plain) + 1
    assert more == ["select 1 from mainspring_dependents"]


async def test_dependencies_hold_in_the_transaction_of_a_caller(store: SqliteStore, path: Path) -> None:
    await store.set_dependencies([ScheduleDependency("x", ("a",))])
    with closing(sqlite3.connect(path)) as mine:
        enqueue(store, job(**MARKED), connection=mine)
        store.enqueue_now(Batch(id=b"b" * 16, jobs=(job(**MARKED),), forced=True), mine)
        mine.commit()
    assert await states(store) == {State.BLOCKED: 1, State.READY: 1}


async def test_no_row_of_dependencies_is_left(store: SqliteStore, path: Path) -> None:
    """Of waiting jobs, of removed dependencies, and of recorded successes."""
    await store.set_dependencies([ScheduleDependency("x", ("a", "b")), ScheduleDependency("y", ("x",))])
    made = jobs(4, **MARKED)
    await store.enqueue(batch(*made))
    await store.act(Action.CANCEL, Query(ids=(made[0].id,)))
    await store.act(Action.DELETE, Query(ids=(made[1].id,)))
    await store.set_dependencies([ScheduleDependency("x", ()), ScheduleDependency("y", ())])
    assert (await states(store))[State.READY] == 2
    with closing(sqlite3.connect(path)) as connection:
        for table in ("mainspring_edges", *TABLES):
            assert connection.execute(f"select count(*) from {table}").fetchall() == [(0,)], table


async def test_a_deleted_schedule_is_forgotten_after_a_day(store: SqliteStore, path: Path, clock: MovableClock) -> None:
    rev = (await store.swap_schedule(ScheduleSwap(name="s", rev=0, doc=b"{}"))).rev
    await store.swap_schedule(ScheduleSwap(name="s", rev=rev, doc=None))
    await store.swap_schedule(ScheduleSwap(name="t", rev=0, doc=b"{}"))
    for wait, left in (("23h", ["s", "t"]), ("2h", ["t"])):
        clock.advance(wait)
        await store.prune(Retention())
        with closing(sqlite3.connect(path)) as connection:
            found = connection.execute("select name from mainspring_schedules order by name").fetchall()
        assert [name for (name,) in found] == left


async def test_children_of_a_file_of_the_fourth_schema_still_wait(path: Path) -> None:
    """Their edges have no position among waiting jobs."""
    sql = SqliteStatements("mainspring_")
    parent, child = jobs(2)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma journal_mode=wal")
        connection.execute(sql["create_meta"])
        for number in (1, 2, 3, 4):
            connection.executescript(sql[f"migration_{number}"])
        connection.execute(sql["set_version"], ("default", 4))
        columns = "id, state, flags, deps, queue, lane, task, priority, seq, crash_limit, early, enqueued, record"
        for id, state, flags, deps in ((parent.id, "ready", 1, 0), (child.id, "blocked", 0, 1)):
            values = (id, state, flags, deps, "q", "q/any", parent.task, 0, 1, 3, 0, 5, b"{}")
            connection.execute(f"insert into mainspring_jobs ({columns}) values ({', '.join('?' * 13)})", values)
        connection.execute("insert into mainspring_edges values (?, ?, 'fail')", (parent.id, child.id))
        connection.execute("update mainspring_counters set value = 1")
        connection.commit()
    store = SqliteStore(str(path), durability="normal")
    assert await store.migrate() == (4, schema.VERSION)
    worker = await Worker(store).join()
    (claim,) = await worker.take()
    assert [each.id for each in (await worker.turn(succeeded(claim), n=1)).claims] == [child.id]
    await store.close()
