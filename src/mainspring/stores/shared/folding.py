"""Several jobs of one batch under one unique key, in a mode in which the newest enqueue replaces the waiting job.

Enqueued one by one, the first job would be inserted or would replace another, and each of the others would replace it.
So one job remains: with the id and the position of the first, and everything else of the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from mainspring.errors import StoreConflict
from mainspring.jobs.records import Enqueued, NewJob


def folded(jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """The jobs that an engine inserts: one for each such key."""
    if not any(map(is_latest, jobs)):
        return jobs
    places: dict[bytes, int] = {}
    short: list[NewJob] = []
    for job in jobs:
        if job.unique is None or job.unique.mode == "once":
            short.append(job)
            continue
        _check(job)
        at = places.setdefault(job.unique.hash, len(short))
        if at == len(short):
            short.append(job)
        else:
            short[at] = msgspec.structs.replace(job, id=short[at].id)
    return short


def unfolded(jobs: Sequence[NewJob], said: list[Enqueued]) -> list[Enqueued]:
    """The replies for all jobs of the batch, from the replies for the folded jobs."""
    if len(said) == len(jobs):
        return said
    replies = iter(said)
    speakers: dict[bytes, bytes] = {}
    full = []
    for job in jobs:
        key = job.unique.hash if is_latest(job) and job.unique else None
        if key in speakers:
            full.append(Enqueued(speakers[key], False))
            continue
        full.append(next(replies))
        if key is not None:
            speakers[key] = full[-1].id
    return full


def is_latest(job: NewJob) -> bool:
    """Whether the job has a key under which the newest enqueue replaces the waiting job."""
    return job.unique is not None and job.unique.mode != "once"


def _check(job: NewJob) -> None:
    if job.after:
        assert job.unique is not None
        raise StoreConflict(
            f"job {UUID(bytes=job.id)} waits for other jobs, and its key has the mode {job.unique.mode!r}",
            hint="In this mode the key decides when the job runs. Remove the parents, or use a key without a mode.",
        )
