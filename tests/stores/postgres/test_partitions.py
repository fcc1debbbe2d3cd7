"""History by the day: partitions are made ahead and dropped whole, and no call waits for that."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from mainspring.jobs.outcomes import Ack
from mainspring.jobs.query import Query
from mainspring.jobs.records import Retention, UniqueKey
from mainspring.states import State
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.postgres.driver.constants import DAYS_AHEAD
from mainspring.testing.contract.hands import ERROR, Hand, job, lease, put_in
from mainspring.worker.records import Claim

DAY = 86_400_000_000
KEEP = Retention(keep=3 * DAY, keep_count=1_000_000)


def day(ago: int) -> str:
    return (datetime.now(UTC) - timedelta(days=ago)).strftime("finished_%Y%m%d")


class History:
    """Looks at the days of a store and makes old ones, by the owner's hand."""

    def __init__(self, url: str, store: PostgresStore) -> None:
        self._url = url
        self.schema = store.schema

    def run(self, text: str, *args: object) -> list[tuple[object, ...]]:
        with psycopg.connect(self._url, autocommit=True) as owner:
            found = owner.execute(text.replace("{schema}", self.schema).encode(), args or None)
            return found.fetchall() if found.description else []

    def days(self) -> set[str]:
        return {str(row[0]) for row in self.run("select name from {schema}.list_partitions_v1()")}

    def make_old(self, ago: int) -> str:
        """A day of the past, to which all that is finished moves."""
        self.run("select {schema}.make_partitions_v1({schema}.now_v1(null) - %s::bigint, 0)", ago * DAY)
        self.run("update {schema}.finished set finished = finished - %s::bigint", ago * DAY)
        return day(ago)

    def lies_in(self) -> list[str]:
        found = self.run("select distinct tableoid::regclass::text from {schema}.finished")
        return [str(row[0]).partition(".")[2] for row in found]


@pytest.fixture
def history(postgres_owner_url: str, store: PostgresStore) -> History:
    return History(postgres_owner_url, store)


async def finish(store: PostgresStore, n: int = 3, **options: object) -> tuple[Claim, ...]:
    """Jobs that failed once and then succeeded, so each has a row of an attempt."""
    await put_in(store, *(job(**options) for _ in range(n)))  # type: ignore[arg-type]  # options of a job
    hand = await Hand(store).join()
    await hand.turn(*(Ack.failed(lease(claim), ERROR, retry_in=0) for claim in await hand.take(n)))
    await store.promote()
    claims = await hand.take(n)
    await hand.succeed(*claims)
    return claims


class TestMade:
    async def test_the_migration_makes_partitions_for_a_week(self, history: History) -> None:
        assert history.days() == {day(-ahead) for ahead in range(DAYS_AHEAD + 1)}

    async def test_acks_write_to_the_partition_of_today(self, store: PostgresStore, history: History) -> None:
        await finish(store)
        assert history.lies_in() == [day(0)]

    async def test_pruning_makes_missing_partitions(self, store: PostgresStore, history: History) -> None:
        history.run(f"drop table {{schema}}.{day(-3)}")
        await store.prune(KEEP)
        assert day(-3) in history.days()

    async def test_acks_work_without_a_partition_of_today(self, store: PostgresStore, history: History) -> None:
        """A fleet that was off for weeks: ended jobs are stored in the default partition, found there and deleted
        row by row.
        """
        history.run(f"drop table {{schema}}.{day(0)}")
        claims = await finish(store)
        assert history.lies_in() == ["finished_rest"]
        await store.prune(KEEP)
        assert day(0) not in history.days(), "its jobs lie elsewhere already"
        found = await store.find(Query.of(*(claim.id for claim in claims)))
        assert [each.state for each in found.jobs] == [State.SUCCEEDED] * 3
        history.run("update {schema}.finished set finished = finished - %s::bigint", 5 * DAY)
        assert await store.prune(KEEP) == 3

    async def test_many_concurrent_calls_make_each_partition_once(self, store: PostgresStore, history: History) -> None:
        for ahead in range(1, 5):
            history.run(f"drop table {{schema}}.{day(-ahead)}")
        await asyncio.gather(*(store._partitions.make() for _ in range(8)))
        await store._partitions.make()
        assert history.days() == {day(-ahead) for ahead in range(DAYS_AHEAD + 1)}


