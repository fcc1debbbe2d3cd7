"""Follow-up jobs, as they are stored with their job. ``lua/_follow_ups.lua`` inserts them when the job ends."""

from __future__ import annotations

from mainspring.jobs.records import NewJob
from mainspring.stores.redis import rows
from mainspring.stores.redis.driver.constants import CODES
from mainspring.stores.shared.follow_ups import check_follow_ups


def pack_follow_ups(job: NewJob) -> bytes:
    """The follow-up jobs of a job. Raises ``StoreConflict`` for one that could not be inserted later."""
    check_follow_ups(job)
    return _pack(job)


def _pack(job: NewJob) -> bytes:
    """The state, the id and the parts of each follow-up job; the last part has its own follow-up jobs, in this form."""
    words = []
    for follow in job.follows:
        made = follow.job
        packed = rows.framed(rows.pack_job(made), rows.pack_times(made), rows.large_record(made), _pack(made))
        words.append(bytes([CODES[follow.on]]) + made.id + packed)
    return b"".join(words)
