"""Connections: how they start, how a call ends, and that they come back."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from mainspring import Mainspring
from mainspring.common.ids import new_id
from mainspring.errors import BadUrl, StoreConflict, StoreUnavailable
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobBatch, NewJob, UniqueKey
from mainspring.states import State
from mainspring.stores.door import Door
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.postgres.driver import connections, pool
from mainspring.stores.postgres.driver.errors import translate
from mainspring.testing import chaos, servers
from mainspring.testing.contract.hands import Hand, ids, job, one
from tests.timing import patience

LONG = 30.0


def batch(*jobs: NewJob) -> JobBatch:
    return JobBatch(id=new_id().bytes, jobs=jobs)


@asynccontextmanager
async def opened(store: PostgresStore) -> AsyncIterator[PostgresStore]:
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def sessions_of(url: str, schema: str) -> list[int]:
    with psycopg.connect(url, autocommit=True) as looker:
        rows = looker.execute(
            "select pid from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid() and query like %s",
            (f"%{schema}.%",),
        )
        return [row[0] for row in rows]


def end_sessions(url: str, schema: str) -> None:
    with psycopg.connect(url, autocommit=True) as killer:
        for pid in sessions_of(url, schema):
            killer.execute("select pg_terminate_backend(%s, 5000)", (pid,))


def await_none(url: str, application: str) -> bool:
    """Whether all sessions of this name end; the server is a moment behind."""
    asked = "select count(*) from pg_stat_activity where application_name = %s"
    until = time.monotonic() + LONG
    with psycopg.connect(url, autocommit=True) as looker:
        while looker.execute(asked, (application,)).fetchone() != (0,):
            if time.monotonic() > until:
                return False
            time.sleep(0.02)
    return True


_STUCK = "select 1 from pg_stat_activity where %(holder)s = any (pg_blocking_pids(pid))"
"""A process waits for this holder; waits of other processes do not count."""


class TestStart:
    async def test_the_default_isolation_level_of_the_database_does_not_matter(
        self, store: PostgresStore, postgres_url: str, namespace: str
    ) -> None:
        """A role or a database can have another default. Each session sets its own level."""
        url = f"{postgres_url}&options=-cdefault_transaction_isolation%3Dserializable"
        async with opened(PostgresStore(url, namespace=namespace)) as strict:
            made = await one(strict)
            other = job()
            strict.enqueue_now(batch(other))
            hand = await Hand(strict).join()
            claims = await hand.take(5)
            assert ids(claims) == [made.id, other.id]
            await hand.succeed(*claims)

    async def test_a_function_refuses_another_isolation_level(self, store: PostgresStore, postgres_url: str) -> None:
        with psycopg.connect(postgres_url) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            with pytest.raises(psycopg.Error, match="needs read committed") as refused:
                connection.execute(f"select * from {store.schema}.promote_v1(1, null)")
        assert isinstance(translate(refused.value), StoreConflict)

    async def test_a_session_has_an_application_name_and_timeouts(self, store: PostgresStore) -> None:
        names = ("application_name", "statement_timeout", "idle_in_transaction_session_timeout")
        rows = await store._db.sessions.rows(
            "select current_setting(n) from unnest(%(names)s::text[]) n", {"names": list(names)}
        )
        assert [row[0] for row in rows] == ["mainspring", "10s", "10s"]

    def test_parameters_of_the_url_override_our_defaults(self) -> None:
        told = connections.parse_url("postgresql://h/d?connect_timeout=33&application_name=shop")
        assert (told["connect_timeout"], told["application_name"]) == ("33", "shop")
        assert int(told["keepalives_idle"]) + int(told["keepalives_interval"]) * int(told["keepalives_count"]) <= 10
        assert int(told["tcp_user_timeout"]) <= 10_000

    async def test_two_hundred_clients_at_once_connect(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """More clients than the server accepts: they connect again, each after a random pause. A client without a
        connection would raise.
        """
        monkeypatch.setattr(pool, "_CONNECT_TRIES", patience(4 * pool._CONNECT_TRIES))
        with servers.postgres(own=True, settings={"max_connections": "50"}) as server:

            async def come_and_go() -> None:
                async with opened(PostgresStore(server.url)) as store:
                    await store._db.sessions.rows("select 1", {})

            await asyncio.gather(*(come_and_go() for _ in range(200)))

    async def test_an_unreachable_server_is_unavailable(self) -> None:
        store = Door(PostgresStore("postgresql://nobody:secret@127.0.0.1:1/none"))
        with pytest.raises(StoreUnavailable) as refused:
            await store.open()
        assert "secret" not in str(refused.value)

    def test_a_url_that_cannot_be_parsed_is_refused(self) -> None:
        with pytest.raises(BadUrl):
            PostgresStore("postgresql://host/db?nonsense=1")


class TestPooler:
    """What a pooler in transaction mode needs, seen from the one session that it lends us."""

    async def test_no_statement_is_prepared_and_no_session_state_is_left(
        self, store: PostgresStore, postgres_url: str, namespace: str
    ) -> None:
        shared = PostgresStore(postgres_url, namespace=namespace, pooler=True, durability="normal", pool_size=1)
        async with opened(shared):
            for _ in range(8):
                await one(shared)
            inside = await shared._db.sessions.rows(
                "select current_setting('statement_timeout'), current_setting('synchronous_commit'),"
                " current_setting('transaction_isolation')", {},
            )  # fmt: skip
            assert inside == [("10s", "off", "read committed")]
            assert shared._db.sessions._pool is not None
            link = await shared._db.sessions._pool.take()
            left = await link.execute(
                "select current_setting('statement_timeout'), (select count(*) from pg_prepared_statements),"
                " (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid())"
            )
            assert await left.fetchone() == ("0", 0, 0)
            shared._db.sessions._pool.give(link)

    @pytest.mark.option("app.pooler")
    @pytest.mark.parametrize("pooler", [False, True])
    def test_an_app_passes_the_pooler_option(self, fresh_postgres_url: str, pooler: bool) -> None:
        app = Mainspring(fresh_postgres_url, pooler=pooler)

        @app.task(name="pooled.work")
        async def work() -> None: ...

        for _ in range(40):
            work.enqueue()
        engine = app.client._blocking_store().inner  # type: ignore[attr-defined]  # the door's
        ((prepared,),) = engine._db.sessions.rows_now("select count(*) from pg_prepared_statements", {})
        assert (prepared == 0) == pooler
        app.close()

    async def test_blocking_calls_prepare_nothing_either(
        self, store: PostgresStore, postgres_url: str, namespace: str
    ) -> None:
        shared = PostgresStore(postgres_url, namespace=namespace, pooler=True)
        async with opened(shared):
            for _ in range(8):
                shared.enqueue_now(batch(job()))
            assert shared._db.sessions.rows_now("show statement_timeout", {}) == [("10s",)]
            (link,) = shared._db.sessions._idle
            assert link.execute("show statement_timeout").fetchone() == ("0",)
            assert link.execute("select count(*) from pg_prepared_statements").fetchone() == (0,)


class TestDeadlines:
    async def test_a_cancelled_call_closes_its_connection(self, store: PostgresStore) -> None:
        """Otherwise the next call would read the reply of this one."""
        calls = [asyncio.create_task(store._db.sessions.rows("select 1, pg_sleep(9)", {})) for _ in range(4)]
        await asyncio.sleep(0.2)
        for call in calls:
            call.cancel()
        _, late = await asyncio.wait(calls, timeout=5)
        assert not late, "the driver waits for a server that is busy"
        for number in range(8):
            assert await store._db.sessions.rows("select %(n)s::int", {"n": number}) == [(number,)]

    async def test_a_frozen_server_blocks_no_call_beyond_the_deadline(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Async and blocking calls have the same deadline. Both work again afterwards."""
        with servers.postgres(own=True) as server:
            store = PostgresStore(server.url)
            async with opened(store):
                await store.migrate()
                door = Door(store, deadline=0.5)
                await one(store)
                store.enqueue_now(batch(job()))
                monkeypatch.setattr("mainspring.stores.postgres.driver.session.CALL_LIMIT", 0.5)
                given_up = asyncio.create_task(store._db.sessions.rows("select pg_sleep(9)", {}))
                await asyncio.sleep(0.2)
                server.freeze()
                try:
                    given_up.cancel()
                    done, _ = await asyncio.wait([given_up], timeout=4)
                    assert done, "it waited for the server to agree"
                    with pytest.raises(StoreUnavailable):
                        await door.enqueue(batch(job()))
                    with pytest.raises(StoreUnavailable):
                        door.enqueue_now(batch(job()))
                finally:
                    monkeypatch.undo()
                    server.thaw()
                await one(store)
                store.enqueue_now(batch(job()))

    async def test_the_server_ends_a_statement_past_its_deadline(
        self, store: PostgresStore, postgres_url: str, namespace: str
    ) -> None:
        url = f"{postgres_url}&options=-cstatement_timeout%3D3600s"
        async with opened(PostgresStore(url, namespace=namespace)) as hurried:
            assert await hurried._db.sessions.rows("show statement_timeout", {}) == [("10s",)]
            error = psycopg.errors.QueryCanceled("canceling statement due to statement timeout")
            assert isinstance(translate(error), StoreUnavailable)

    async def test_more_calls_than_connections_wait_for_each_other(
        self, store: PostgresStore, postgres_url: str
    ) -> None:
        said = await asyncio.gather(*(store._db.sessions.rows("select %(n)s::int", {"n": n}) for n in range(200)))
        assert said == [[(n,)] for n in range(200)]
        assert store._db.sessions._pool is not None
        assert store._db.sessions._pool._made <= 4

    async def test_blocking_callers_wait_for_each_other_too(self, store: PostgresStore, postgres_url: str) -> None:
        threads = [threading.Thread(target=store.enqueue_now, args=(batch(job()),)) for _ in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join, LONG)
        assert (await store.count(Query.everything()))[State.READY] == 30
        assert len(store._db.sessions._idle) <= 4


