"""Whether all ready jobs are held back by a rate, a breaker or a pin, which only time or a user can change."""

from __future__ import annotations

from mainspring.breakers.records import FOREVER
from mainspring.flows.shape import EACH_TASK
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobRow
from mainspring.limits.records import BucketRow
from mainspring.states import State
from mainspring.stores.door import Door
from mainspring.worker.config import WorkerConfig
from mainspring.worker.eligibility import meets_terms

_PAGE = 50


async def held_until(store: Door, parts: WorkerConfig) -> int | None:
    """The first time at which a ready job may start; ``FOREVER`` if it is unknown, None if a job may start now."""
    first, cursor = None, None
    closed = {row.name for row in await store.queues() if row.closed}
    while True:
        query = Query(states=(State.READY,), tasks=(*parts.tasks, EACH_TASK))
        page = await store.find(query, limit=_PAGE, cursor=cursor)
        for row in page.jobs:
            if row.queue in closed:
                continue
            moment = await _moment(store, row) if meets_terms(row.lane, parts) else FOREVER
            if moment is None:
                return None
            first = moment if first is None else min(first, moment)
        cursor = page.cursor
        if cursor is None:
            return first


async def _moment(store: Door, row: JobRow) -> int | None:
    moments = [_over(each) for each in await store.buckets(row.buckets)] if row.buckets else []
    return max((each for each in moments if each is not None), default=None)


def _over(bucket: BucketRow) -> int | None:
    if bucket.next_at is not None:
        return bucket.next_at
    is_full = bucket.used >= bucket.size if bucket.breaker is None else bucket.breaker.state == "open"
    return FOREVER if is_full else None
