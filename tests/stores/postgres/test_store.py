"""What only this engine has: schemas, connections, isolation levels, poolers."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from mainspring.errors import (
    BadUrl,
    InvalidOption,
    NotBuilt,
    SchemaOutdated,
    StoreConflict,
    StoreUnavailable,
    WrongConnection,
)
from mainspring.ids import new_id
from mainspring.outcomes import Ack
from mainspring.query import Query
from mainspring.records import Bucket, Doc, Edge, Enqueued, Follow, Mode, Retention, Unique
from mainspring.states import Action, State
from mainspring.stores.base import Batch
from mainspring.stores.door import Door
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.postgres.errors import translate
from mainspring.stores.postgres.migrate import VERSION
from mainspring.testing.contract.hands import Hand, gone, ids, job, lease, one, put_in, state


def batch(*jobs: object, retry: bool = False) -> Batch:
    return Batch(id=new_id().bytes, jobs=jobs, retry=retry)  # type: ignore[arg-type]  # jobs of the test's own making


class TestSchema:
    async def test_a_namespace_is_a_schema(self, postgres_url: str) -> None:
        assert PostgresStore(postgres_url).schema == "mainspring"
        assert PostgresStore(postgres_url, namespace="shop").schema == "mainspring_shop"

    @pytest.mark.parametrize("name", ["", "a b", 'x"; drop schema public', "Shop", "a" * 41])
    async def test_a_name_that_cannot_be_a_schema_is_refused(self, postgres_url: str, name: str) -> None:
        with pytest.raises(InvalidOption, match="namespace"):
            PostgresStore(postgres_url, namespace=name)

    async def test_many_migrate_at_once_and_one_does(self, postgres_url: str, namespace: str) -> None:
        stores = [PostgresStore(postgres_url, namespace=namespace) for _ in range(5)]
        said = await asyncio.gather(*(store.migrate() for store in stores))
        assert sorted(said) == [(0, VERSION)] + [(VERSION, VERSION)] * 4

    async def test_before_the_migration_calls_name_the_fix(self, postgres_url: str, namespace: str) -> None:
        store = Door(PostgresStore(postgres_url, namespace=namespace))
        await store.open()
        with pytest.raises(SchemaOutdated, match="mainspring migrate"):
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
        self, postgres_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from mainspring.stores.postgres import migrate

        store = PostgresStore(postgres_url, namespace=namespace)
        with monkeypatch.context() as patch:
            patch.setattr(migrate, "MIGRATIONS", (("0001", "turn", "no such file"),))
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

    async def test_and_never_when_it_rolls_back(self, store: PostgresStore, postgres_url: str) -> None:
        made, gate = job(), Bucket("gate", 1)
        limited = job(buckets=[gate])
        with psycopg.connect(postgres_url) as connection:
            store.enqueue_now(batch(made, limited), connection)
            connection.rollback()
        assert await gone(store, made)
        assert await gone(store, limited)

    async def test_its_cursor_factory_does_not_matter(self, store: PostgresStore, postgres_url: str) -> None:
        with psycopg.connect(postgres_url, cursor_factory=psycopg.ClientCursor) as connection:
            made = job(record=bytes(range(256)))
            store.enqueue_now(batch(made), connection)
        assert await state(store, made) == State.READY

    async def test_a_parent_that_ended_since_its_snapshot_is_an_error_not_a_stuck_child(
        self, store: PostgresStore, postgres_url: str
    ) -> None:
        """A caller under repeatable read sees the past; the lock on the parent finds out."""
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

    async def test_an_open_enqueue_does_not_stop_the_fleet(self, store: PostgresStore, postgres_url: str) -> None:
        """Its jobs and buckets stand as they are: turns do not wait for the caller."""
        gate = Bucket("gate", 5)
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

    async def test_another_database_is_refused(self, store: PostgresStore, postgres_url: str) -> None:
        other = psycopg.connect(postgres_url, dbname="postgres")
        with other as connection, pytest.raises(WrongConnection, match="no schema"):
            store.enqueue_now(batch(job()), connection)

    async def test_a_closed_one_is_refused(self, store: PostgresStore, postgres_url: str) -> None:
        connection = psycopg.connect(postgres_url)
        connection.close()
        with pytest.raises(WrongConnection, match="closed"):
            store.enqueue_now(batch(job()), connection)


class TestSessions:
    async def test_the_databases_own_isolation_level_does_not_matter(
        self, store: PostgresStore, postgres_url: str, namespace: str
    ) -> None:
        """A role or database may default to another level; ours is said in every transaction."""
        strict = PostgresStore(
            f"{postgres_url}&options=-cdefault_transaction_isolation%3Dserializable", namespace=namespace
        )
        await strict.open()
        made = await one(strict)
        other = job()
        strict.enqueue_now(batch(other))
        hand = await Hand(strict).join()
        claims = await hand.take(5)
        assert ids(claims) == [made.id, other.id]
        await hand.succeed(*claims)
        await strict.close()

    async def test_a_function_refuses_another_level(self, store: PostgresStore, postgres_url: str) -> None:
        with psycopg.connect(postgres_url) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            with pytest.raises(psycopg.Error, match="needs read committed") as refused:
                connection.execute(f"select * from {store.schema}.promote_v1(1, null)")
        assert isinstance(translate(refused.value), StoreConflict)

    async def test_nothing_is_prepared_when_that_is_switched_off(self, postgres_url: str, namespace: str) -> None:
        store = PostgresStore(postgres_url, namespace=namespace, prepare_threshold=None, pool_size=1)
        await store.open()
        await store.migrate()
        for _ in range(8):
            await one(store)
        prepared = await store._sessions.rows("select count(*) from pg_prepared_statements", {})
        assert prepared == [(0,)]
        await store.close()

    async def test_connections_that_the_server_ended_are_not_used(
        self, store: PostgresStore, postgres_url: str
    ) -> None:
        """An idle connection that was cut costs no failed call, async or blocking."""
        await one(store)
        store.enqueue_now(batch(job()))
        with psycopg.connect(postgres_url, autocommit=True) as killer:
            killer.execute(
                "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid() and query like %s",
                (f"%{store.schema}.%",),
            )
        await one(store)
        store.enqueue_now(batch(job()))
        assert (await store.count(Query.everything()))[State.READY] == 4

    async def test_closed_it_says_so_and_opens_again(self, store: PostgresStore) -> None:
        await store.close()
        await store.close()
        with pytest.raises(StoreUnavailable, match="not open"):
            await store.count(Query.everything())
        with pytest.raises(StoreUnavailable, match="not open"):
            store.enqueue_now(batch(job()))
        await store.open()
        await one(store)

    async def test_a_forked_child_leaves_the_parents_connections_alone(self, store: PostgresStore) -> None:
        store.enqueue_now(batch(job()))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                store.enqueue_now(batch(job()))
                code = 0
            finally:
                os._exit(code)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        store.enqueue_now(batch(job()))
        await one(store)
        assert (await store.count(Query.everything()))[State.READY] == 4

    async def test_nobody_there_is_unavailable(self) -> None:
        store = Door(PostgresStore("postgresql://nobody:secret@127.0.0.1:1/none"))
        with pytest.raises(StoreUnavailable) as refused:
            await store.open()
        assert "secret" not in str(refused.value)

    def test_a_url_that_cannot_be_read(self) -> None:
        with pytest.raises(BadUrl):
            PostgresStore("postgresql://host/db?nonsense=1")


class TestDurability:
    async def test_it_is_read_from_the_server(self, postgres_url: str, namespace: str) -> None:
        """The test server runs without fsync, and that is what is said."""
        store = PostgresStore(postgres_url, namespace=namespace)
        await store.open()
        ((fsync,),) = await store._sessions.rows("select current_setting('fsync')", {})
        assert await store.durability() == ("postgres:fsync=off" if fsync == "off" else "postgres:full")
        await store.close()

    async def test_normal_does_not_wait_for_the_disk_and_leaves_no_trace(
        self, postgres_url: str, namespace: str
    ) -> None:
        url = f"{postgres_url}&options=-csynchronous_commit%3Don"
        store = PostgresStore(url, namespace=namespace, durability="normal", pool_size=1)
        await store.open()
        await store.migrate()
        inside = await store._sessions.rows("select current_setting('synchronous_commit')", {})
        assert inside == [("off",)]
        async with store._sessions._pool.connection() as connection:  # type: ignore[union-attr]  # it is open
            after = await (await connection.execute("show synchronous_commit")).fetchone()
        assert after == ("on",)
        await store.close()

    def test_an_unknown_class_is_refused(self, postgres_url: str) -> None:
        with pytest.raises(InvalidOption, match="durability"):
            PostgresStore(postgres_url, durability="most")


class TestRefused:
    async def test_what_is_not_built_says_so(self, store: PostgresStore) -> None:
        calls = [
            store.report("w", []), store.logs(b""), store.prune(Retention()), store.notify([]), store.listen("w", []),
            store.put(Doc("k", "n", 1, b"")), store.docs("k"), store.tally(Query.everything(), "queue"),
            store.items(b""), store.set_mode(["q"], Mode.PAUSED), store.modes(),
            *(
                store.act(action, Query.everything())
                for action in (Action.RETRY, Action.RUN_NOW, Action.REPRIORITISE, Action.DELETE)
            ),
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(NotBuilt):
                await call

    @pytest.mark.parametrize(
        "asked",
        [
            {"unique": Unique(b"k" * 16)}, {"marks": ["red"]}, {"keep": 0},
            {"follows": [Follow(State.DEAD, job(id=bytes(16)))]},
        ],
    )  # fmt: skip
    async def test_a_job_that_asks_for_it_is_not_inserted(self, store: PostgresStore, asked: dict[str, Any]) -> None:
        good = job()
        with pytest.raises(NotBuilt):
            await put_in(Door(store), good, job(**asked))
        with pytest.raises(NotBuilt):
            store.enqueue_now(Batch(id=new_id().bytes, jobs=(job(**asked),)))
        assert await gone(store, good)

    @pytest.mark.parametrize(
        "query", [Query(marks=("red",)), Query.where(errors=["E"]), Query(since=0), Query(ids=(bytes(16),), until=1)]
    )
    async def test_a_condition_that_would_be_ignored(self, store: PostgresStore, query: Query) -> None:
        await one(store)
        for call in (store.find(query), store.count(query), store.act(Action.CANCEL, query)):
            with pytest.raises(NotBuilt):
                await call

    async def test_text_that_cannot_be_stored_is_a_conflict_and_nothing_is_kept(self, store: PostgresStore) -> None:
        good = job()
        with pytest.raises(StoreConflict):
            await put_in(Door(store), good, job(task="nul\x00"))
        assert await gone(store, good)

    async def test_an_ack_that_is_there_twice_is_applied_once(self, store: PostgresStore) -> None:
        await one(store)
        hand = await Hand(store).join()
        claim = await hand.take_one()
        said = await hand.turn(Ack.succeeded(lease(claim), b"1"), Ack.succeeded(lease(claim), b"1"))
        assert (said.already, said.stale) == (((claim.id, claim.token),), ())
        assert await state(store, claim) == State.SUCCEEDED

    async def test_two_edges_to_one_parent_count_once_and_the_stricter_holds(self, store: PostgresStore) -> None:
        parent = await one(store)
        child = await one(store, job(after=[Edge(parent.id, "ignore"), Edge(parent.id)]))
        hand = await Hand(store).join()
        await hand.kill(await hand.take_one())
        assert await state(store, child) == State.CANCELLED