class TestFleet:
    def test_a_worker_has_few_connections(self, fresh_postgres_url: str, postgres_owner_url: str) -> None:
        """Two, and one for each eight slots, for everything it does."""
        app = Mainspring(f"{fresh_postgres_url}{'&' if '?' in fresh_postgres_url else '?'}application_name=few")

        @app.task(name="few.work")
        async def work() -> None:
            await asyncio.sleep(0.001)

        with app.worker(async_slots=64, thread_slots=0):
            jobs = app.enqueue_many([work.s() for _ in range(300)])
            for made in jobs:
                made.join(timeout=LONG)
            with psycopg.connect(postgres_owner_url, autocommit=True) as looker:
                found = looker.execute(
                    "select count(*) from pg_stat_activity where application_name = 'few'"
                ).fetchone()
        assert found is not None
        assert 1 < found[0] <= 2 + 64 // 8
        app.close()


class TestReconnect:
    async def test_connections_that_the_server_ended_are_not_used(
        self, store: PostgresStore, postgres_owner_url: str
    ) -> None:
        """A closed idle connection causes no failed call, async or blocking."""
        await one(store)
        store.enqueue_now(batch(job()))
        end_sessions(postgres_owner_url, store.schema)
        await one(store)
        store.enqueue_now(batch(job()))
        assert (await store.count(Query.everything()))[State.READY] == 4

    async def test_calls_work_after_a_restart_of_the_server(self) -> None:
        with servers.postgres(own=True) as server:
            async with opened(PostgresStore(server.url)) as store:
                await store.migrate()
                door = Door(store)
                await one(store)
                server.stop()
                with pytest.raises(StoreUnavailable):
                    await door.enqueue(batch(job()))
                with pytest.raises(StoreUnavailable):
                    door.enqueue_now(batch(job()))
                server.start()
                await one(store)
                store.enqueue_now(batch(job()))
                assert (await store.count(Query.everything()))[State.READY] == 3

    @pytest.mark.parametrize("fault", [chaos.Reset(), chaos.Cut()], ids=["reset", "cut"])
    async def test_calls_work_after_the_network_was_cut(
        self, store: PostgresStore, postgres_url: str, namespace: str, fault: chaos.Fault
    ) -> None:
        with chaos.Proxy(postgres_url) as wire:
            async with opened(PostgresStore(wire.url, namespace=namespace)) as far:
                await one(far)
                wire.set(fault)
                with pytest.raises(StoreUnavailable):
                    await Door(far).enqueue(batch(job()))
                wire.heal()
                await one(far)

    async def test_a_lost_reply_closes_its_connection(
        self, store: PostgresStore, postgres_url: str, namespace: str
    ) -> None:
        with chaos.Proxy(postgres_url) as wire:
            async with opened(PostgresStore(wire.url, namespace=namespace)) as far:
                await one(far)
                wire.set(chaos.Stall("reply"))
                sent = batch(job())
                with pytest.raises(StoreUnavailable):
                    await Door(far, deadline=0.5).enqueue(sent)
                wire.heal()
                again = JobBatch(id=sent.id, jobs=sent.jobs, retry=True)
                assert [each.created for each in await far.enqueue(again)] == [False]

    async def test_a_closed_store_raises_and_can_be_opened_again(self, store: PostgresStore) -> None:
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
        listener = await store.listen("w", ["q"])
        child = os.fork()
        if child == 0:
            code = 1
            try:
                store.enqueue_now(batch(job()))
                listener.close()
                code = 0
            finally:
                os._exit(code)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        while await listener.wait(0.1):
            pass  # of the child's job
        store.enqueue_now(batch(job()))
        assert await listener.wait(LONG)
        await one(store)
        assert (await store.count(Query.everything()))[State.READY] == 4
        listener.close()


