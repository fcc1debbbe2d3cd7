"""Durability: its class, its warnings and refusals; confirmed writes survive a kill."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager

import pytest
import pytest_asyncio
import redis.asyncio

from mainspring import Mainspring
from mainspring.common.ids import new_id
from mainspring.errors import StoreError, StoreNotDurable, StoreUnavailable
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobBatch
from mainspring.stores.door import Door
from mainspring.stores.redis import RedisStore
from mainspring.stores.redis.driver import confirm, schema, scripts
from mainspring.testing import servers
from mainspring.testing.contract.hands import Hand, ids, job, put_in
from tests.timing import patience

NONE: Mapping[str, str] = {}
RDB = {"save": "3600 1"}
EVERYSEC = {"appendonly": "yes", "appendfsync": "everysec"}
ALWAYS = {"appendonly": "yes", "appendfsync": "always"}


@contextmanager
def server_with(settings: Mapping[str, str]) -> Iterator[servers.Valkey]:
    server = servers.valkey(own=True, settings=settings)
    assert isinstance(server, servers.Valkey)
    with server:
        yield server


def requested(durability: str) -> schema.RequestedDurability:
    return schema.RequestedDurability(durability, strict=False, replicas=0, wait_fsync=False)


class TestClasses:
    @pytest.mark.parametrize(
        ("settings", "kept", "short_of"),
        [
            (NONE, "none", ("full", "normal")),
            (RDB, "rdb", ("full",)),
            (EVERYSEC, "aof-everysec", ()),
            (ALWAYS, "aof-always", ()),
        ],
    )
    async def test_weak_durability_is_warned_of_and_refused_if_strict(
        self,
        settings: Mapping[str, str],
        kept: str,
        short_of: tuple[str, ...],
        namespace: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        with server_with(settings) as server:
            for durability in ("full", "normal"):
                caplog.clear()
                store = Door(RedisStore(server.url, namespace=namespace, durability=durability))
                await store.open()
                assert bool(caplog.records) is (durability in short_of)
                assert await store.durability() == f"redis:{kept}"
                await store.close()
                strict = Door(RedisStore(server.url, namespace=namespace, durability=durability, strict=True))
                if durability in short_of:
                    with pytest.raises(StoreNotDurable, match="appendonly yes"):
                        await strict.open()
                else:
                    await strict.open()
                await strict.close()

    def test_a_server_without_config_has_unknown_durability(self) -> None:
        """An ACL forbids CONFIG: ``strict`` must not assume that the server keeps its data."""
        unknown = schema.ServerFacts(version="7.0.0")
        assert unknown.kept == "unknown"
        assert schema.weaknesses(unknown, requested("normal"))
        assert not schema.weaknesses(schema.ServerFacts(version="7.0.0", aof=True), requested("full"))


@pytest.mark.parametrize("settings", [EVERYSEC, ALWAYS])
async def test_confirmed_writes_survive_a_kill(settings: Mapping[str, str], namespace: str) -> None:
    """Producers go on while the server is killed and comes back, again and again: no confirmed id is missing."""
    with server_with(settings) as server:
        store = Door(RedisStore(server.url, namespace=namespace))
        await store.open()
        confirmed: list[bytes] = []

        async def produce(stop: asyncio.Event) -> None:
            while not stop.is_set():
                try:
                    made = await put_in(store, job())
                except StoreUnavailable:
                    await asyncio.sleep(0.01)
                else:
                    confirmed.append(made[0].id)

        for _ in range(3):
            stop, before = asyncio.Event(), len(confirmed)
            producers = [asyncio.create_task(produce(stop)) for _ in range(5)]
            async with asyncio.timeout(30):
                while len(confirmed) < before + 200:
                    await store.workers()
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            stop.set()
            await asyncio.gather(*producers)
        there = set[bytes]()
        for first in range(0, len(confirmed), 500):
            found = await store.find(Query(ids=tuple(confirmed[first : first + 500])), limit=500)
            there.update(ids(found.jobs))
        assert there == set(confirmed)
        await store.close()


@pytest.fixture(scope="module")
def primary() -> Iterator[servers.Valkey]:
    with server_with(ALWAYS) as server:
        yield server


@pytest.fixture(scope="module")
def replica(primary: servers.Valkey) -> Iterator[servers.Valkey]:
    login, _, place = primary.url.removeprefix("redis://:").partition("@")
    host, _, port = place.removesuffix("/0").partition(":")
    with server_with({"replicaof": f"{host} {port}", "masterauth": login}) as server:
        yield server


@pytest_asyncio.fixture
async def watch(primary: servers.Valkey) -> AsyncIterator[redis.asyncio.Redis]:
    async with redis.asyncio.Redis.from_url(primary.url, protocol=2) as client:
        yield client


@pytest_asyncio.fixture
async def replicated(
    primary: servers.Valkey, replica: servers.Valkey, watch: redis.asyncio.Redis, namespace: str
) -> AsyncIterator[Door]:
    async with asyncio.timeout(30):
        while not await watch.wait(1, 100):
            pass
    store = Door(RedisStore(primary.url, namespace=namespace, replicas=1, strict=True))
    await store.open()
    yield store
    await store.close()


class TestReplicas:
    async def test_the_durability_class_names_the_replicas(self, replicated: Door) -> None:
        assert await replicated.durability() == "redis:aof-always+replicas=1"

    async def test_confirmed_writes_are_on_the_replica(
        self, replicated: Door, replica: servers.Valkey, namespace: str
    ) -> None:
        made = [job() for _ in range(20)]
        await asyncio.gather(*(put_in(replicated, each) for each in made))
        replicated.enqueue_now(JobBatch(id=new_id().bytes, jobs=(made[0], job())))
        async with redis.asyncio.Redis.from_url(replica.url, protocol=2) as client:
            assert await client.zcard(f"{{ms:{namespace}}}:ids") == 21

    async def test_a_stopped_replica_confirms_nothing(
        self,
        primary: servers.Valkey,
        replica: servers.Valkey,
        replicated: Door,
        namespace: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """The outcome is unknown, reads and heartbeats work, and the repeat finds the job."""
        monkeypatch.setattr(confirm, "WAIT_TIMEOUT", 200)
        store = Door(RedisStore(primary.url, namespace=namespace, replicas=1))
        made = job()
        replica.freeze()
        try:
            with pytest.raises(StoreUnavailable, match="0 of the 1 replicas"):
                await put_in(store, made)
            with pytest.raises(StoreUnavailable, match="0 of the 1 replicas"):
                store.enqueue_now(JobBatch(id=new_id().bytes, jobs=(made,), retry=True))
            waiting = asyncio.create_task(put_in(replicated, job()))
            await Hand(replicated).join()
            assert ids((await replicated.find(Query(ids=(made.id,)))).jobs) == [made.id]
            assert not waiting.done()
        finally:
            replica.thaw()
        assert not (await put_in(store, made, retry=True))[0].created
        await waiting
        await store.close()

    async def test_an_unknown_script_does_not_wait_for_a_confirmation(
        self, own_server: servers.Valkey, own_client: redis.asyncio.Redis, namespace: str
    ) -> None:
        """There is no replica, as after a failover, and the caller has a shorter deadline than WAIT."""
        hurried = Door(RedisStore(own_server.url, namespace=namespace, replicas=1), deadline=1.5)
        plain = Door(RedisStore(own_server.url, namespace=namespace))
        for each in (plain, hurried):
            await each.open()
        await own_client.script_flush()
        with pytest.raises(StoreUnavailable):
            await put_in(hurried, job())
        assert sum((await plain.count(Query.everything())).values()) == 1
        for each in (hurried, plain):
            await each.close()

    async def test_too_few_replicas_are_warned_of_and_refused_if_strict(
        self, primary: servers.Valkey, replicated: Door, namespace: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = Door(RedisStore(primary.url, namespace=namespace, replicas=5))
        await store.open()
        assert "5 replicas" in caplog.text
        await store.close()
        store = Door(RedisStore(primary.url, namespace=namespace, replicas=5, strict=True))
        with pytest.raises(StoreError, match="5 replicas"):
            await store.open()
        await store.close()


class TestFsync:
    async def test_a_write_counts_once_it_is_on_the_disk(self, namespace: str) -> None:
        with server_with(EVERYSEC) as server:
            store = Door(RedisStore(server.url, namespace=namespace, wait_fsync=True, strict=True))
            await store.open()
            assert await store.durability() == "redis:aof-everysec+fsync"
            made = [job() for _ in range(10)]
            await asyncio.gather(*(put_in(store, each) for each in made))
            store.enqueue_now(JobBatch(id=new_id().bytes, jobs=(job(),)))
            async with redis.asyncio.Redis.from_url(server.url, protocol=2) as client:
                assert (await client.info("commandstats"))["cmdstat_waitaof"]["calls"] >= 2
            await store.close()

    async def test_a_server_without_an_append_only_file_is_refused(
        self, own_server: servers.Valkey, namespace: str
    ) -> None:
        store = Door(RedisStore(own_server.url, namespace=namespace, wait_fsync=True))
        with pytest.raises(StoreError, match=r"wait_fsync[^\n]*\n.*appendonly yes"):
            await store.open()
        await store.close()

    async def test_a_server_without_waitaof_is_refused(self, namespace: str) -> None:
        with server_with(EVERYSEC | {"rename-command": 'WAITAOF ""'}) as server:
            store = Door(RedisStore(server.url, namespace=namespace, wait_fsync=True))
            with pytest.raises(StoreError, match="WAITAOF"):
                await store.open()
            await store.close()


def test_unconfirmed_names_are_scripts() -> None:
    """A misspelt name would have no effect."""
    assert all(scripts.script(name).text for name in confirm.NOTHING_TO_LOSE)


def test_writes_of_callers_are_confirmed() -> None:
    wanted = confirm.WriteConfirmation("meta", 1)
    assert all(
        wanted.is_wanted(name)
        for name in ("enqueue", "enqueue_plain", "turn", "act", "retire", "put_document", "set_queue_mode")
    )
    assert not confirm.WriteConfirmation("meta").is_wanted("enqueue")


@pytest.mark.option("app.replicas")
async def test_the_replicas_that_an_app_asks_for_must_have_its_jobs(
    own_server: servers.Valkey,
) -> None:
    """The server has none: nothing is confirmed."""
    app = Mainspring(own_server.url, replicas=1, enqueue_patience=patience(6))
    with pytest.raises(StoreUnavailable, match="0 of the 1 replicas"):
        await app.call("shop.mail").aenqueue()
    await app.aclose()


@pytest.mark.option("app.wait_fsync")
async def test_an_app_that_waits_for_the_disk_needs_a_server_with_an_append_only_file(
    own_server: servers.Valkey,
) -> None:
    app = Mainspring(own_server.url, wait_fsync=True)
    with pytest.raises(StoreError, match="appendonly"):
        await app.call("shop.mail").aenqueue()
    await app.aclose()
