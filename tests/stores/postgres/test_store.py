"""What only this engine has: schemas, connections, isolation levels, poolers."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from psycopg.rows import dict_row

from mainspring.common.ids import new_id
from mainspring.errors import (
    InvalidOption,
    KeyTaken,
    QueueDraining,
    SchemaOutdated,
    StoreConflict,
    WrongConnection,
)
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.records import Edge, Enqueued, JobBatch, UniqueKey
from mainspring.queues.records import QueueMode
from mainspring.states import State
from mainspring.stores.door import Door
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.postgres.driver.migrations import VERSION
from mainspring.testing.contract.hands import Hand, bucket, gone, job, lease, one, put_in, state


def batch(*jobs: object, retry: bool = False) -> JobBatch:
    return JobBatch(id=new_id().bytes, jobs=jobs, retry=retry)  # type: ignore[arg-type]  # jobs of the test's own making


class TestSchema:
    async def test_a_namespace_is_a_schema(self, postgres_url: str) -> None:
        assert PostgresStore(postgres_url).schema == "mainspring"
        assert PostgresStore(postgres_url, namespace="shop").schema == "mainspring_shop"

    @pytest.mark.parametrize("name", ["", "a b", 'x"; drop schema public', "Shop", "a" * 41])
    async def test_a_namespace_that_cannot_be_a_schema_is_refused(self, postgres_url: str, name: str) -> None:
        with pytest.raises(InvalidOption, match="namespace"):
            PostgresStore(postgres_url, namespace=name)

    async def test_one_of_many_concurrent_migrations_runs(self, postgres_owner_url: str, namespace: str) -> None:
        stores = [PostgresStore(postgres_owner_url, namespace=namespace) for _ in range(5)]
        said = await asyncio.gather(*(store.migrate() for store in stores))
        assert sorted(said) == [(0, VERSION)] + [(VERSION, VERSION)] * 4

    async def test_calls_before_the_migration_name_the_fix(self, postgres_url: str, namespace: str) -> None:
        store = Door(PostgresStore(postgres_url, namespace=namespace))
        await store.open()
        with pytest.raises(SchemaOutdated, match=f"Run: mainspring migrate --url URL --namespace {namespace}$"):
            await store.enqueue(batch(job()))
        with pytest.raises(SchemaOutdated, match="mainspring migrate"):
            store.enqueue_now(batch(job()))
        await store.close()

    async def test_a_newer_schema_is_refused(self, store: PostgresStore, postgres_url: str, namespace: str) -> None:
        with psycopg.connect(postgres_url) as connection:
            connection.execute(f"update {store.schema}.schema_version set version = 99")
        late = PostgresStore(postgres_url, namespace=namespace)
        with pytest.raises(SchemaOutdated, match="version 99"):
            await late.open()
        with pytest.raises(SchemaOutdated, match="version 99"):
            await late.migrate()
        await late.close()

    async def test_an_interrupted_migration_leaves_nothing(
        self, postgres_owner_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from mainspring.stores.postgres.driver import migrations

        store = PostgresStore(postgres_owner_url, namespace=namespace)
        with monkeypatch.context() as patch:
            patch.setattr(migrations, "MIGRATIONS", (("schema/base", "turn", "no such file"),))
            with pytest.raises(FileNotFoundError):
                await store.migrate()
        assert await store.migrate() == (0, VERSION)


class TestCallersConnection:
    async def test_the_job_appears_with_the_callers_commit(self, store: PostgresStore, postgres_url: str) -> None:
        made = job()
        with psycopg.connect(postgres_url, row_factory=dict_row) as connection:
            assert store.enqueue_now(batch(made), connection) == [Enqueued(made.id, True)]
            assert await gone(store, made)
        assert await state(store, made) == State.READY

    async def test_the_job_never_appears_when_the_caller_rolls_back(
        self, store: PostgresStore, postgres_url: str
    ) -> None:
        made, gate = job(), bucket("gate", 1)
        limited = job(buckets=[gate])
        with psycopg.connect(postgres_url) as connection:
            store.enqueue_now(batch(made, limited), connection)
            connection.rollback()
        assert await gone(store, made)
        assert await gone(store, limited)

    async def test_the_cursor_factory_of_the_caller_does_not_matter(
        self, store: PostgresStore, postgres_url: str
    ) -> None:
        with psycopg.connect(postgres_url, cursor_factory=psycopg.ClientCursor) as connection:
            made = job(record=bytes(range(256)))
            store.enqueue_now(batch(made), connection)
        assert await state(store, made) == State.READY

    async def test_a_parent_that_ended_after_the_snapshot_of_the_caller_is_an_error(
        self, store: PostgresStore, postgres_url: str
    ) -> None:
        """A caller under repeatable read sees the past. The lock on the parent finds the end, so the child is not
        stuck.
        """
        parent = await one(store)
        hand = await Hand(store).join()
        claim = await hand.take_one()
        child = job(after=[parent])
        with psycopg.connect(postgres_url) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute("select 1")
            connection.execute(f"select count(*) from {store.schema}.jobs")
            await hand.succeed(claim)
            with pytest.raises(psycopg.errors.SerializationFailure):
                store.enqueue_now(batch(child), connection)
        assert await gone(store, child)

    async def test_an_open_enqueue_does_not_block_the_fleet(self, store: PostgresStore, postgres_url: str) -> None:
        """Turns do not wait for the caller, and its jobs and buckets are kept."""
        gate = bucket("gate", 5)
        await one(store, job(buckets=[gate]))
        hand = await Hand(store).join()
        with psycopg.connect(postgres_url) as connection:
            store.enqueue_now(batch(job(buckets=[gate]), job()), connection)
            claims = await asyncio.wait_for(hand.take(5), 30)
            assert len(claims) == 1
        assert len(await hand.take(5)) == 2

    async def test_another_kind_of_connection_is_refused(self, store: PostgresStore, postgres_url: str) -> None:
        async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
            with pytest.raises(WrongConnection, match="AsyncConnection"):
                store.enqueue_now(batch(job()), connection)
        with pytest.raises(WrongConnection, match=r"builtins\.str"):
            store.enqueue_now(batch(job()), "postgresql://")

    async def test_a_refused_enqueue_leaves_the_callers_transaction_usable(
        self, store: PostgresStore, postgres_url: str
    ) -> None:
        """A key that is taken, a parent that does not exist, a draining queue: the caller can continue."""
        taken = UniqueKey(b"k" * 16, conflict="error")
        await one(store, job(unique=taken))
        await store.set_queue_mode(["dry"], QueueMode.DRAINING)
        good = job()
        door = Door(store)
        with psycopg.connect(postgres_url) as connection:
            door.enqueue_now(batch(good), connection)
            with pytest.raises(KeyTaken):
                door.enqueue_now(batch(job(unique=taken)), connection)
            with pytest.raises(StoreConflict, match="does not exist"):
                door.enqueue_now(batch(job(after=[Edge(new_id().bytes)])), connection)
            with pytest.raises(QueueDraining):
                door.enqueue_now(batch(job(queue="dry")), connection)
        assert await state(store, good) == State.READY

    async def test_with_autocommit_the_enqueue_is_its_own_transaction(
        self, store: PostgresStore, postgres_url: str
    ) -> None:
        made, inside = job(), job()
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            store.enqueue_now(batch(made), connection)
            assert await state(store, made) == State.READY
            with connection.transaction(force_rollback=True):
                store.enqueue_now(batch(inside), connection)
        assert await gone(store, inside)

    async def test_another_database_with_the_same_schema_is_refused(
        self, store: PostgresStore, postgres_owner_url: str, namespace: str
    ) -> None:
        name = f"other_{namespace}"
        with psycopg.connect(postgres_owner_url, autocommit=True) as owner:
            owner.execute(f"create database {name}")
        other_url = psycopg.conninfo.make_conninfo(postgres_owner_url, dbname=name)
        other = PostgresStore(other_url, namespace=namespace)
        await other.migrate()
        made = job()
        with psycopg.connect(other_url) as connection:
            with pytest.raises(WrongConnection, match="is not that of the store"):
                store.enqueue_now(batch(made), connection)
            other.enqueue_now(batch(made), connection)
        assert await gone(store, made)
        await other.close()
        with psycopg.connect(postgres_owner_url, autocommit=True) as owner:
            owner.execute(f"drop database {name} with (force)")

    async def test_another_database_is_refused(self, store: PostgresStore, postgres_url: str) -> None:
        other = psycopg.connect(postgres_url, dbname="postgres")
        with other as connection, pytest.raises(WrongConnection, match="no schema"):
            store.enqueue_now(batch(job()), connection)

    async def test_a_connection_with_a_failed_transaction_is_refused(
        self, store: PostgresStore, postgres_url: str
    ) -> None:
        with psycopg.connect(postgres_url) as connection:
            with pytest.raises(psycopg.errors.DivisionByZero):
                connection.execute("select 1/0")
            with pytest.raises(WrongConnection, match="has failed already"):
                store.enqueue_now(batch(job()), connection)
            connection.rollback()
            store.enqueue_now(batch(job()), connection)

    async def test_a_closed_connection_is_refused(self, store: PostgresStore, postgres_url: str) -> None:
        connection = psycopg.connect(postgres_url)
        connection.close()
        with pytest.raises(WrongConnection, match="closed"):
            store.enqueue_now(batch(job()), connection)


class TestRefused:
    async def test_text_that_cannot_be_stored_is_a_conflict_and_nothing_is_stored(self, store: PostgresStore) -> None:
        good = job()
        with pytest.raises(StoreConflict):
            await put_in(Door(store), good, job(task="nul\x00"))
        assert await gone(store, good)

    async def test_an_ack_given_twice_is_applied_once(self, store: PostgresStore) -> None:
        await one(store)
        hand = await Hand(store).join()
        claim = await hand.take_one()
        said = await hand.turn(Ack.succeeded(lease(claim), b"1"), Ack.succeeded(lease(claim), b"1"))
        assert (said.already, said.stale) == (((claim.id, claim.token),), ())
        assert await state(store, claim) == State.SUCCEEDED

    async def test_two_edges_to_one_parent_count_once_and_the_stricter_applies(self, store: PostgresStore) -> None:
        parent = await one(store)
        child = await one(store, job(after=[Edge(parent.id, "ignore"), Edge(parent.id)]))
        hand = await Hand(store).join()
        await hand.kill(await hand.take_one())
        assert await state(store, child) == State.CANCELLED


class TestAttempts:
    async def test_the_newest_hundred_attempts_of_a_job_are_kept(self, store: PostgresStore) -> None:
        """Of acks and of rescues: a job that snoozes or is lost again and again does not grow."""
        made = await one(store)
        hand = await Hand(store).join()
        for _ in range(70):
            await hand.turn(Ack.interrupted(lease(await hand.take_one())))
        for _ in range(40):
            hand = await Hand(store).join()
            await hand.take_one()
            await store.retire(hand.name, Outcome.INTERRUPTED)
        kept = await store.attempts(made.id)
        assert len(kept) == 100
        assert kept == sorted(kept, key=lambda attempt: attempt.token)
        assert kept[-1].worker == hand.name
