"""Which lane a job is in, and the rows by which a claim finds the lanes beside a base lane.

A lane name is written from the inside out: base, buckets, suspect, parked (see :mod:`mainspring.jobs.lanes`). Rows are
made when a job becomes ready, so rows without ready jobs can be pruned at any time. ``lane_sets`` has a row for each
lane without keys and for each set of lanes with keys, ``lanes`` has a row for each lane with keys and priority.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mainspring.jobs.lanes import base_of, is_fair, limited_lane, parked_lane, suspect_lane, weight_of
from mainspring.limits.records import Bucket
from mainspring.states import State

from .driver.constants import FLAG_LIMITED, FLAG_UNKEYED_ONLY

if TYPE_CHECKING:
    from .driver.transaction import Row, Tx

READY = State.READY.value
_LIMITED = re.compile(r"(#[^=!?]*)(=[^!?]*)?")
_CACHED = 1024
_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(list[tuple[str, str, int]]).decode


# ---- the buckets of a job ------------------------------------------------------------------------------


def write_buckets(buckets: Sequence[Bucket]) -> str | None:
    """The buckets of a job as the text in its row; None for a job without limits."""
    return _encode([(each.limit, each.key, each.cost) for each in buckets]).decode() if buckets else None


def read_buckets(text: str | None) -> list[Bucket]:
    return [Bucket(*each) for each in _decode(text)] if text else []


def flags_of_limits(buckets: Sequence[Bucket]) -> int:
    """The flags of a job with these buckets."""
    if not buckets:
        return 0
    return FLAG_LIMITED if any(each.key for each in buckets) else FLAG_LIMITED | FLAG_UNKEYED_ONLY


@lru_cache(maxsize=_CACHED)
def names_of(text: str) -> tuple[str, ...]:
    """The names of the buckets in a job's row, the names with keys last."""
    return tuple(sorted({each.name for each in read_buckets(text)}, key=lambda name: "=" in name))


def costs_of(buckets: Iterable[Bucket]) -> dict[str, int]:
    """The cost of a start by bucket name. A bucket that is named twice counts once, with the highest cost."""
    costs: dict[str, int] = {}
    for each in buckets:
        costs[each.name] = max(costs.get(each.name, 0), each.cost)
    return costs


@lru_cache(maxsize=_CACHED)
def costs_in(text: str) -> Mapping[str, int]:
    """The cost of a start by bucket name, from the text in a job's row."""
    return MappingProxyType(costs_of(read_buckets(text)))


# ---- names of lanes --------------------------------------------------------------------------------------


def queue_of(lane: str) -> str:
    return lane.partition("/")[0]


def lane_set_of(lane: str) -> tuple[str, bool]:
    """The lane set of a lane, and whether its lanes have keys. A lane without keys is a lane set by itself."""
    base = base_of(lane)
    found = _LIMITED.match(lane, len(base))
    if found is None or not found[2]:
        return lane, False
    return f"{base}{found[1]}={lane[found.end() :]}", True


def home_of(lane: str, buckets: str | None) -> str:
    """The lane of a job that is neither a suspect nor parked: its base lane, or the limited lane beside it."""
    base = base_of(lane)
    if is_fair(lane):
        return re.split(r"[!?]", lane, maxsplit=1)[0]
    return limited_lane(base, read_buckets(buckets)) if buckets else base


def suspect_lane_of(lane: str, buckets: str | None) -> str:
    """The lane of the same job as a suspect."""
    return suspect_lane(home_of(lane, buckets))


def is_suspect_lane(lane: str, buckets: str | None) -> bool:
    """Whether a job in this lane is a suspect."""
    return lane[len(home_of(lane, buckets)) :].startswith(suspect_lane(""))


def parked_lane_of(lane: str, task: str, buckets: str | None) -> str:
    """The lane of a job that a worker without its task handed back."""
    home = suspect_lane_of(lane, buckets) if is_suspect_lane(lane, buckets) else home_of(lane, buckets)
    return parked_lane(home, task)


# ---- entering a lane -------------------------------------------------------------------------------------


class Placement(NamedTuple):
    """The facts of a job that decide its lane and which workers may claim it."""

    lane: str
    task: str
    priority: int
    crashes: int
    buckets: str | None


def enter_ready(tx: Tx, queue: str, job: Placement, seq: int) -> None:
    """Make a job that has become ready visible to claims, and wake the listeners of its queue."""
    tx.woken.add(queue)
    add_lane(tx, job, seq)


def add_lane(tx: Tx, job: Placement, seq: int) -> None:
    """Make the rows by which a claim finds the lane of the job, and this seq in it."""
    base = base_of(job.lane)
    if job.lane == base:
        return
    lane_set, keyed = lane_set_of(job.lane)
    known = job.task if job.lane.endswith("?" + job.task) else None
    buckets = read_buckets(job.buckets)
    unkeyed = sorted({each.limit for each in buckets if not each.key})
    suspect = is_suspect_lane(job.lane, job.buckets)
    tx.run("add_lane_set", (lane_set, base, suspect, known, _encode(unkeyed).decode() if unkeyed else None, keyed))
    if keyed:
        names = _encode(sorted({each.name for each in buckets if each.key})).decode()
        if is_fair(lane_set):
            step = 1 / weight_of(job.lane)
            tx.run("add_fair_lane", (job.lane, -job.priority, lane_set, seq, names, queue_of(base), step))
        else:
            tx.run("add_keyed_lane", (job.lane, -job.priority, lane_set, seq, names, queue_of(base)))


def add_lanes(tx: Tx, rows: Iterable[Row]) -> None:
    """Make the rows for the lanes of new jobs, given as the parameters of the insert in the order of their seqs.

    The first job of each lane and priority is enough: it comes before the others.
    """
    first: dict[tuple[str, int], Row] = {}
    for row in rows:
        if "#" in row[3] and row[1] is READY:
            first.setdefault((row[3], row[5]), row)
    for row in first.values():
        add_lane(tx, placement_of(row), row[6])


def placement_of(row: Row) -> Placement:
    """The placement of a new job, from the parameters of its insert (:func:`.rows.row_of`)."""
    return Placement(row[3], row[4], row[5], 0, row[13])
