"""Which lane a new job is in. The lines and indexes of lanes are in ``lua/_lanes.lua``.

:mod:`mainspring.jobs.lanes` explains the names of lanes.
"""

from __future__ import annotations

from functools import lru_cache

from mainspring.errors import StoreConflict
from mainspring.jobs.lanes import base_lane, home_lane
from mainspring.jobs.records import NewJob

LONGEST_NAME = 2**16 - 1
"""Bytes of a group (queue, NUL, task) and of a lane: their lengths are stored in two bytes."""


@lru_cache(maxsize=4096)
def group_and_base_lane(queue: str, kind: str, task: str) -> tuple[bytes, bytes]:
    """The group (queue, NUL, task) and the lane of a job without limits and fair key."""
    group, lane = f"{queue}\0{task}".encode(), base_lane(queue, kind).encode()
    if max(len(group), len(lane)) > LONGEST_NAME:
        raise StoreConflict(f"the names of a queue and a task have more than {LONGEST_NAME:,} bytes together")
    return group, lane


def group_and_lane(job: NewJob) -> tuple[bytes, bytes]:
    """The group and the lane of a new job."""
    group, lane = group_and_base_lane(job.queue, job.kind, job.task)
    if job.buckets or job.fair:
        return group, home_lane(job.queue, job.kind, job.buckets, job.fair).encode()
    return group, lane
