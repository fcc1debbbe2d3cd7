"""Due jobs become ready, expired jobs end: ``lua/promote.lua``."""

from __future__ import annotations

from mainspring.jobs.records import PromoteResult
from mainspring.stores.redis.driver.client import RedisClient


async def promote(client: RedisClient, limit: int) -> PromoteResult:
    now, promoted, queues, soonest, ended = await client.run("promote", limit)
    names = tuple(sorted(queue.decode() for queue in queues))
    return PromoteResult(now, promoted, len(ended), names, soonest, tuple(ended))
