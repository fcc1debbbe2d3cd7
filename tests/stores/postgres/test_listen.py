"""Wake-ups by NOTIFY: few of them, and back after every loss."""

from __future__ import annotations

import asyncio
import logging

import psycopg
import pytest

from mainspring import Mainspring
from mainspring.common.ids import new_id
from mainspring.jobs.records import JobBatch
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.postgres.driver.wakeups import Notifier, PostgresListener, channel
from mainspring.testing import servers
from mainspring.testing.contract.hands import job, one

LONG = 30.0


async def quiet(listener: PostgresListener) -> None:
    while await listener.wait(0.1):
        pass


async def listening(store: PostgresStore, *queues: str) -> PostgresListener:
    listener = await store.listen("w", queues or ("q",))
    assert isinstance(listener, PostgresListener)
    return listener


def end_listeners(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as killer:
        rows = killer.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid() and query like 'listen %'"
        )
        return len(rows.fetchall())


class TestNotifier:
    def test_a_burst_notifies_once_for_each_queue(self) -> None:
        notifier = Notifier("s")
        assert notifier.take_due(["a", "b"]) == ["s:a", "s:b"]
        assert notifier.take_due(["a"]) == []
        assert notifier.take_due(["a", "c"]) == ["s:c"]

    def test_a_queue_is_notified_again_after_the_quiet_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = [100.0]
        monkeypatch.setattr("mainspring.stores.postgres.driver.wakeups.time.monotonic", lambda: now[0])
        notifier = Notifier("s")
        notifier.take_due(["a"])
        now[0] += 0.006
        assert notifier.take_due(["a"]) == ["s:a"]

    @pytest.mark.parametrize("queue", ["q" * 200, "ü" * 40, 'say "hello"', "x; drop table y"])
    async def test_any_queue_name_has_a_channel(self, store: PostgresStore, queue: str) -> None:
        assert len(channel(store.schema, queue).encode()) <= 63
        listener = await listening(store, queue)
        await one(store, job(queue=queue))
        assert await listener.wait(LONG)
        listener.close()

    def test_long_queue_names_have_different_channels(self) -> None:
        assert channel("s", "q" * 100 + "1") != channel("s", "q" * 100 + "2")


class TestNotifying:
    async def test_a_job_in_the_quiet_time_is_found_by_the_second_wake_up(self, store: PostgresStore) -> None:
        """No notification is sent for the second job, and its worker may have read before the job was inserted."""
        listener = await listening(store)
        store.enqueue_now(JobBatch(id=new_id().bytes, jobs=(job(),)))
        assert await listener.wait(LONG)
        assert await listener.wait(LONG)
        assert not await listener.wait(0.2)
        listener.close()

    async def test_jobs_of_other_queues_and_later_jobs_wake_no_listener(self, store: PostgresStore) -> None:
        listener = await listening(store)
        await one(store, job(queue="other"))
        await one(store, job(delay=60_000_000))
        assert not await listener.wait(0.3)
        listener.close()

    async def test_a_callers_transaction_notifies_when_it_commits(
        self, store: PostgresStore, postgres_url: str
    ) -> None:
        listener = await listening(store)
        with psycopg.connect(postgres_url) as connection:
            for _ in range(3):
                store.enqueue_now(JobBatch(id=new_id().bytes, jobs=(job(),)), connection)
            assert not await listener.wait(0.2)
            connection.commit()
        assert await listener.wait(LONG)
        listener.close()

    async def test_a_callers_transaction_that_rolls_back_does_not_notify(
        self, store: PostgresStore, postgres_url: str
    ) -> None:
        listener = await listening(store)
        with psycopg.connect(postgres_url) as connection:
            store.enqueue_now(JobBatch(id=new_id().bytes, jobs=(job(),)), connection)
            connection.rollback()
        assert not await listener.wait(0.2)
        listener.close()

    async def test_no_function_notifies(self, store: PostgresStore, postgres_url: str) -> None:
        """All transactions of a server that notify commit one after the other, so none of ours waits for the disk.
        A caller's own transaction can.
        """
        with psycopg.connect(postgres_url, autocommit=True) as looker:
            texts = looker.execute(
                "select prosrc from pg_proc where pronamespace = to_regnamespace(%s)", (store.schema,)
            ).fetchall()
        assert texts
        assert not any("pg_notify" in text for (text,) in texts)


