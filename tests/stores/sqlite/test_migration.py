"""A file that an older version has left is brought up to date with everything in it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from mainspring.ids import new_ids
from mainspring.query import Query
from mainspring.records import Retention, Tally
from mainspring.states import State
from mainspring.stores.sqlite import SqliteStore, schema
from mainspring.stores.sqlite.statements import Statements

from .words import Worker, succeeded

READY, DONE, DEAD = (each.bytes for each in new_ids(3))
COLUMNS = "id, state, task, queue, lane, priority, seq, crash_limit, early, enqueued, record"
COMMON = ("shop.tasks.send", "q", "q/any", 0, 1, 3, 0, 5, b"{}")


@pytest.fixture
def old(path: Path) -> Path:
    """A file with the first schema and a job in each place."""
    sql = Statements("mainspring_")
    connection = sqlite3.connect(path)
    connection.execute("pragma journal_mode=wal")
    connection.execute(sql["meta"])
    connection.executescript(schema._constrained(sql["migration_1"]))
    connection.execute(sql["set_version"], ("default", 1))
    connection.execute(f"insert into mainspring_jobs ({COLUMNS}) values ({_marks(11)})", (READY, "ready", *COMMON))
    for table, row in (("finished", (DONE, "succeeded")), ("dead", (DEAD, "dead"))):
        connection.execute(
            f"insert into mainspring_{table} ({COLUMNS}, reason, attempt, epoch, crashes, token, finished)"
            f" values ({_marks(17)})",
            (*row, *COMMON, "crashed" if table == "dead" else None, 1, 1, 0, 1, 7),
        )
    connection.execute("update mainspring_counters set value = 1")
    connection.commit()
    connection.close()
    return path


def _marks(n: int) -> str:
    return ", ".join("?" * n)


@pytest.mark.asyncio
async def test_the_jobs_of_the_first_schema_live_on(old: Path) -> None:
    store = SqliteStore(str(old), durability="normal")
    assert await store.migrate() == (1, schema.VERSION)
    found = {each.id: each.state for each in (await store.find(Query.everything())).jobs}
    assert found == {READY: State.READY, DONE: State.SUCCEEDED, DEAD: State.DEAD}
    assert await store.tally(Query.everything(), "error") == [Tally("crashed", State.DEAD, 1, 7, 7)]
    worker = await Worker(store).join()
    (claim,) = await worker.take()
    await worker.turn(succeeded(claim))
    assert await store.prune(Retention(keep=10**10, keep_dead=10**10)) == 2
    assert [each.id for each in (await store.find(Query.everything())).jobs] == [READY]
    await store.close()


@pytest.mark.asyncio
async def test_both_schemas_have_the_same_shape(old: Path, tmp_path: Path) -> None:
    """Whether a file was made by this version or brought up to it."""
    fresh = tmp_path / "fresh.db"
    for path in (old, fresh):
        store = SqliteStore(str(path), durability="normal")
        await store.open()
        await store.close()
    assert _shape(old) == _shape(fresh)


def _shape(path: Path) -> list[tuple[str, str]]:
    connection = sqlite3.connect(path)
    rows = connection.execute("select name, sql from sqlite_master order by name").fetchall()
    connection.close()
    return rows