class TestDropped:
    async def test_a_partition_past_its_retention_is_dropped(self, store: PostgresStore, history: History) -> None:
        claims = await finish(store)
        old = history.make_old(ago=5)
        assert history.lies_in() == [old]
        assert await store.attempts(claims[0].id)
        assert await store.prune(KEEP, limit=2) == 3, "all of it, whatever the limit"
        assert old not in history.days()
        assert await store.attempts(claims[0].id) == []
        assert (await store.count(Query.everything()))[State.SUCCEEDED] == 0
        assert history.run("select count(*) from {schema}.attempts") == [(0,)]

    async def test_a_partition_within_its_retention_is_kept(self, store: PostgresStore, history: History) -> None:
        await finish(store)
        kept = history.make_old(ago=2)
        assert await store.prune(KEEP) == 0
        assert kept in history.days()

    async def test_a_partition_with_a_job_that_is_kept_longer_is_deleted_by_rows(
        self, store: PostgresStore, history: History
    ) -> None:
        await finish(store, 1, keep=30 * DAY)
        await finish(store, 2)
        old = history.make_old(ago=5)
        assert await store.prune(KEEP) == 2
        assert old in history.days()
        assert (await store.count(Query.everything()))[State.SUCCEEDED] == 1

    async def test_a_drop_does_not_wait_for_a_reader_and_acks_go_on(
        self, store: PostgresStore, postgres_url: str, history: History
    ) -> None:
        """The drop would wait for the reader, and every ack for the drop."""
        await finish(store)
        old = history.make_old(ago=5)
        with psycopg.connect(postgres_url) as reader:
            reader.execute(f"select count(*) from {store.schema}.finished".encode())
            pruning = asyncio.create_task(store.prune(KEEP))
            async with asyncio.timeout(8):  # one that stands behind the drop is ended by the server after 10 s
                await finish(store)
            assert await pruning == 3, "they go, and leave the day empty"
            assert old in history.days()
        assert await store.prune(KEEP) == 0
        assert old not in history.days()
        assert (await store.count(Query.everything()))[State.SUCCEEDED] == 3

    async def test_a_job_that_is_retried_during_the_deletion_of_its_day_keeps_its_data(
        self, store: PostgresStore, history: History
    ) -> None:
        """Its attempts are kept, and its follow-up job is inserted."""
        claims = await finish(store, 4)
        old = history.make_old(ago=5)
        await store._db.sessions.rows(
            f"select * from {store.schema}.sweep_partition_v1(%(name)s, ''::bytea, 2)", {"name": old}, prepare=False
        )
        found = (await store.find(Query.of(*(claim.id for claim in claims)))).jobs
        assert len(found) == 2
        for each in found:
            assert await store.attempts(each.id)

    async def test_jobs_with_an_open_unique_window_are_read_once_by_prune(
        self, store: PostgresStore, history: History
    ) -> None:
        """Otherwise each prune would read all of them before it finds jobs to delete."""
        await put_in(store, *(job(unique=UniqueKey(bytes([n]) * 16, 30 * DAY)) for n in range(5)))
        hand = await Hand(store).join()
        await hand.succeed(*await hand.take(5))
        await finish(store, 2)
        history.make_old(ago=5)
        assert await store.prune(KEEP, limit=3) == 2
        aside = (
            "select count(*) from {schema}.finished f join {schema}.keys k on k.job = f.id where f.drop_at = k.until"
        )
        assert history.run(aside) == [(5,)]
        assert await store.prune(KEEP) == 0

    async def test_a_large_partition_is_deleted_in_steps(
        self, store: PostgresStore, history: History, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await finish(store, 7)
        old = history.make_old(ago=5)
        monkeypatch.setattr("mainspring.stores.postgres.jobs.prune._SLICE", 2)
        said: list[int] = []
        for seconds in (0.0, 0.0, 10.0):
            monkeypatch.setattr("mainspring.stores.postgres.jobs.prune._SWEEP_TIME", seconds)
            assert old in history.days()
            said.append(await store.prune(KEEP, limit=100))
        assert said == [100, 100, 7]

    async def test_only_partitions_of_past_days_can_be_dropped(self, store: PostgresStore, history: History) -> None:
        """The function has the rights of the owner, so it checks its argument."""
        drop = f"select {store.schema}.drop_partition_v1(%(name)s, {store.schema}.now_v1(null))"
        for name in ("jobs", "finished", "finished_rest", day(0), day(-1)):
            await store._db.sessions.rows(drop, {"name": name})
        assert day(0) in history.days()
        assert await store.count(Query.everything())
