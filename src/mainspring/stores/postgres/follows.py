"""Follow-up jobs: written beside their job when that is enqueued, inserted in the step in which it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from mainspring.common.text import storable
from mainspring.errors import StoreConflict
from mainspring.jobs.lanes import base_lane
from mainspring.jobs.records import FollowUp, NewJob
from mainspring.schedules.records import part_of
from mainspring.states import FINAL, State
from mainspring.stores.postgres.arrays import INT_MAX

SUCCESS, OTHER = 1, 2
_INTEGER = 2**31


def ends(job: NewJob) -> int:
    """What the row of a job says of the ends that it has follow-up jobs for."""
    found = 0
    for follow in job.follows:
        found |= SUCCESS if follow.on is State.SUCCEEDED else OTHER
    return found


def written(jobs: Sequence[NewJob]) -> str | None:
    """The follow-up jobs of a batch as JSON; None when it has none. Bytes are hex, ``at`` is the job's place from 1."""
    made = [
        _written(at, n, follow)
        for at, job in enumerate(jobs, start=1)
        for n, follow in enumerate(job.follows)
        if _checked(job, follow)
    ]
    return msgspec.json.encode(made).decode() if made else None


def _written(at: int, n: int, follow: FollowUp) -> dict[str, Any]:
    job = follow.job
    return {
        "at": at, "on": follow.on, "n": n, "id": job.id.hex(), "task": job.task, "queue": job.queue,
        "home": base_lane(job.queue, job.kind), "priority": job.priority, "delay": job.delay, "run_at": job.run_at,
        "expires_in": job.expires_in, "crashes": job.crashes, "early": job.early, "keep": job.keep,
        "marks": job.marks, "record": job.record.hex(),
    }  # fmt: skip


def _checked(job: NewJob, follow: FollowUp) -> bool:
    """Refuse now what could not be inserted later: then it would keep its job from ending."""
    made = follow.job
    wrong = ""
    if follow.on not in FINAL:
        wrong = f"waits for {follow.on}, which is no end"
    elif len(made.id) != 16 or made.id[14:] != b"\0\0":
        wrong = "has an id without room for an epoch"
    elif made.unique or made.after or made.buckets or made.fair or made.follows:
        wrong = "has a unique key, parents, limits or follow-up jobs of its own"
    elif part_of(made.marks) is not None:
        wrong = "is of a part"
    elif max(abs(made.priority), abs(made.crashes)) >= _INTEGER or any(
        abs(number) > INT_MAX for number in (made.delay, made.run_at or 0, made.expires_in or 0)
    ):
        wrong = "has a number that is too large"
    elif not all(map(storable, (made.task, made.queue, made.kind, *made.marks))):
        wrong = "has a character that cannot be stored"
    if wrong:
        raise StoreConflict(f"job {UUID(bytes=job.id)}: its follow-up job of task {made.task!r} {wrong}")
    return True
