"""Which lane a job stands in, and the rows by which a claim finds the lanes beside a base lane.

A lane name is written from the inside out: base, buckets, suspect, parked. Rows are made at each entry into
ready, so those without ready jobs can be pruned at any time: in ``groups`` for each lane without keys and for each
group of lanes with keys, in ``lanes`` for each lane with keys and priority.
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

from .tx import GATED, LIMITED

if TYPE_CHECKING:
    from .tx import Tx

_LIMITED = re.compile(r"(#[^=!?]*)(=[^!?]*)?")
_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(list[tuple[str, str, int]]).decode


def write_buckets(buckets: Sequence[Bucket]) -> str | None:
    """The buckets of a job as its row keeps them; None for a job without limits."""
    return _encode([(each.limit, each.key, each.cost) for each in buckets]).decode() if buckets else None


def read_buckets(text: str | None) -> list[Bucket]:
    return [Bucket(*each) for each in _decode(text)] if text else []


def limited_flags(buckets: Sequence[Bucket]) -> int:
    """What the row of a job says of its buckets."""
    if not buckets:
        return 0
    return LIMITED if any(each.key for each in buckets) else LIMITED | GATED


@lru_cache(maxsize=1024)
def names_of(text: str) -> tuple[str, ...]:
    """The names of the buckets that a job's row keeps, those with keys last."""
    return tuple(sorted({each.name for each in read_buckets(text)}, key=lambda name: "=" in name))


def costs_of(buckets: Iterable[Bucket]) -> dict[str, int]:
    """What a start uses up, by bucket."""
    costs: dict[str, int] = {}
    for each in buckets:
        costs[each.name] = costs.get(each.name, 0) + max(each.cost, 0)
    return costs


@lru_cache(maxsize=1024)
def costs_in(text: str) -> Mapping[str, int]:
    """The same, as a job's row keeps it."""
    return MappingProxyType(costs_of(read_buckets(text)))


def queue_of(lane: str) -> str:
    return lane.partition("/")[0]


def group_of(lane: str) -> tuple[str, bool]:
    """The group of a lane, and whether it is one of lanes with keys; a lane without keys is its own."""
    base = base_of(lane)
    found = _LIMITED.match(lane, len(base))
    if found is None or not found[2]:
        return lane, False
    return f"{base}{found[1]}={lane[found.end() :]}", True


def home(lane: str, buckets: str | None) -> str:
    """Where a job stands that is no suspect: its base lane, or the limited lane beside it."""
    base = base_of(lane)
    if is_fair(lane):
        return re.split(r"[!?]", lane, maxsplit=1)[0]
    return limited_lane(base, read_buckets(buckets)) if buckets else base


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
    priority: int
    crashes: int
    buckets: str | None


def enter_ready(tx: Tx, queue: str, job: Standing, seq: int) -> None:
    """A job becomes ready: its lane can be found by a claim, its queue's listeners are woken."""
    tx.woken.add(queue)
    line_up(tx, job, seq)


def line_up(tx: Tx, job: Standing, seq: int) -> None:
    """A claim finds the lane, and this place in it."""
    base = base_of(job.lane)
    if job.lane == base:
        return
    group, keyed = group_of(job.lane)
    known = job.task if job.lane.endswith("?" + job.task) else None
    buckets = read_buckets(job.buckets)
    gates = sorted({each.limit for each in buckets if not each.key})
    apart = stands_apart(job.lane, job.buckets)
    tx.run("add_group", (group, base, apart, known, _encode(gates).decode() if gates else None, keyed))
    if keyed:
        names = _encode(sorted({each.name for each in buckets if each.key})).decode()
        if is_fair(group):
            step = 1 / weight_of(job.lane)
            tx.run("line_up_fair", (job.lane, -job.priority, group, seq, names, queue_of(job.lane), step))
        else:
            tx.run("line_up", (job.lane, -job.priority, group, seq, names))
