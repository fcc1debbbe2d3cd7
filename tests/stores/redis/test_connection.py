"""Connections: shared by concurrent calls, closed when in doubt, and opened again after every fault."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis.asyncio

from mainspring.common.ids import new_id
from mainspring.errors import StoreUnavailable
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobBatch
from mainspring.stores.door import Door
from mainspring.stores.redis.driver import client, loop_connection
from mainspring.testing import servers
from mainspring.testing.contract.hands import ids, job, one, put_in
from tests.timing import patience

from .conftest import MakeStore

HURRY = 0.3
LONG = 30.0


def put_now(store: Door) -> bool:
    made = job()
    return store.enqueue_now(JobBatch(id=new_id().bytes, jobs=(made,)))[0].created


async def ours(client: redis.asyncio.Redis) -> list[dict[str, str]]:
    """The connections of the engine, as the server sees them."""
    return [each for each in await client.client_list() if each["name"] == "mainspring"]


async def kill(client: redis.asyncio.Redis) -> None:
    for each in await ours(client):
        await client.client_kill_filter(_id=each["id"])


@asynccontextmanager
async def frozen(server: servers.Valkey) -> AsyncIterator[None]:
    server.freeze()
    try:
        yield
    finally:
        server.thaw()


class TestShared:
    async def test_concurrent_calls_share_one_connection(
        self, own_store: Door, own_client: redis.asyncio.Redis
    ) -> None:
        jobs = [job() for _ in range(200)]
        made = await asyncio.gather(*(put_in(own_store, each) for each in jobs))
        assert [each[0].id for each in made] == ids(jobs)
        assert len(await ours(own_client)) == 1

    async def test_concurrent_calls_go_out_in_one_write(self, own_store: Door, monkeypatch: pytest.MonkeyPatch) -> None:
        """A hundred calls in one step of the loop are one write."""
        await own_store.workers()
        written: list[int] = []
        flush = loop_connection.LoopConnection._flush

        def counting(self: loop_connection.LoopConnection) -> None:
            written.append(len(self._unsent))
            flush(self)

        monkeypatch.setattr(loop_connection.LoopConnection, "_flush", counting)
        await asyncio.gather(*(own_store.workers() for _ in range(100)))
        assert written == [100]

    async def test_each_concurrent_call_fails_by_itself(self, own_store: Door) -> None:
        said = await asyncio.gather(
            one(own_store),
            put_in(own_store, job(after=[job()])),
            one(own_store),
            return_exceptions=True,
        )
        assert [isinstance(each, Exception) for each in said] == [False, True, False]


class TestCancelledCalls:
    async def test_the_reply_of_a_cancelled_call_reaches_no_other_call(
        self, own_server: servers.Valkey, own_store: Door
    ) -> None:
        made = await one(own_store)
        async with frozen(own_server):
            given_up = asyncio.create_task(own_store.workers())
            await asyncio.sleep(0.05)
            given_up.cancel()
            await asyncio.gather(given_up, return_exceptions=True)
            asked = asyncio.create_task(own_store.find(Query(ids=(made.id,))))
            await asyncio.sleep(0.05)
        assert ids((await asked).jobs) == [made.id]

    async def test_a_silent_connection_is_closed(
        self,
        own_server: servers.Valkey,
        own_store: Door,
        own_client: redis.asyncio.Redis,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A dead connection may never report its end: the cancelled call closes it, so the next call opens a new
        one.
        """
        monkeypatch.setattr(loop_connection, "SILENCE", HURRY / 2)
        made = await one(own_store)
        (before,) = await ours(own_client)
        async with frozen(own_server):
            with pytest.raises(StoreUnavailable, match=r"0\.3 s"):
                await Door(own_store.inner, deadline=HURRY).workers()
        assert ids((await own_store.find(Query(ids=(made.id,)))).jobs) == [made.id]
        async with asyncio.timeout(LONG):
            while [each["id"] for each in await ours(own_client)] == [before["id"]]:
                pass

    async def test_a_blocking_call_ends_by_its_deadline(
        self, own_server: servers.Valkey, own_store: Door, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is not repeated, and its connection is not used again."""
        assert put_now(own_store)
        monkeypatch.setattr(client, "TIMEOUT", HURRY)
        async with frozen(own_server):
            with pytest.raises(StoreUnavailable):  # it would wait for as long as the server is frozen
                put_now(own_store)
        monkeypatch.undo()
        for _ in range(3):
            assert put_now(own_store)

    async def test_all_waiting_calls_share_the_error_of_a_failed_connect(
        self, own_server: servers.Valkey, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """All waiting calls share one try; the next call tries again."""
        tries: list[None] = []
        connect = loop_connection.connect

        async def counting(*address: Any) -> loop_connection.LoopConnection:
            tries.append(None)
            return await connect(*address)

        monkeypatch.setattr(loop_connection, "connect", counting)
        monkeypatch.setattr(loop_connection, "CONNECT_TIMEOUT", HURRY)
        store = make_store(own_server.url)
        async with frozen(own_server):
            said = await asyncio.gather(*(store.workers() for _ in range(20)), return_exceptions=True)
        assert all(isinstance(each, StoreUnavailable) for each in said)
        assert len(tries) == 1
        await store.open()
        await store.close()

    async def test_a_store_can_be_closed_while_it_connects(
        self, own_server: servers.Valkey, make_store: MakeStore
    ) -> None:
        store = make_store(own_server.url)
        async with frozen(own_server):
            asked = asyncio.create_task(store.workers())
            await asyncio.sleep(0.05)
            await store.close()
            with pytest.raises(StoreUnavailable, match="closed"):
                await asked

    async def test_a_connect_ends_by_the_deadline_of_its_call(
        self, own_server: servers.Valkey, make_store: MakeStore
    ) -> None:
        store = make_store(own_server.url)
        async with frozen(own_server):
            with pytest.raises(StoreUnavailable):
                await Door(store.inner, deadline=HURRY).workers()
        await store.open()
        await store.close()


class TestCut:
    async def test_a_connection_killed_while_idle_costs_no_call(
        self, own_store: Door, own_client: redis.asyncio.Redis
    ) -> None:
        assert put_now(own_store)
        await kill(own_client)
        await asyncio.sleep(0.05)
        await one(own_store)
        assert put_now(own_store)

    async def test_calls_in_flight_fail_when_the_connection_is_cut(self, make_store: MakeStore) -> None:
        """The outcome of each call is unknown. The next call opens a connection."""
        with servers.valkey(own=True, durable=True) as server:
            assert isinstance(server, servers.Valkey)
            store = make_store(server.url)
            await store.open()
            server.freeze()
            calls = [asyncio.create_task(one(store)) for _ in range(5)]
            await asyncio.sleep(0.05)
            server.kill()
            said = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(each, StoreUnavailable) for each in said)
            with pytest.raises(StoreUnavailable):
                await one(store)
            with pytest.raises(StoreUnavailable):
                put_now(store)
            server.start()
            await one(store)
            assert put_now(store)
            await store.close()

    async def test_a_failover_is_unavailable_and_heals(self, own_store: Door, own_client: redis.asyncio.Redis) -> None:
        """A primary that became a replica answers READONLY; the address may lead to the new primary."""
        await one(own_store)
        assert put_now(own_store)
        before = {each["id"] for each in await ours(own_client)}
        await own_client.replicaof("127.0.0.1", 1)
        try:
            with pytest.raises(StoreUnavailable, match="replica"):
                await one(own_store)
            with pytest.raises(StoreUnavailable, match="replica"):
                put_now(own_store)
        finally:
            await own_client.replicaof("no", "one")
        await one(own_store)
        assert put_now(own_store)
        assert before.isdisjoint(each["id"] for each in await ours(own_client))

    async def test_a_server_in_a_long_script_is_unavailable(
        self, own_store: Door, own_server: servers.Valkey, own_client: redis.asyncio.Redis
    ) -> None:
        await own_client.config_set("lua-time-limit", 10)
        async with redis.asyncio.Redis.from_url(own_server.url, protocol=2) as other:
            busy = asyncio.ensure_future(other.eval("while true do end", 0))
            await asyncio.sleep(0.1)
            with pytest.raises(StoreUnavailable, match="BUSY"):
                await one(own_store)
            await own_client.script_kill()
            await asyncio.gather(busy, return_exceptions=True)
        await one(own_store)

    async def test_a_server_with_too_many_clients_is_unavailable(self, make_store: MakeStore) -> None:
        with servers.valkey(own=True, settings={"maxclients": "1"}) as server:
            async with redis.asyncio.Redis.from_url(server.url, protocol=2) as only:
                await only.ping()
                store = make_store(server.url)
                with pytest.raises(StoreUnavailable):
                    await store.open()
            end = time.monotonic() + patience(10)
            while True:  # the server notices the end of the only client a moment later
                try:
                    await store.open()
                    break
                except StoreUnavailable:
                    assert time.monotonic() < end
                    await asyncio.sleep(0.01)
            await store.close()


class TestThreads:
    async def test_threads_do_not_read_each_others_replies(self, own_store: Door) -> None:
        def produce() -> bool:
            return all(put_now(own_store) for _ in range(50))

        with ThreadPoolExecutor(8) as threads:
            done = [asyncio.wrap_future(threads.submit(produce)) for _ in range(8)]
            assert all(await asyncio.gather(*done))
        assert sum((await own_store.count(Query.everything())).values()) == 400

    async def test_only_a_few_idle_connections_are_kept(
        self, own_store: Door, own_client: redis.asyncio.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(client, "IDLE", 2)
        with ThreadPoolExecutor(8) as threads:
            await asyncio.gather(*(asyncio.wrap_future(threads.submit(put_now, own_store)) for _ in range(40)))
        async with asyncio.timeout(LONG):
            while len(await ours(own_client)) > 1 + 2:
                pass
        assert len(await ours(own_client)) <= 1 + 2
