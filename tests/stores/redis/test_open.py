"""Opening: what is refused, with the fix; what is not built says so."""

from __future__ import annotations

import asyncio
import os
import warnings

import pytest
import redis.asyncio

from mainspring.errors import (
    BadUrl,
    InvalidOption,
    NotBuilt,
    SchemaOutdated,
    StoreConflict,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
    WrongConnection,
)
from mainspring.ids import new_id, new_ids
from mainspring.query import Query
from mainspring.records import Doc, Follow, Mode, Retention, Unique
from mainspring.states import Action, State
from mainspring.stores.base import Batch
from mainspring.stores.door import Door
from mainspring.stores.redis import RedisStore, translate
from mainspring.stores.redis.keys import meta_key
from mainspring.testing import servers
from mainspring.testing.contract.hands import Hand, ids, job, one, put_in

from .conftest import MakeStore


async def test_a_newer_schema_is_refused(own_server: servers.Valkey, own_client: redis.asyncio.Redis) -> None:
    await own_client.hset(meta_key("newer"), "schema", "99")
    store = Door(RedisStore(own_server.url, namespace="newer"))
    with pytest.raises(SchemaOutdated, match="99"):
        await store.open()
    with pytest.raises(SchemaOutdated, match="Upgrade"):
        await store.migrate()
    assert await own_client.hget(meta_key("newer"), "schema") == b"99"
    await store.close()


async def test_a_server_that_evicts_is_refused(make_store: MakeStore) -> None:
    with servers.valkey(own=True, settings={"maxmemory-policy": "allkeys-lru"}) as server:
        store = make_store(server.url)
        with pytest.raises(StoreError, match=r"allkeys-lru[^\n]*\n.*noeviction"):
            await store.open()
        await store.close()


async def test_strict_durability_refuses_a_server_that_may_forget(own_server: servers.Valkey) -> None:
    store = Door(RedisStore(own_server.url, durability="strict"))
    with pytest.raises(StoreError, match="appendfsync always"):
        await store.open()
    await store.close()


async def test_strict_durability_takes_a_server_that_syncs(namespace: str) -> None:
    with servers.valkey(own=True, durable=True) as server:
        store = Door(RedisStore(server.url, namespace=namespace, durability="strict"))
        await store.open()
        assert await store.durability() == "redis:aof-always"
        await store.close()


async def test_the_durability_class_is_the_servers(own_store: Door) -> None:
    assert await own_store.durability() == "redis:none"


@pytest.mark.parametrize("namespace", ["", "a}b", "{a", "a b", "a*"])
def test_a_namespace_that_would_break_the_hash_tag_is_refused(namespace: str) -> None:
    with pytest.raises(InvalidOption, match="namespace"):
        RedisStore("redis://localhost", namespace=namespace)


def test_an_unknown_durability_is_refused() -> None:
    with pytest.raises(InvalidOption, match="full and strict"):
        RedisStore("redis://localhost", durability="fast")


def test_a_url_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(BadUrl):
        RedisStore("http://localhost")


def test_the_password_is_masked() -> None:
    assert "secret" not in RedisStore("redis://me:secret@localhost/3").url


async def test_a_server_that_is_not_there(make_store: MakeStore) -> None:
    store = make_store("redis://127.0.0.1:1/0")
    with pytest.raises(StoreUnavailable, match="running"):
        await store.open()
    await store.close()


async def test_a_wrong_password(own_server: servers.Valkey, make_store: MakeStore) -> None:
    store = make_store(f"redis://:wrong@{own_server.url.rpartition('@')[2]}")
    with pytest.raises(StoreUnavailable, match="password"):
        await store.open()
    await store.close()


