"""Errors and warnings when a store is opened, with their hints."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import warnings
from typing import Any

import pytest
import redis.asyncio

from mainspring.common.ids import new_id, new_ids
from mainspring.errors import (
    BadUrl,
    InvalidOption,
    SchemaOutdated,
    SoftTimeout,
    StoreConflict,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    WrongConnection,
)
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobBatch
from mainspring.states import Action
from mainspring.stores.door import Door
from mainspring.stores.redis import RedisStore, translate
from mainspring.stores.redis.driver import schema
from mainspring.stores.redis.driver.address import parse
from mainspring.stores.redis.driver.catalogue import tag
from mainspring.stores.redis.driver.resp import ConnectionBroken, ServerError
from mainspring.testing import servers
from mainspring.testing.contract.hands import Hand, ids, job, one, put_in

from .conftest import MakeStore


async def test_a_newer_schema_is_refused(own_server: servers.Valkey, own_client: redis.asyncio.Redis) -> None:
    await own_client.hset(tag("newer") + "meta", "schema", "99")
    store = Door(RedisStore(own_server.url, namespace="newer"))
    with pytest.raises(SchemaOutdated, match="99"):
        await store.open()
    with pytest.raises(SchemaOutdated, match="Upgrade"):
        await store.migrate()
    with pytest.raises(SchemaOutdated, match="Upgrade"):
        store.enqueue_now(JobBatch(id=new_id().bytes, jobs=(job(),)))
    assert await own_client.hget(tag("newer") + "meta", "schema") == b"99"
    await store.close()


async def test_a_failed_open_leaves_no_connection(own_server: servers.Valkey, own_client: redis.asyncio.Redis) -> None:
    await own_client.hset(tag("newest") + "meta", "schema", "99")
    with pytest.raises(SchemaOutdated):
        await Door(RedisStore(own_server.url, namespace="newest")).open()
    async with asyncio.timeout(30):
        while any(each["name"] == "mainspring" for each in await own_client.client_list()):
            pass


async def test_a_server_that_evicts_is_refused(make_store: MakeStore) -> None:
    settings = {"maxmemory-policy": "allkeys-lru", "maxmemory": "100mb"}
    with servers.valkey(own=True, settings=settings) as server:
        store = make_store(server.url)
        with pytest.raises(StoreError, match=r"allkeys-lru[^\n]*\n.*noeviction"):
            await store.open()
        with pytest.raises(StoreError, match="allkeys-lru"):
            store.enqueue_now(JobBatch(id=new_id().bytes, jobs=(job(),)))
        await store.close()


async def test_a_server_that_would_evict_is_warned_of(make_store: MakeStore, caplog: pytest.LogCaptureFixture) -> None:
    with servers.valkey(own=True, settings={"maxmemory-policy": "volatile-ttl"}) as server:
        store = make_store(server.url)
        await store.open()
        assert "volatile-ttl" in caplog.text
        await store.close()


async def test_a_node_of_a_cluster_is_refused(make_store: MakeStore) -> None:
    """A slot may move to another node at any time: the store refuses at open instead of failing later with MOVED."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        bus = str(probe.getsockname()[1])
    with servers.valkey(own=True, settings={"cluster-enabled": "yes", "cluster-port": bus}) as server:
        store = make_store(server.url)
        with pytest.raises(StoreError, match=r"cluster[^\n]*\n.*without cluster mode"):
            await store.open()
        await store.close()


def facts(**more: Any) -> schema.ServerFacts:
    return schema.ServerFacts(**{"version": "7.0.15", **more})


def test_a_server_that_is_too_old_is_refused() -> None:
    assert "6.0.9 is too old" in str(schema.refusal(facts(version="6.0.9"), ""))
    assert schema.refusal(facts(version="6.2.0"), "") is None


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("redis://10.0.0.1/0", True),
        ("redis://jobs.example.com/0", True),
        ("redis://:secret@10.0.0.1/0", False),
        ("redis://127.0.0.1/0", False),
        ("redis://[::1]/0", False),
        ("redis://localhost", False),
        ("unix:///run/valkey.sock", False),
    ],
)
def test_a_server_without_a_password_is_warned_of_beyond_loopback(url: str, warned: bool) -> None:
    assert bool(schema.cautions(facts(), parse(url))) is warned


