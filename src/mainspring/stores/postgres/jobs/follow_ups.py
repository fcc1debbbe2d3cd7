"""Follow-up jobs: stored beside their job at the enqueue, inserted by the server in the step in which the job ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mainspring.jobs.lanes import base_lane
from mainspring.jobs.records import FollowUp, NewJob
from mainspring.states import State
from mainspring.stores.shared.constants import FOLLOWED_OTHER, FOLLOWED_SUCCESS
from mainspring.stores.shared.follow_ups import check_follow_ups


def followed_bits(job: NewJob) -> int:
    """For which ends a job has follow-up jobs, as the row of the job says it."""
    found = 0
    for follow in job.follows:
        found |= FOLLOWED_SUCCESS if follow.on is State.SUCCEEDED else FOLLOWED_OTHER
    return found


def follow_ups_json(jobs: Sequence[NewJob]) -> str | None:
    """The follow-up jobs of a batch as JSON; None when it has none. Bytes are hex, ``at`` is the job's position from
    1."""
    found = []
    for at, job in enumerate(jobs, start=1):
        if job.follows:
            check_follow_ups(job)
            found += [{"at": at, **fields} for fields in _rows(job)]
    return msgspec.json.encode(found).decode() if found else None


def _rows(job: NewJob) -> list[dict[str, Any]]:
    return [_fields(n, follow) for n, follow in enumerate(job.follows)]


def _fields(n: int, follow: FollowUp) -> dict[str, Any]:
    """The row of a follow-up job; its own follow-up jobs are inside of it, as rows of the same form."""
    job = follow.job
    return {
        "on": follow.on, "n": n, "id": job.id.hex(), "task": job.task, "queue": job.queue,
        "home": base_lane(job.queue, job.kind), "priority": job.priority, "delay": job.delay, "run_at": job.run_at,
        "expires_in": job.expires_in, "crashes": job.crashes, "early": job.early, "keep": job.keep,
        "marks": job.marks, "record": job.record.hex(), "followed": followed_bits(job), "follows": _rows(job) or None,
    }  # fmt: skip