class TestLoss:
    async def test_a_listener_that_was_cut_off_listens_again(
        self, store: PostgresStore, postgres_owner_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        listener = await listening(store)
        await quiet(listener)
        with caplog.at_level(logging.INFO, "mainspring.store"):
            assert end_listeners(postgres_owner_url) == 1
            assert await listener.wait(LONG), "once it hears again it looks for what it missed"
            await quiet(listener)
            await one(store)
            assert await listener.wait(LONG)
        assert not caplog.records, "the worker tells of its store"
        listener.close()

    async def test_a_listener_that_can_never_connect_is_logged_once(
        self, store: PostgresStore, postgres_url: str, namespace: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        deaf = PostgresStore(postgres_url, namespace=namespace, pooler=True, listen_url="postgresql://127.0.0.1:1/no")
        await deaf.open()
        with caplog.at_level(logging.WARNING, "mainspring.store"):
            listener = await deaf.listen("w", ["q"])
            assert not await listener.wait(0.5)
        assert not listener.is_always_woken
        assert [line.getMessage().partition(":")[0] for line in caplog.records] == [
            "no wake-ups, jobs are found by polling"
        ]
        listener.close()
        await deaf.close()

    async def test_a_listener_works_after_a_restart_of_the_server(self) -> None:
        with servers.postgres(own=True) as server:
            store = PostgresStore(server.url)
            await store.migrate()
            await store.open()
            listener = await listening(store)
            assert listener.is_always_woken
            server.stop()
            for _ in range(600):
                if not listener.is_always_woken:
                    break
                await asyncio.sleep(0.05)
            else:
                pytest.fail("it does not notice that the connection is lost")
            server.start()
            assert await listener.wait(LONG)
            assert listener.is_always_woken
            await quiet(listener)
            await one(store)
            assert await listener.wait(LONG)
            listener.close()
            await store.close()

    async def test_a_listener_opened_while_the_server_is_away_works_later(self) -> None:
        with servers.postgres(own=True) as server:
            store = PostgresStore(server.url)
            await store.migrate()
            await store.open()
            server.stop()
            listener = await listening(store)
            assert not await listener.wait(0.01)
            server.start()
            assert await listener.wait(LONG)
            listener.close()
            await store.close()

    async def test_the_last_listener_closes_the_connection(self, store: PostgresStore, postgres_owner_url: str) -> None:
        first, second = await listening(store, "a"), await listening(store, "b")
        first.close()
        await one(store, job(queue="b"))
        assert await second.wait(LONG)
        second.close()
        for _ in range(100):
            if not end_listeners(postgres_owner_url):
                break
            await asyncio.sleep(0.05)
        else:
            pytest.fail("it is still there")


class TestPooler:
    async def test_behind_a_pooler_without_listen_url_there_are_no_wake_ups(
        self, store: PostgresStore, postgres_url: str, namespace: str
    ) -> None:
        shared = PostgresStore(postgres_url, namespace=namespace, pooler=True)
        await shared.open()
        listener = await shared.listen("w", ["q"])
        assert not listener.is_always_woken
        await one(store)
        assert not await listener.wait(0.2)
        listener.close()
        await shared.close()

    @pytest.mark.option("app.listen_url")
    async def test_an_app_passes_its_listen_url(
        self, fresh_postgres_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        app = Mainspring(fresh_postgres_url, listen_url="postgresql://127.0.0.1:1/nobody")
        with caplog.at_level(logging.WARNING, "mainspring.store"):
            (await (await app.client.store()).listen("w", ["q"])).close()
        assert "no wake-ups" in caplog.text
        await app.aclose()

    async def test_behind_a_pooler_with_listen_url_there_are_wake_ups(
        self, store: PostgresStore, postgres_url: str, namespace: str
    ) -> None:
        shared = PostgresStore("postgresql://nowhere/none", namespace=namespace, pooler=True, listen_url=postgres_url)
        listener = await shared.listen("w", ["q"])
        await one(store)
        assert await listener.wait(LONG)
        listener.close()
        await shared.close()