async def test_a_warning_is_logged_once_in_a_process(
    own_server: servers.Valkey, make_store: MakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        store = make_store(own_server.url)
        await store.open()
        await store.close()
    assert len([each for each in caplog.records if own_server.url.rpartition("@")[2] in each.getMessage()]) <= 1


@pytest.mark.parametrize("namespace", ["", "a}b", "{a", "a b", "a*"])
def test_a_namespace_that_would_break_the_hash_tag_is_refused(namespace: str) -> None:
    with pytest.raises(InvalidOption, match="namespace"):
        RedisStore("redis://localhost", namespace=namespace)


def test_an_unknown_durability_is_refused() -> None:
    with pytest.raises(InvalidOption, match="full and normal"):
        RedisStore("redis://localhost", durability="fast")


def test_a_url_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(BadUrl):
        RedisStore("http://localhost")


def test_the_password_is_masked() -> None:
    assert "secret" not in RedisStore("redis://me:secret@localhost/3").url


async def test_an_unreachable_server_is_unavailable(make_store: MakeStore) -> None:
    store = make_store("redis://127.0.0.1:1/0")
    with pytest.raises(StoreUnavailable, match="running"):
        await store.open()
    await store.close()


@pytest.mark.parametrize("login", ["", ":wrong@", "nobody:wrong@"])
async def test_a_wrong_password_is_refused(own_server: servers.Valkey, make_store: MakeStore, login: str) -> None:
    """Waiting does not help, so the error is not ``StoreUnavailable``."""
    store = make_store(f"redis://{login}{own_server.url.rpartition('@')[2]}")
    with pytest.raises(StoreError, match="password") as refused:
        await store.open()
    assert not isinstance(refused.value, StoreUnavailable)
    await store.close()


async def test_a_replica_is_refused(
    own_client: redis.asyncio.Redis, own_server: servers.Valkey, own_store: Door, namespace: str
) -> None:
    """Whether the namespace exists or not."""
    assert own_store.engine == "redis"
    await own_client.replicaof("127.0.0.1", 1)
    try:
        for name in (namespace, "new"):
            store = Door(RedisStore(own_server.url, namespace=name))
            with pytest.raises(StoreReadOnly, match="primary"):
                await store.open()
            await store.close()
    finally:
        await own_client.replicaof("no", "one")


async def test_an_action_on_an_empty_query_is_refused(store: Door) -> None:
    with pytest.raises(InvalidOption, match="everything"):
        await store.act(Action.CANCEL, Query())


async def test_a_batch_that_is_too_large_is_refused_whole(store: Door) -> None:
    with pytest.raises(StoreConflict, match="1,001"):
        await put_in(store, *(job(id=each.bytes) for each in new_ids(1001)))
    with pytest.raises(StoreConflict, match="bytes"):
        await put_in(store, *(job(record=b"x" * 1_000_000) for _ in range(9)))
    assert (await store.find(Query.everything())).jobs == ()


async def test_a_batch_of_eight_megabytes_is_accepted(store: Door) -> None:
    jobs = [job(record=bytes(1_000_000)) for _ in range(8)]
    assert all(each.created for each in await put_in(store, *jobs))
    hand = await Hand(store).join()
    assert [id for _ in range(8) for id in ids(await hand.take(8))] == ids(jobs)  # a turn is not so heavy


async def test_a_time_beyond_exact_numbers_is_refused(store: Door) -> None:
    with pytest.raises(StoreConflict, match="later than Redis"):
        await put_in(store, job(run_at=2**60))
    with pytest.raises(StoreConflict):
        await put_in(store, job(run_at=2**70))


async def test_a_callers_connection_is_refused(store: Door) -> None:
    with pytest.raises(WrongConnection):
        store.enqueue_now(JobBatch(id=new_id().bytes, jobs=(job(),)), connection=object())


async def test_a_store_serves_several_event_loops(own_store: Door, own_client: redis.asyncio.Redis) -> None:
    """Each loop has its own connection, which is closed with the loop, even without ``close``."""
    made = await one(own_store)

    async def look() -> int:
        listener = await own_store.listen("w", ["q"])
        found = await own_store.find(Query(ids=(made.id,)))
        assert not await listener.wait(0)
        return len(found.jobs)

    for _ in range(3):
        assert await asyncio.to_thread(asyncio.run, look()) == 1
    gc.collect()
    assert len((await own_store.find(Query(ids=(made.id,)))).jobs) == 1
    async with asyncio.timeout(30):
        while sum(each["name"] == "mainspring" for each in await own_client.client_list()) > 1:
            pass


async def test_a_fork_leaves_the_parents_connection_alone(own_store: Door, own_client: redis.asyncio.Redis) -> None:
    """Parent and child enqueue on the same store object; the child does so on a connection of its own."""
    store, mine, theirs = own_store, job(), job()
    store.enqueue_now(JobBatch(id=new_id().bytes, jobs=()))
    before = (await own_client.info("stats"))["total_connections_received"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads: the child only calls the store
        child = os.fork()
    if child == 0:
        status = 1
        try:
            made = store.enqueue_now(JobBatch(id=new_id().bytes, jobs=(theirs,)))
            status = 0 if made[0].created else 2
        finally:
            os._exit(status)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert status == 0
    assert (await own_client.info("stats"))["total_connections_received"] == before + 1
    assert store.enqueue_now(JobBatch(id=new_id().bytes, jobs=(mine,)))[0].created
    assert sorted(ids((await store.find(Query.everything())).jobs)) == sorted(ids([mine, theirs]))


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", StoreFull),
        ("ERR Error running script (call to f_x): @user_script:9: -OOM command not allowed when", StoreFull),
        ("LOADING Valkey is loading the dataset in memory", StoreUnavailable),
        ("MASTERDOWN Link with MASTER is down", StoreUnavailable),
        ("TRYAGAIN Multiple keys request during rehashing of slot", StoreUnavailable),
        ("MISCONF Errors writing to the AOF file", StoreUnavailable),
        ("NOREPLICAS Not enough good replicas to write.", StoreUnavailable),
        ("READONLY You can't write against a read only replica.", StoreUnavailable),
        ("NOAUTH Authentication required.", StoreUnavailable),
        ("NOPERM User x has no permissions to run the 'hset' command", StoreUnavailable),
        ("CONFLICT parent 00", StoreConflict),
        ("ERR unknown command", StoreConflict),
    ],
)
def test_errors_of_the_server_are_translated(said: str, means: type[StoreError]) -> None:
    assert type(translate(ServerError(said))) is means


def test_other_errors_are_not_translated() -> None:
    """A time limit of a job is an ``OSError``, too: only the driver knows which errors are its own."""
    for other in (ZeroDivisionError(), OSError("no route"), TimeoutError(), SoftTimeout(1)):
        assert translate(other) is None
    assert isinstance(translate(ConnectionBroken("no route")), StoreUnavailable)
