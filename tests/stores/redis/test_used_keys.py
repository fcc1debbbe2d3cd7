"""Unique keys leave nothing behind."""

from __future__ import annotations

import redis.asyncio

from mainspring.stores.door import Door
from mainspring.stores.redis.driver.catalogue import tag
from tests.stores.used_keys import use_keys


async def test_no_key_of_a_unique_key_is_left(store: Door, namespace: str, redis_owner_url: str) -> None:
    await use_keys(store)
    async with redis.asyncio.Redis.from_url(redis_owner_url, protocol=2) as client:
        left = [key async for key in client.scan_iter(match=f"{tag(namespace)}*", count=1000)]
    assert left == [f"{tag(namespace)}meta".encode()]
