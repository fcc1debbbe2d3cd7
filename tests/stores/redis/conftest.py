"""Stores on a real Valkey. `store` shares the run's server; `own_server` can be frozen, filled and counted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from uuid import uuid4

import pytest
import pytest_asyncio
import redis.asyncio

from mainspring.stores.door import Door
from mainspring.stores.redis import RedisStore
from mainspring.testing import servers

MakeStore = Callable[[str], Door]


@pytest.fixture
def namespace() -> str:
    """Fresh for each test."""
    return f"t{uuid4().hex[:12]}"


@pytest.fixture
def make_store(namespace: str) -> MakeStore:
    """Another client of the test's namespace at a URL, not yet open."""
    return lambda url: Door(RedisStore(url, namespace=namespace))


async def opened(store: Door) -> AsyncIterator[Door]:
    await store.open()
    yield store
    await store.close()


@pytest_asyncio.fixture
async def store(make_store: MakeStore, redis_url: str) -> AsyncIterator[Door]:
    async for each in opened(make_store(redis_url)):
        yield each


@pytest_asyncio.fixture
async def second(store: Door, make_store: MakeStore, redis_url: str) -> AsyncIterator[Door]:
    """Another client of the same namespace."""
    async for each in opened(make_store(redis_url)):
        yield each


@pytest.fixture(scope="module")
def own_server() -> Iterator[servers.Valkey]:
    """A server of this module alone."""
    server = servers.valkey(own=True)
    assert isinstance(server, servers.Valkey)
    with server:
        yield server


@pytest_asyncio.fixture
async def own_store(make_store: MakeStore, own_server: servers.Valkey) -> AsyncIterator[Door]:
    async for each in opened(make_store(own_server.url)):
        yield each


@pytest_asyncio.fixture
async def own_client(own_server: servers.Valkey) -> AsyncIterator[redis.asyncio.Redis]:
    """Looks into the server itself."""
    async with redis.asyncio.Redis.from_url(own_server.url, protocol=2) as client:
        yield client
