"""Which lane a job is in. Later moves between lanes happen in the server: see ``sql/lanes.sql``."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.jobs.lanes import bucket_label, home_lane
from mainspring.jobs.records import NewJob
from mainspring.limits.records import Bucket
from mainspring.stores.postgres.limits import costs_of, stored_name


def home(job: NewJob) -> str:
    """The lane of a new job."""
    return home_lane(job.queue, job.kind, job.buckets, job.fair)


def labelled_json(buckets: Sequence[Bucket]) -> str | None:
    """Buckets for a job that is stored already, each with its cost and its label in lane names; None for none."""
    if not buckets:
        return None
    labels = {stored_name(bucket): bucket_label(bucket) for bucket in buckets}
    return msgspec.json.encode([(name, cost, labels[name]) for name, cost in costs_of(buckets).items()]).decode()
