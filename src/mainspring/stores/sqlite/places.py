"""Which lane a job stands in, and the rows that lanes beside a base lane have.

A lane name is written from the inside out: base, buckets, suspect, parked. A row in ``lanes`` is
made at each entry into ready, so lanes without ready jobs can be pruned at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mainspring.lanes import base_of, limited_lane, parked_lane, suspect_lane
from mainspring.records import Bucket

if TYPE_CHECKING:
    from .tx import Tx

_decode = msgspec.json.Decoder(list[tuple[str, int]]).decode


def write_buckets(buckets: Sequence[Bucket]) -> str | None:
    """The buckets of a job as its row keeps them; None for a job without limits."""
    return msgspec.json.encode([(each.name, each.size) for each in buckets]).decode() if buckets else None


def read_buckets(text: str | None) -> list[tuple[str, int]]:
    return _decode(text) if text else []


def queue_of(lane: str) -> str:
    return lane.partition("/")[0]


def home(lane: str, buckets: str | None) -> str:
    """Where a job stands that is no suspect: its base lane, or the limited lane beside it."""
    base = base_of(lane)
    return limited_lane(base, [name for name, _ in read_buckets(buckets)]) if buckets else base


def suspected(lane: str, buckets: str | None) -> str:
    """Where a suspect stands."""
    return suspect_lane(home(lane, buckets))


def stands_apart(lane: str, buckets: str | None) -> bool:
    """Whether a job in this lane is a suspect."""
    return lane[len(home(lane, buckets)) :].startswith(suspect_lane(""))


def parked(lane: str, task: str, buckets: str | None) -> str:
    """Where a job stands that a worker without its task handed back."""
    return parked_lane(suspected(lane, buckets) if stands_apart(lane, buckets) else home(lane, buckets), task)


class Standing(NamedTuple):
    """What decides in which lane a job stands and who may take it."""

    lane: str
    task: str
    crashes: int
    buckets: str | None


def enter_ready(tx: Tx, queue: str, job: Standing) -> None:
    """A job becomes ready: its lane can be found by a claim, its queue's listeners are woken."""
    tx.woken.add(queue)
    base = base_of(job.lane)
    if job.lane == base:
        return
    known = job.task if job.lane.endswith("?" + job.task) else None
    tx.run("add_lane", (job.lane, base, stands_apart(job.lane, job.buckets), known, job.buckets))
    for name, size in read_buckets(job.buckets):
        tx.run("add_bucket", (name, size))
