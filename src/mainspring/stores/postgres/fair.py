"""Fair keys. The server serves them by virtual time: see ``sql/fair.sql``."""

from __future__ import annotations

from mainspring.jobs.records import NewJob
from mainspring.stores.postgres.limits import costs_of


def stored_buckets(job: NewJob) -> dict[str, int] | None:
    """The buckets that the row of a new job names, with the costs; None if its lane has no row of its own.

    A job with a fair key and without limits names no bucket: an empty dict, not None, gives its lane a row.
    """
    return costs_of(job.buckets) if job.buckets or job.fair else None
