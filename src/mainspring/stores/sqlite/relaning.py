"""A job that a worker handed back names the limits and the part of its task from now on, and keeps its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mainspring.jobs.lanes import relaned
from mainspring.limits.records import Bucket
from mainspring.schedules.records import part_mark

from .parts import joins
from .places import Standing, enter_ready, group_of, home, limited_flags, parked, read_buckets, write_buckets

if TYPE_CHECKING:
    from mainspring.jobs.outcomes import Ack

    from .tx import Tx


def relane(tx: Tx, ack: Ack, queue: str, attempt: int, job: Standing, *, of_part: bool) -> None:
    """Ready again, in the lane of its buckets and those of the ack; or blocked, if its part has to wait for others."""
    if ack.buckets:
        job = _widened(job, ack.buckets)
    if ack.park:
        job = job._replace(lane=parked(job.lane, job.task, job.buckets))
    flags = limited_flags(read_buckets(job.buckets))
    ((seq,),) = tx.all("relane", (attempt, job.lane, job.buckets, ack.id, flags))
    if ack.part and not of_part and joins(tx, part_mark(ack.part), ack.id, seq):
        tx.run("enqueue_blocked", {"id": ack.id, "deps": 1, "due": None})
        return
    enter_ready(tx, queue, job, seq)
    if group_of(job.lane)[1]:  # it may wait for the moment of a job that is not its first any more
        tx.run("open_lane", (job.lane, -job.priority))


def unspent(buckets: str | None) -> list[tuple[str, int]]:
    """What an attempt that never began cost, by limit."""
    return [(each.limit, 0) for each in read_buckets(buckets)]


def _widened(job: Standing, more: Sequence[Bucket]) -> Standing:
    own = read_buckets(job.buckets)
    known = {each.limit for each in own}
    buckets = sorted((*own, *(each for each in more if each.limit not in known)), key=lambda each: each.name)
    there = home(job.lane, job.buckets)
    return job._replace(lane=relaned(there, buckets) + job.lane[len(there) :], buckets=write_buckets(buckets))
