"""Retention of fencing tokens."""

from __future__ import annotations

import redis.asyncio

from mainspring.common.clock import MovableClock, to_datetime
from mainspring.jobs.records import Retention
from mainspring.limits.records import Bucket
from mainspring.stores.base import NUMBERS_KEPT
from mainspring.stores.door import Door
from mainspring.stores.redis import RedisStore
from mainspring.stores.redis.driver.catalogue import tag

MANY = 1100
"""More than one script of ``prune`` looks at."""


async def test_old_fencing_tokens_are_pruned(redis_url: str, redis_owner_url: str, namespace: str) -> None:
    """All of them, however many there are, and none that is young."""
    clock = MovableClock()
    store = Door(RedisStore(redis_url, namespace=namespace, clock=clock))
    await store.open()
    for n in range(MANY):
        await store.hold(b"%d" % n, [Bucket("lock", str(n))], 1, fenced=True)
    clock.set(to_datetime(clock.now_us() + NUMBERS_KEPT - 1))
    await store.hold(b"young", [Bucket("lock", "young")], 1, fenced=True)
    async with redis.asyncio.Redis.from_url(redis_owner_url, protocol=2) as client:
        await store.prune(Retention())
        assert await client.zcard(f"{tag(namespace)}fences") == MANY + 1
        clock.set(to_datetime(clock.now_us() + 1))
        await store.prune(Retention())
        assert await client.zrange(f"{tag(namespace)}fences", 0, -1) == [b"lock=young"]
    await store.close()
