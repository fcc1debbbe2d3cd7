"""Addresses of a server: TCP, TLS, a Unix socket; what a URL may contain."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import redis.asyncio

from mainspring.errors import BadUrl, StoreUnavailable
from mainspring.jobs.records import JobBatch
from mainspring.stores.redis import RedisStore
from mainspring.stores.redis.driver.address import parse
from mainspring.testing import servers
from mainspring.testing.contract.hands import one

from .conftest import MakeStore
from .tls import CERTIFICATE, TlsEnd


async def test_a_unix_socket(make_store: MakeStore, tmp_path: Path) -> None:
    with servers.valkey(own=True, settings={"unixsocket": str(tmp_path / "v.sock")}) as server:
        login = server.url.removeprefix("redis://").partition("@")[0]
        store = make_store(f"unix://{login}@{tmp_path}/v.sock?db=3")
        await store.open()
        made = await one(store)
        assert not store.enqueue_now(JobBatch(id=made.id, jobs=(made,)))[0].created
        async with redis.asyncio.Redis.from_url(server.url.removesuffix("0") + "3", protocol=2) as client:
            assert await client.dbsize()
        await store.close()


async def test_tls_checks_certificate_and_name(own_server: servers.Valkey, make_store: MakeStore) -> None:
    trusted = f"?ssl_ca_certs={CERTIFICATE}"
    async with TlsEnd(own_server.url) as end:
        store = make_store(end.url(options=trusted))
        await store.open()
        made = await one(store)
        put_again = asyncio.to_thread(store.enqueue_now, JobBatch(id=made.id, jobs=(made,)))
        assert not (await put_again)[0].created
        await store.close()
        for url in (end.url(), end.url("127.0.0.1", trusted)):
            store = make_store(url)
            with pytest.raises(StoreUnavailable, match=r"(?i)certificate"):
                await store.open()
            with pytest.raises(StoreUnavailable, match=r"(?i)certificate"):
                await asyncio.to_thread(store.enqueue_now, JobBatch(id=made.id, jobs=(made,)))
        for url in (
            end.url("127.0.0.1", trusted + "&ssl_check_hostname=no"),
            end.url(options="?ssl_cert_reqs=none"),
        ):
            store = make_store(url)
            await store.open()
            await store.close()


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost/zero",
        "redis://localhost/0?socket_timeout=3",
        "redis://localhost/0?ssl_ca_certs=x",
        "redis://localhost:99999/0",
        "rediss://localhost/0?ssl_cert_reqs=maybe",
        "rediss://localhost/0?ssl_keyfile=x",
        "unix://",
    ],
)
def test_a_url_with_unknown_or_unreadable_parts_is_refused(url: str) -> None:
    with pytest.raises(BadUrl):
        RedisStore(url)


def test_parts_are_unquoted() -> None:
    read = parse("redis://us%40er:p%2Fw@[::1]:7000/5")
    assert (read.username, read.password, read.host, read.port, read.db) == ("us@er", "p/w", "::1", 7000, 5)
    assert parse("valkey://h").port == 6379
