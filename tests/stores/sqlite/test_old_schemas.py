"""Opening migrates files of older schemas, with everything in them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from mainspring.common.ids import new_ids
from mainspring.jobs.query import Query
from mainspring.jobs.records import Edge, Retention, TallyRow
from mainspring.limits.records import Bucket
from mainspring.states import Reason, State
from mainspring.stores.sqlite import SqliteStore
from mainspring.stores.sqlite.driver import schema
from mainspring.stores.sqlite.driver.statements import SqliteStatements

from .helpers import Worker, batch, job, succeeded

READY, DONE, DEAD = (each.bytes for each in new_ids(3))
COLUMNS = "id, state, task, queue, lane, priority, seq, crash_limit, early, enqueued, record"
COMMON = ("shop.tasks.send", "q", "q/any", 0, 1, 3, 0, 5, b"{}")


@pytest.fixture
def old(path: Path) -> Path:
    """A file with the first schema and a job in each table."""
    sql = SqliteStatements("mainspring_")
    connection = sqlite3.connect(path)
    connection.execute("pragma journal_mode=wal")
    connection.execute(sql["create_meta"])
    connection.executescript(sql["migration_1"])
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
async def test_jobs_of_the_first_schema_run(old: Path) -> None:
    store = SqliteStore(str(old), durability="normal")
    assert await store.migrate() == (1, schema.VERSION)
    found = {each.id: each.state for each in (await store.find(Query.everything())).jobs}
    assert found == {READY: State.READY, DONE: State.SUCCEEDED, DEAD: State.DEAD}
    assert await store.tally(Query.everything(), "error") == [TallyRow("crashed", State.DEAD, 1, 7, 7)]
    worker = await Worker(store).join()
    (claim,) = await worker.take()
    await worker.turn(succeeded(claim))
    assert await store.prune(Retention(keep=10**10, keep_dead=10**10)) == 2
    assert [each.id for each in (await store.find(Query.everything())).jobs] == [READY]
    await store.close()


@pytest.mark.asyncio
async def test_a_migrated_file_has_the_schema_of_a_new_file(old: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh.db"
    for path in (old, fresh):
        store = SqliteStore(str(path), durability="normal")
        await store.open()
        await store.close()
    assert _shape(old) == _shape(fresh)


LIMITED = tuple(each.bytes for each in new_ids(4))


@pytest.fixture
def third(path: Path) -> Path:
    """A file with the third schema and a limit of size 2: one job runs, two wait, and a suspect waits beside them."""
    sql = SqliteStatements("mainspring_")
    connection = sqlite3.connect(path)
    connection.execute("pragma journal_mode=wal")
    connection.execute(sql["create_meta"])
    for number in (1, 2, 3):
        connection.executescript(sql[f"migration_{number}"])
    connection.execute(sql["set_version"], ("default", 3))
    for n, id in enumerate(LIMITED):
        lane, buckets = ("q/any!", None) if n == 3 else ("q/any#gate,tenant:7", '[["gate",2],["tenant:7",9]]')
        values = (id, "ready" if n else "running", "shop.tasks.send", "q", lane, 0, n, 3, 0, 5, b"{}", buckets)
        connection.execute(f"insert into mainspring_jobs ({COLUMNS}, buckets) values ({_marks(12)})", values)
    connection.execute("update mainspring_jobs set flags = 4 where buckets is not null")
    connection.execute("update mainspring_jobs set worker = 'old', token = 9, attempt = 1 where state = 'running'")
    connection.execute(
        "insert into mainspring_lanes values (?, 'q/any', 0, null, ?), ('q/any!', 'q/any', 1, null, null)",
        ("q/any#gate,tenant:7", '[["gate",2],["tenant:7",9]]'),
    )
    connection.execute("insert into mainspring_buckets values ('gate', 2), ('tenant:7', 9)")
    connection.executemany(
        "insert into mainspring_job_holds values (?, ?, 9)", [(n, LIMITED[0]) for n in ("gate", "tenant:7")]
    )
    connection.execute("update mainspring_counters set value = 9")
    connection.commit()
    connection.close()
    return path


@pytest.mark.asyncio
async def test_limits_of_the_third_schema_hold(third: Path) -> None:
    store = SqliteStore(str(third), durability="normal")
    assert await store.migrate() == (3, schema.VERSION)
    assert [(row.limit.name, row.limit.size) for row in await store.limits()] == [("gate", 2), ("tenant:7", 9)]
    (found,) = (await store.find(Query(ids=LIMITED[1:2]))).jobs
    assert found.buckets == (Bucket("gate"), Bucket("tenant:7"))
    worker = await Worker(store).join()
    assert [claim.id for claim in await worker.take(9)] == [LIMITED[3], LIMITED[1]]
    (bucket,) = await store.buckets([Bucket("gate")])
    assert (bucket.used, bucket.holders) == (2, LIMITED[:2])
    await store.set_limit_size("gate", 3)
    assert [claim.id for claim in await worker.take(9)] == [LIMITED[2]]
    await store.close()


def _shape(path: Path) -> list[tuple[str, str]]:
    connection = sqlite3.connect(path)
    rows = connection.execute("select name, sql from sqlite_master order by name").fetchall()
    connection.close()
    return rows


@pytest.mark.asyncio
async def test_edges_and_history_of_the_fifth_schema_stay(path: Path) -> None:
    """The checks of both tables allow more than they did."""
    parent, child, done = (each.bytes for each in new_ids(3))
    sql = SqliteStatements("mainspring_")
    connection = sqlite3.connect(path)
    connection.execute("pragma journal_mode=wal")
    connection.execute(sql["create_meta"])
    for number in range(1, 6):
        connection.executescript(sql[f"migration_{number}"])
    connection.execute(sql["set_version"], ("default", 5))
    for id, state, deps, flags in ((parent, "ready", 0, 1), (child, "blocked", 1, 0)):
        values = (id, state, *COMMON, deps, flags)
        connection.execute(f"insert into mainspring_jobs ({COLUMNS}, deps, flags) values ({_marks(13)})", values)
    connection.execute("insert into mainspring_edges values (?, ?, 'fail')", (parent, child))
    connection.execute(
        f"insert into mainspring_finished ({COLUMNS}, attempt, epoch, crashes, token, finished, keep, drop_at)"
        f" values ({_marks(18)})",
        (done, "succeeded", *COMMON, 1, 1, 0, 1, 7, 3, 10),
    )
    connection.commit()
    connection.close()
    store = SqliteStore(str(path), durability="normal")
    assert await store.migrate() == (5, schema.VERSION)
    (found,) = (await store.find(Query(ids=(done,)))).jobs
    assert (found.state, found.finished) == (State.SUCCEEDED, 7)
    skipped = job(after=(Edge(parent, "failed"),))
    await store.enqueue(batch(skipped))
    worker = await Worker(store).join()
    await worker.turn(*map(succeeded, await worker.take(1)))
    after = {each.id: (each.state, each.reason) for each in (await store.find(Query.everything())).jobs}
    assert after[child] == (State.READY, None)
    assert after[skipped.id] == (State.CANCELLED, Reason.BYPASSED)
    assert await store.prune(Retention()) == 1
    await store.close()