class TestEndOfTheLoop:
    def test_connections_that_a_closed_loop_left_cause_no_warning(
        self, postgres_url: str, recwarn: pytest.WarningsRecorder
    ) -> None:
        """``asyncio.run`` of a program that never closed the app."""

        async def leave(store: PostgresStore) -> None:
            await store.open()

        gc.collect()  # the garbage of other tests
        recwarn.clear()
        asyncio.run(leave(PostgresStore(postgres_url)))
        gc.collect()
        assert not [each for each in recwarn if each.category is ResourceWarning]

    def test_no_connection_outlives_the_loop(self, postgres_url: str, postgres_owner_url: str) -> None:
        """Whether or not the app lives on, and before the garbage collector runs."""
        name = f"left-{new_id().hex}"
        stores = [PostgresStore(f"{postgres_url}&application_name={name}") for _ in range(3)]

        async def use(store: PostgresStore) -> None:
            await store.open()
            await asyncio.gather(*(store._db.sessions.rows("select pg_sleep(0.01)", {}) for _ in range(4)))

        for store in stores:
            asyncio.run(use(store))
        assert await_none(postgres_owner_url, name)
        asyncio.run(use(stores[0]))  # as good as new
        assert await_none(postgres_owner_url, name)


class TestJointEnqueues:
    async def test_fifty_producers_share_commits(self, store: PostgresStore, postgres_url: str) -> None:
        """Each row names the transaction that wrote it: other tests' transactions are not counted."""
        await one(store)
        await asyncio.gather(*(one(store) for _ in range(50)))
        with psycopg.connect(postgres_url, autocommit=True) as looker:
            counted = looker.execute(f"select count(distinct xmin::text), count(*) from {store.schema}.jobs")
            commits, jobs = counted.fetchone() or (0, 0)
        assert jobs == 51
        assert 1 < commits < 20

    async def test_batches_do_not_wait_behind_batches_that_wait_for_a_key(
        self, store: PostgresStore, postgres_url: str
    ) -> None:
        """However many batches wait."""
        key = UniqueKey(b"k" * 16)
        with psycopg.connect(postgres_url) as holder:
            store.enqueue_now(batch(job(unique=key)), holder)
            waiting = [asyncio.create_task(store.enqueue(batch(job(unique=key)))) for _ in range(8)]
            async with asyncio.timeout(LONG):
                while not store._producers.crowded:  # noqa: ASYNC110  # it has no event
                    await asyncio.sleep(0.01)
                for _ in range(3):
                    await one(store)
            assert not any(each.done() for each in waiting)
            holder.rollback()
        said = await asyncio.gather(*waiting)
        assert sum(reply[0].created for reply in said) == 1

    async def test_blocking_batches_do_not_wait_behind_batches_that_wait_for_a_key(
        self, store: PostgresStore, postgres_url: str
    ) -> None:
        key = UniqueKey(b"k" * 16)
        with psycopg.connect(postgres_url) as holder:
            store.enqueue_now(batch(job(unique=key)), holder)
            threads = [threading.Thread(target=store.enqueue_now, args=(batch(job(unique=key)),)) for _ in range(8)]
            for thread in threads:
                thread.start()
            async with asyncio.timeout(LONG):
                while store._db.sessions._waiting_calls.free:  # noqa: ASYNC110  # it has no event
                    await asyncio.sleep(0.01)
            store.enqueue_now(batch(job()))
            assert all(thread.is_alive() for thread in threads)
            holder.rollback()
        for thread in threads:
            await asyncio.to_thread(thread.join, LONG)
        assert (await store.count(Query.everything()))[State.READY] == 2

    async def test_a_refused_batch_fails_alone(self, store: PostgresStore) -> None:
        missing = job()
        calls = [batch(job()), batch(job()), batch(job(after=[missing])), batch(job())]
        said = await asyncio.gather(*(store.enqueue(call) for call in calls), return_exceptions=True)
        assert isinstance(translate(said[2]), StoreConflict)  # type: ignore[arg-type]  # it is an error
        assert [said[n][0].created for n in (0, 1, 3)] == [True] * 3  # type: ignore[index]  # those are replies
        assert (await store.count(Query.everything()))[State.READY] == 3

    async def test_a_first_try_that_arrives_after_its_retry_inserts_nothing(self, store: PostgresStore) -> None:
        """The network delayed it. The retry has arrived, its job has run, and other batches are sent with the first
        try.
        """
        late = batch(job())
        await store.enqueue(JobBatch(id=late.id, jobs=late.jobs, retry=True))
        hand = await Hand(store).join()
        await hand.succeed(*await hand.take(1))
        said = await asyncio.gather(*(store.enqueue(call) for call in (batch(job()), batch(job()), late, batch(job()))))
        assert [reply[0].created for reply in said] == [True, True, False, True]
        assert (await store.count(Query.everything()))[State.READY] == 3

    async def test_a_repeat_waits_for_the_joint_call_that_carries_its_batch(
        self, store: PostgresStore, postgres_url: str
    ) -> None:
        """The first try still runs on the server together with others: the repeat finds what it inserted."""
        calls = [batch(job()), batch(job()), batch(job())]
        with psycopg.connect(postgres_url) as holder:
            store.enqueue_now(batch(*calls[1].jobs), holder)  # what goes with it has to wait for this to be undone
            first = [asyncio.create_task(store.enqueue(call)) for call in calls]
            await first[0]
            waited_for = {"holder": holder.info.backend_pid}
            while not await store._db.sessions.rows(_STUCK, waited_for):  # noqa: ASYNC110  # the server tells nobody
                await asyncio.sleep(0.01)
            again = asyncio.create_task(store.enqueue(JobBatch(id=calls[2].id, jobs=calls[2].jobs, retry=True)))
            done, _ = await asyncio.wait([again, *first[1:]], timeout=0.5)
            assert not done
            holder.rollback()
            await asyncio.gather(*first)
            assert [each.created for each in await again] == [False]
        assert (await store.count(Query.everything()))[State.READY] == 3


