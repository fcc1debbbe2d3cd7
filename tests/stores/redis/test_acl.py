"""The ACL line allows everything that the suite does (its user has this line), and nothing more."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import redis.asyncio

from mainspring.errors import StoreError, StoreUnavailable
from mainspring.jobs.query import Query
from mainspring.stores.door import Door
from mainspring.stores.redis import RedisStore
from mainspring.stores.redis.driver import acl
from mainspring.testing import servers
from mainspring.testing.contract.hands import Hand, ids, one


async def ask(client: redis.asyncio.Redis, *words: str) -> object:
    """A command for which the driver has no function of its own."""
    return await client.execute_command(*words)  # type: ignore[no-untyped-call]


@pytest.fixture
def user_url(own_server: servers.Valkey, namespace: str) -> str:
    return f"redis://{namespace}:secret@{own_server.url.rpartition('@')[2]}"


@pytest_asyncio.fixture
async def user(own_client: redis.asyncio.Redis, namespace: str) -> AsyncIterator[str]:
    """A user of the server who has the rules for the test's namespace."""
    await ask(own_client, "ACL", "SETUSER", namespace, "on", ">secret", *acl.rules(namespace))
    yield namespace
    await ask(own_client, "ACL", "DELUSER", namespace)


async def test_the_user_works_in_the_namespace(user: str, user_url: str) -> None:
    store = Door(RedisStore(user_url, namespace=user))
    await store.open()
    listener = await store.listen("w", ["q"])
    made = await one(store)
    assert await listener.wait(30)
    listener.close()
    hand = await Hand(store).join()
    assert ids(await hand.take(1)) == [made.id]
    assert await store.durability() == "redis:unknown"  # CONFIG GET would show the server's password too
    await store.close()


@pytest.mark.parametrize(
    "words",
    [("SET", "other", "1"), ("GET", "other"), ("CONFIG", "GET", "requirepass"), ("FLUSHDB",), ("KEYS", "*")],
)
async def test_the_user_cannot_use_other_keys_or_commands(user: str, user_url: str, words: tuple[str, ...]) -> None:
    async with redis.asyncio.Redis.from_url(user_url, protocol=2) as client:
        with pytest.raises(redis.exceptions.NoPermissionError):
            await ask(client, *words)
        with pytest.raises(redis.exceptions.ResponseError):
            await client.eval("return redis.call('HGET', '{ms:other}:meta', 'schema')", 0)


async def test_another_namespace_is_refused_with_a_hint(user: str, user_url: str) -> None:
    store = Door(RedisStore(user_url, namespace="other"))
    with pytest.raises(StoreError, match=r"ACL[^\n]*\n.*mainspring\.stores\.redis") as refused:
        await store.open()
    assert not isinstance(refused.value, StoreUnavailable)  # nobody should wait for it to pass
    await store.close()


async def test_calls_wait_while_the_acl_forbids_them(user: str, user_url: str, own_client: redis.asyncio.Redis) -> None:
    """A worker runs on until an administrator allows the commands again."""
    store = Door(RedisStore(user_url, namespace=user))
    await store.open()
    await ask(own_client, "ACL", "SETUSER", user, "-hset")
    with pytest.raises(StoreUnavailable, match="ACL"):
        await one(store)
    await ask(own_client, "ACL", "SETUSER", user, "-evalsha", "-eval")
    with pytest.raises(StoreUnavailable, match="ACL"):
        await store.find(Query.everything())
    await ask(own_client, "ACL", "SETUSER", user, *acl.rules(user))
    await one(store)
    await store.close()


async def test_open_fails_for_a_user_without_waitaof(user: str, user_url: str) -> None:
    store = Door(RedisStore(user_url, namespace=user, wait_fsync=True))
    with pytest.raises(StoreError, match="ACL"):
        await store.open()
    await store.close()


def test_the_line_is_printed() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "mainspring.stores.redis", "shop"], capture_output=True, text=True, check=True
    )
    assert said.stderr == ""
    assert said.stdout.startswith("user mainspring on >PASSWORD resetkeys ~{ms:shop}:* resetchannels -@all +")
    assert "+waitaof" in acl.line(wait_fsync=True)
    assert "+waitaof" not in said.stdout
