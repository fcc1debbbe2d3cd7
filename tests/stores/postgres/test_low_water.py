"""Dead rows that vacuum cannot remove: claims do not walk over them, and no job is overlooked for long."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import psycopg
import pytest
import pytest_asyncio

from mainspring.jobs.records import JobBatch, NewJob
from mainspring.queues.records import QueueSettings
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.postgres.jobs.claim import low_water
from mainspring.stores.postgres.turn import turn_call
from mainspring.testing.contract.hands import LANE, Hand, bucket, ids, job, put_in
from mainspring.worker.records import Claim, Turn, Want

DEAD = int(os.environ.get("MAINSPRING_TEST_DEAD", "50000"))
"""How many; 2,000,000 by hand or at night."""

_FILL = """
insert into {schema}.jobs (id, state, task, queue, home, lane, priority, seq, crash_limit, early, enqueued, record)
select decode(md5(n::text), 'hex'), 'ready',
    'shop.tasks.send', 'q', 'q/any', 'q/any', 0, nextval('{schema}.seq'), 3, false, 1, '{}'
from generate_series(1, %s) n
"""

pytestmark = pytest.mark.new_schema


class Grave:
    """A store with many dead rows, which an open snapshot keeps from being vacuumed."""

    def __init__(self, url: str, store: PostgresStore) -> None:
        self._url = url
        self.store = store
        self.holder = psycopg.connect(url)

    def run(self, text: str, *args: object) -> None:
        with psycopg.connect(self._url, autocommit=True) as owner:
            owner.execute(text.replace("{schema}", self.store.schema).encode(), args or None)

    def dig(self, n: int) -> None:
        self.run(_FILL, n)
        self.holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        self.holder.execute("select 1 from pg_class limit 1")
        self.run("delete from {schema}.jobs")

    def fill_in(self) -> None:
        """The snapshot is over, and what was dead is gone."""
        self.holder.rollback()
        self.run("vacuum {schema}.jobs")

    def marks(self) -> dict[tuple[str, int], int]:
        return dict(self.store._low_water._marks)

    async def walked(self, hand: Hand) -> int:
        """How many index entries a turn of this worker would read; it is undone."""
        turn = Turn(worker=hand.name, number=hand.number + 1, seen=hand.number, wants=(Want((LANE,), 10),))
        sql, params = turn_call(turn, [], self.store.schema, None, self.store._low_water.params([LANE]))
        read = f"select pg_stat_get_xact_tuples_returned('{self.store.schema}.jobs_ready'::regclass)".encode()
        with psycopg.connect(self._url) as side:
            before = side.execute(read).fetchone()
            assert [row[0] for row in side.execute(sql, params, binary=True) if row[0] == "claim"]
            after = side.execute(read).fetchone()
            side.rollback()
        assert before is not None
        assert after is not None
        return int(after[0] - before[0])


@pytest_asyncio.fixture
async def grave(store: PostgresStore, postgres_owner_url: str) -> AsyncIterator[Grave]:
    grave = Grave(postgres_owner_url, store)
    yield grave
    grave.holder.close()


@pytest_asyncio.fixture
async def hand(store: PostgresStore) -> Hand:
    return await Hand(store).join()


async def marked(store: PostgresStore) -> None:
    for _ in range(60_000):
        if store._low_water._marks:
            return
        await asyncio.sleep(0.01)
    pytest.fail("there are no marks")


async def take(store: PostgresStore, hand: Hand, n: int) -> tuple[Claim, ...]:
    """Claims, however long the first walk takes."""
    try:
        return await hand.take(n)
    except psycopg.errors.QueryCanceled:
        await marked(store)
        return (await hand.repeat()).claims


@contextmanager
def uncommitted(store: PostgresStore, url: str, *jobs: NewJob) -> Iterator[None]:
    """Jobs that have their places in the line, and whose transaction commits at the end of the block."""
    with psycopg.connect(url) as late:
        store.enqueue_now(JobBatch(id=os.urandom(16), jobs=jobs), late)
        yield


class TestMarks:
    async def test_without_dead_rows_there_are_no_marks(self, grave: Grave, store: PostgresStore, hand: Hand) -> None:
        for _ in range(3):
            await put_in(store, *(job() for _ in range(50)))
            await hand.succeed(*await hand.take(50))
        assert grave.marks() == {}

    async def test_a_claim_that_read_dead_rows_sets_a_mark_and_the_next_starts_there(
        self, grave: Grave, store: PostgresStore, hand: Hand
    ) -> None:
        grave.dig(DEAD)
        made = await put_in(store, *(job() for _ in range(30)))
        claims = await take(store, hand, 10)
        assert [place for place, _ in grave.marks().items()] == [(LANE, 0)]
        assert await grave.walked(hand) < 500
        rest = [*await hand.take(15), *await hand.take(10)]
        assert ids([*claims, *rest]) == [each.id for each in made]
        await hand.succeed(*claims, *rest)

    async def test_a_lifo_queue_has_no_marks(self, grave: Grave, store: PostgresStore, hand: Hand) -> None:
        """Its newest job would be below the mark and would not be found."""
        await store.configure_queue("q", QueueSettings(order="lifo"))
        grave.dig(DEAD)
        made = await put_in(store, *(job() for _ in range(5)))
        assert len(await take(store, hand, 10)) == len(made)
        assert grave.marks() == {}
        (newest,) = await put_in(store, job())
        assert ids(await take(store, hand, 10)) == [newest.id]

    async def test_index_entries_known_to_be_dead_set_a_mark_too(
        self, grave: Grave, store: PostgresStore, hand: Hand
    ) -> None:
        """No snapshot is held and no vacuum has run: a reader marks the entries as dead, and later readers skip
        them.
        """
        grave.run("alter table {schema}.jobs set (autovacuum_enabled = off)")
        grave.dig(DEAD)
        grave.holder.rollback()
        (waiting,) = await put_in(store, job())
        while await grave.walked(hand) > 500:  # somebody's snapshot may be older: then they are not known to be dead
            await put_in(store, job())
        assert ids(await take(store, hand, 1)) == [waiting.id]
        assert [place for place, _ in grave.marks().items()] == [(LANE, 0)]

    async def test_the_dead_rows_of_an_empty_lane_are_read_once(
        self, grave: Grave, store: PostgresStore, hand: Hand
    ) -> None:
        grave.dig(3_000)
        assert await hand.take(10) == ()
        assert [place for place, _ in grave.marks().items()] == [(LANE, 0)]
        (late,) = await put_in(store, job())
        assert await grave.walked(hand) < 500
        assert ids(await hand.take(10)) == [late.id]

    async def test_a_worker_that_cannot_finish_a_claim_in_time_searches_for_the_first_job(
        self, grave: Grave, store: PostgresStore, hand: Hand
    ) -> None:
        """It starts when there are too many dead rows for the time of one call."""
        grave.dig(3_000)
        made = await put_in(store, job(), job(priority=50), job())
        store._low_water.search_heads([LANE])
        await marked(store)
        assert [place for place, _ in grave.marks().items()] == [(LANE, 50)]
        assert ids(await hand.take(10)) == [made[1].id, made[0].id, made[2].id]

    async def test_jobs_of_other_priorities_and_lanes_are_found_at_once(
        self, grave: Grave, store: PostgresStore, hand: Hand
    ) -> None:
        grave.dig(3_000)
        (first,) = await put_in(store, job())
        assert ids(await hand.take(1)) == [first.id]
        assert grave.marks()
        low, high, plain, limited = await put_in(
            store, job(priority=-50), job(priority=50), job(), job(buckets=[bucket("b", 1)])
        )
        claims: list[Claim] = []
        while len(claims) < 4:
            claims += await hand.take(1)
        found = ids(claims)
        assert set(found) == {low.id, high.id, plain.id, limited.id}
        in_lane = [each for each in found if each != limited.id]
        assert in_lane == [high.id, plain.id, low.id]
        assert {priority for _, priority in grave.marks()} == {-50, 0, 50}

    async def test_marks_are_removed_when_the_dead_rows_are_gone(
        self, grave: Grave, store: PostgresStore, hand: Hand
    ) -> None:
        grave.dig(3_000)
        await put_in(store, *(job() for _ in range(3)))
        await hand.take(1)
        await store._low_water.search_strays()
        assert grave.marks()
        for _ in range(100):  # a snapshot of somebody else keeps the dead from the vacuum for a moment
            grave.fill_in()
            await store._low_water.search_strays()
            if not grave.marks():
                break
        assert grave.marks() == {}
        assert len(await hand.take(5)) == 2

    async def test_without_marks_there_is_no_search_for_stray_jobs(
        self, grave: Grave, store: PostgresStore, hand: Hand
    ) -> None:
        await put_in(store, job())
        await hand.take(1)
        assert store._low_water._task is None


class TestStrayJobs:
    async def test_a_job_that_committed_late_is_found_below_the_mark(
        self, grave: Grave, store: PostgresStore, postgres_url: str, hand: Hand
    ) -> None:
        stray = job()
        with uncommitted(store, postgres_url, stray):
            grave.dig(3_000)
            await put_in(store, *(job() for _ in range(5)))
            assert len(await hand.take(5)) == 5
        assert await hand.take(5) == ()
        await store._low_water.search_strays()
        assert ids(await hand.take(5)) == [stray.id]

    async def test_the_search_for_stray_jobs_runs_by_itself(
        self, grave: Grave, store: PostgresStore, postgres_url: str, hand: Hand, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(low_water, "PERIOD", 0.01)
        stray = job()
        with uncommitted(store, postgres_url, stray):
            grave.dig(3_000)
            await put_in(store, job())
            assert len(await hand.take(5)) == 1
        task = store._low_water._task
        assert task is not None
        found: tuple[Claim, ...] = ()
        for _ in range(500):
            if found := await hand.take(5):
                break
        assert ids(found) == [stray.id]
        grave.fill_in()
        await task


class TestWarning:
    async def test_the_holder_of_an_old_snapshot_is_named(
        self,
        grave: Grave,
        store: PostgresStore,
        postgres_url: str,
        hand: Hand,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        grave.holder.close()
        grave.holder = psycopg.connect(postgres_url)  # of the same role, so it may be seen
        monkeypatch.setattr(low_water, "OLD", 0.0)
        grave.dig(3_000)
        await put_in(store, job())
        await hand.take(1)
        with caplog.at_level(logging.WARNING, "mainspring.store"):
            await store._low_water.search_strays()
        (line,) = [record.getMessage() for record in caplog.records]
        assert f"process {grave.holder.info.backend_pid} " in line