async def test_a_pipeline_that_is_cancelled_at_any_step_leaves_no_error(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither in the log, where the driver reports that it cannot end the pipeline, nor for the garbage collector."""

    async def sleep(connection: connections.AsyncServerConnection) -> None:
        async with connection.pipeline(), connection.transaction():
            await connection.execute("select pg_sleep(30)")

    for steps in range(12):  # of the event loop
        connection = await connections.AsyncServerConnection.connect(postgres_url, autocommit=True)
        call = asyncio.create_task(sleep(connection))
        for _ in range(steps):
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        connection.drop()
        del call
    gc.collect()  # an unraisable error fails the test
    assert not [each for each in caplog.records if each.name.startswith("psycopg")]


def test_an_interrupted_blocking_pipeline_leaves_no_error_in_the_log(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Stop(Exception): ...

    def stop(*_: object) -> None:
        raise Stop

    connection = connections.ServerConnection.connect(postgres_url, autocommit=True)

    def sleep() -> None:
        with connection.pipeline(), connection.transaction():
            connection.execute("select 1")
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            connection.execute("select pg_sleep(30)").fetchall()

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with pytest.raises(Stop):
            sleep()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert connection.closed
    assert not [each for each in caplog.records if each.name.startswith("psycopg")]


async def test_a_pipeline_whose_server_ends_says_so(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Only an interruption is silent."""
    connection = await connections.AsyncServerConnection.connect(postgres_url, autocommit=True)

    async def end_server() -> None:
        async with connection.pipeline():
            await connection.execute("select pg_terminate_backend(pg_backend_pid())")
            raise RuntimeError("an error of the block")

    with pytest.raises(RuntimeError):
        await end_server()
    connection.drop()
    assert "error ignored terminating" in caplog.text
