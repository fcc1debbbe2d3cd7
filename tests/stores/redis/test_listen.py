"""Wake-ups: few tokens, listeners that expire, and connections that are cut."""

from __future__ import annotations

import asyncio

import pytest
import redis.asyncio

from mainspring.errors import StoreUnavailable
from mainspring.stores.door import Door
from mainspring.stores.redis.driver import listen
from mainspring.testing import servers
from mainspring.testing.contract.hands import one

LONG = 30.0


async def tokens(client: redis.asyncio.Redis, namespace: str, queue: str = "q") -> int:
    return int(await client.llen(f"{{ms:{namespace}}}:wake:{queue}"))


async def listeners(client: redis.asyncio.Redis, namespace: str, queue: str = "q") -> int:
    return int(await client.zcard(f"{{ms:{namespace}}}:listeners:{queue}"))


async def until_listeners(client: redis.asyncio.Redis, namespace: str, n: int) -> None:
    async with asyncio.timeout(LONG):
        while await listeners(client, namespace) != n:
            pass


async def test_without_listeners_nothing_is_written(
    own_store: Door, own_client: redis.asyncio.Redis, namespace: str
) -> None:
    await one(own_store)
    await own_store.notify(["q"])
    assert await tokens(own_client, namespace) == 0


async def test_tokens_are_at_most_one_for_each_listener(
    own_store: Door, own_client: redis.asyncio.Redis, namespace: str
) -> None:
    """However much comes while they are busy."""
    heard = [await own_store.listen(f"w{n}", ["q"]) for n in range(3)]
    for _ in range(10):
        await one(own_store)
    assert await tokens(own_client, namespace) == 3
    for each in heard:
        each.close()


async def test_tokens_and_listeners_expire(own_store: Door, own_client: redis.asyncio.Redis, namespace: str) -> None:
    """A process that died leaves keys that the server removes by itself."""
    listener = await own_store.listen("w", ["q"])
    await one(own_store)
    for kind in ("wake", "listeners"):
        assert 0 < await own_client.pttl(f"{{ms:{namespace}}}:{kind}:q") <= 60_000
    listener.close()
    await until_listeners(own_client, namespace, 0)


async def test_a_listener_without_reports_is_removed(
    own_store: Door, own_client: redis.asyncio.Redis, namespace: str
) -> None:
    await own_client.zadd(f"{{ms:{namespace}}}:listeners:q", {"dead": 1.0})
    listener = await own_store.listen("w", ["q"])
    assert await listeners(own_client, namespace) == 1
    listener.close()


async def test_a_listener_reports_again(
    own_store: Door, own_client: redis.asyncio.Redis, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = await own_store.listen("w", ["q"])
    await own_client.delete(f"{{ms:{namespace}}}:listeners:q")
    monkeypatch.setattr(listen, "REFRESH", 0.0)
    assert not await listener.wait(0.01)
    assert await listeners(own_client, namespace) == 1
    listener.close()


async def test_a_cancelled_wait_loses_no_token(own_store: Door) -> None:
    """The token that arrives for it is used by the next wait."""
    listener = await own_store.listen("w", ["q"])
    waiting = asyncio.create_task(listener.wait(LONG))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await one(own_store)
    assert await listener.wait(LONG)
    listener.close()


async def test_a_wait_continues_after_an_empty_reply(own_store: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "BLOCK", 0.01)
    listener = await own_store.listen("w", ["q"])
    assert not await listener.wait(0.2)
    await one(own_store)
    assert await listener.wait(LONG)
    listener.close()


async def test_a_killed_connection_fails_the_wait_and_listening_works_again(
    own_store: Door, own_client: redis.asyncio.Redis
) -> None:
    listener = await own_store.listen("w", ["q"])
    waiting = asyncio.create_task(listener.wait(LONG))
    async with asyncio.timeout(LONG):
        while not (blocked := [each for each in await own_client.client_list() if each["cmd"] == "blpop"]):
            pass
    await own_client.client_kill_filter(_id=blocked[0]["id"])
    with pytest.raises(StoreUnavailable):
        await waiting
    with pytest.raises(StoreUnavailable):
        await listener.wait(LONG)
    listener.close()
    again = await own_store.listen("w", ["q"])
    await one(own_store)
    assert await again.wait(LONG)
    again.close()


async def test_a_silent_connection_fails_the_wait(
    own_server: servers.Valkey, own_store: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half open: no end comes, and no reply."""
    monkeypatch.setattr(listen, "BLOCK", 0.01)
    monkeypatch.setattr(listen, "LATE", 0.2)
    listener = await own_store.listen("w", ["q"])
    own_server.freeze()
    try:
        with pytest.raises(StoreUnavailable, match="no reply"):
            await listener.wait(LONG)
    finally:
        own_server.thaw()
    listener.close()


async def test_a_closed_listener_does_not_wake(own_store: Door) -> None:
    listener = await own_store.listen("w", ["q"])
    listener.close()
    listener.close()
    assert not await listener.wait(LONG)


async def test_a_store_that_closes_ends_its_listeners(own_store: Door) -> None:
    listener = await own_store.listen("w", ["q"])
    waiting = asyncio.create_task(listener.wait(LONG))
    await asyncio.sleep(0)
    await own_store.close()
    with pytest.raises(StoreUnavailable):
        await waiting
    await own_store.open()
