"""Retention: deletes ended jobs, and rows of workers, schedules and limits that are of no more use."""

from __future__ import annotations

from typing import Final

from mainspring.jobs.records import Retention
from mainspring.stores.base import NUMBERS_KEPT
from mainspring.stores.redis.driver.client import RedisClient

from .finish import DIED, DONE, KEEP_UNTIL, KEY_UNTIL

SLICE: Final = 200
"""Jobs that one script deletes."""
LIMITS_SLICE: Final = 1_000
"""Buckets that one script looks at."""


async def prune(client: RedisClient, retention: Retention, limit: int) -> int:
    """Delete at most ``limit`` jobs, in slices: those with a ``keep`` of their own, then the others, then the dead."""
    rules = (
        (KEY_UNTIL, 0, 0),
        (KEEP_UNTIL, 0, 0),
        (DONE, retention.keep, retention.keep_count),
        (DIED, retention.keep_dead, retention.keep_dead_count),
    )
    gone = 0
    for which, keep, keep_count in rules:
        more = True
        while more and gone < limit:
            size = min(limit - gone, SLICE)
            went, more = await client.run("prune", which, keep, keep_count, retention.keep_at_least, size)
            gone += went
    await client.run("prune_workers", retention.keep_workers)
    await client.run("prune_schedules", NUMBERS_KEPT)
    while await client.run("prune_limits", LIMITS_SLICE, NUMBERS_KEPT) == LIMITS_SLICE:
        pass
    return gone
