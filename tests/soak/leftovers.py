"""At rest nothing is held: no capacity of a limit, no probe, no depth of a queue."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mainspring.common.ids import raw_id
from mainspring.errors import QueueFull
from mainspring.jobs.records import JobBatch, NewJob
from mainspring.queues.records import QueueMode, QueueSettings
from mainspring.stores.base import Store
from tests.soak.flow import DEPTH


async def leftovers(store: Store, batches: Iterable[JobBatch]) -> list[str]:
    """What is held in spite of that, of the buckets and queues of these batches."""
    buckets = {bucket.name: bucket for batch in batches for job in batch.jobs for bucket in job.buckets}
    rows = await store.buckets(list(buckets.values()))
    held = [f"{row.name}: {row.used} still held" for row in rows if row.kind in ("concurrency", "breaker") and row.used]
    return held + [problem for queue in ("small", "newest") for problem in await _depth(store, queue)]


async def _depth(store: Store, queue: str) -> list[str]:
    """An empty queue accepts exactly as many jobs as its depth."""
    await store.set_queue_mode([queue], QueueMode.PAUSED)
    await store.configure_queue(queue, msgspec.convert({"max_depth": DEPTH, "on_full": "error"}, QueueSettings))
    try:
        await store.enqueue(_batch(queue, DEPTH))
    except QueueFull:
        return [f"queue {queue}: full although nothing waits in it"]
    try:
        await store.enqueue(_batch(queue, 1))
    except QueueFull:
        return []
    return [f"queue {queue}: deeper than it may be"]


def _batch(queue: str, n: int) -> JobBatch:
    return JobBatch(id=raw_id(), jobs=tuple(NewJob(id=raw_id(), task="little", queue=queue) for _ in range(n)))
