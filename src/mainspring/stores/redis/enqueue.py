"""The arguments and the reply of ``enqueue.lua``."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from mainspring.errors import StoreConflict
from mainspring.lanes import base_lane
from mainspring.records import Edge, Enqueued, NewJob
from mainspring.stores.base import Batch

from .unbuilt import check_jobs

MAX_JOBS = 1_000
MAX_BYTES = 8 * 1024 * 1024
"""One script stops the whole server while it runs: larger batches are for the caller to cut."""

EXACT = 2**53
"""Lua's numbers are doubles: times beyond this (the year 2255) would be rounded."""

_pack = msgspec.msgpack.Encoder().encode


def arguments(batch: Batch) -> list[bytes]:
    """Four for each job: id, what it is, record, edges. Bytes travel alone: Lua's msgpack has no type for them."""
    if len(batch.jobs) > MAX_JOBS:
        raise StoreConflict(
            f"a batch of {len(batch.jobs):,} jobs is larger than the {MAX_JOBS:,} that one script inserts",
            hint="Send it in several batches.",
        )
    check_jobs(batch.jobs)
    words: list[bytes] = []
    for job in batch.jobs:
        words += (job.id, _packed(job), job.record, _edges(job.after))
    size = sum(map(len, words))
    if size > MAX_BYTES:
        raise StoreConflict(
            f"a batch of {size:,} bytes is larger than the {MAX_BYTES:,} that one script inserts",
            hint="Send it in several batches.",
        )
    return words


def _packed(job: NewJob) -> bytes:
    if max(job.delay, job.run_at or 0, job.expires_in or 0) >= EXACT // 2:
        raise StoreConflict(f"job {UUID(bytes=job.id)}: a time of it lies further ahead than Redis can count exactly")
    return _pack(
        (
            job.task,
            job.queue,
            base_lane(job.queue, job.kind),
            job.priority,
            job.delay,
            job.run_at,
            job.expires_in,
            job.crashes,
            job.early,
            job.buckets and [(bucket.name, bucket.size) for bucket in job.buckets],
        )
    )


def _edges(after: Sequence[Edge]) -> bytes:
    return b"".join(edge.parent + (b"i" if edge.policy == "ignore" else b"f") for edge in after)


def enqueued(batch: Batch, reply: Sequence[int]) -> list[Enqueued]:
    return [Enqueued(job.id, bool(made)) for job, made in zip(batch.jobs, reply, strict=True)]