async def test_a_replica_takes_no_writes(own_server: servers.Valkey, own_store: Door, namespace: str) -> None:
    with servers.valkey(own=True) as other:
        async with redis.asyncio.Redis.from_url(other.url, protocol=2) as client:
            await client.hset(meta_key(namespace), "schema", "1")
            host, port = own_server.url.rpartition("@")[2].removesuffix("/0").split(":")
            await client.replicaof(host, int(port))
        store = Door(RedisStore(other.url, namespace=namespace))
        with pytest.raises((StoreReadOnly, StoreUnavailable)):
            await put_in(store, job())
        await store.close()


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.report("w", []),
        lambda store: store.logs(b"0" * 16),
        lambda store: store.prune(Retention()),
        lambda store: store.notify(["q"]),
        lambda store: store.listen("w", ["q"]),
        lambda store: store.put(Doc("k", "n", 1, b"")),
        lambda store: store.docs("k"),
        lambda store: store.tally(Query.everything(), "queue"),
        lambda store: store.items(b"0" * 16),
        lambda store: store.set_mode(["q"], Mode.PAUSED),
        lambda store: store.modes(),
        lambda store: store.find(Query(marks=("red",))),
        lambda store: store.count(Query(since=0)),
        lambda store: store.act(Action.CANCEL, Query(ids=(b"0" * 16,), until=1)),
        lambda store: put_in(store, job(unique=Unique(b"k" * 16))),
        lambda store: put_in(store, job(marks=["red"])),
        lambda store: put_in(store, job(keep=0)),
        lambda store: put_in(store, job(follows=[Follow(State.DEAD, job(id=bytes(16)))])),
        lambda store: store.act(Action.RETRY, Query.everything()),
    ],
)
async def test_what_is_not_built_says_so(store: Door, call: object) -> None:
    assert callable(call)
    with pytest.raises(NotBuilt, match="not built yet"):
        await call(store)


async def test_an_action_on_an_empty_query_is_refused(store: Door) -> None:
    with pytest.raises(InvalidOption, match="everything"):
        await store.act(Action.CANCEL, Query())


async def test_a_batch_that_is_too_large_is_refused_whole(store: Door) -> None:
    with pytest.raises(StoreConflict, match="1,001"):
        await put_in(store, *(job(id=each.bytes) for each in new_ids(1001)))
    with pytest.raises(StoreConflict, match="bytes"):
        await put_in(store, *(job(record=b"x" * 1_000_000) for _ in range(9)))
    assert (await store.find(Query.everything())).jobs == ()


async def test_eight_megabytes_in_one_batch(store: Door) -> None:
    jobs = [job(record=bytes(1_000_000)) for _ in range(8)]
    assert all(each.created for each in await put_in(store, *jobs))
    hand = await Hand(store).join()
    assert ids(await hand.take(8)) == ids(jobs)


async def test_a_time_beyond_exact_numbers_is_refused(store: Door) -> None:
    with pytest.raises(StoreConflict, match="further ahead"):
        await put_in(store, job(run_at=2**60))
    with pytest.raises(StoreConflict):
        await put_in(store, job(run_at=2**70))


async def test_a_callers_connection_is_refused(store: Door) -> None:
    with pytest.raises(WrongConnection):
        store.enqueue_now(Batch(id=new_id().bytes, jobs=(job(),)), connection=object())


async def test_a_store_serves_several_event_loops(store: Door) -> None:
    """Each loop has a client of its own; one loop's close leaves the others alone."""
    made = await one(store)

    def elsewhere() -> bool:
        async def look() -> bool:
            found = await store.find(Query(ids=(made.id,)))
            await store.inner._connection._clients.pop(asyncio.get_running_loop()).aclose()  # type: ignore[attr-defined]
            return len(found.jobs) == 1

        return asyncio.run(look())

    assert await asyncio.to_thread(elsewhere)
    assert await asyncio.to_thread(elsewhere)
    assert len((await store.find(Query(ids=(made.id,)))).jobs) == 1


async def test_a_fork_leaves_the_parents_connection_alone(store: Door) -> None:
    """Parent and child enqueue on the same store object; both jobs are there, neither reads the other's reply."""
    mine, theirs = job(), job()
    store.enqueue_now(Batch(id=new_id().bytes, jobs=()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads: the child only calls the store
        child = os.fork()
    if child == 0:
        status = 1
        try:
            made = store.enqueue_now(Batch(id=new_id().bytes, jobs=(theirs,)))
            status = 0 if made[0].created else 2
        finally:
            os._exit(status)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert status == 0
    assert store.enqueue_now(Batch(id=new_id().bytes, jobs=(mine,)))[0].created
    assert sorted(ids((await store.find(Query.everything())).jobs)) == sorted(ids([mine, theirs]))


def test_what_is_not_the_drivers_is_not_translated() -> None:
    assert translate(ZeroDivisionError()) is None
    assert isinstance(translate(redis.exceptions.OutOfMemoryError("x")), StoreError)
    assert isinstance(translate(redis.exceptions.BusyLoadingError("x")), StoreUnavailable)
    assert isinstance(translate(redis.exceptions.ResponseError("MASTERDOWN x")), StoreUnavailable)
