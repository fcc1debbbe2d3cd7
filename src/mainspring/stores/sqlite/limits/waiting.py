"""Lanes with keys that are parked on a bucket without capacity, and opening them when capacity is released.

The rule: if a bucket has capacity for n more starts, then in each lane set that names it at least n lanes are open, or
no lane is parked on it. So a function that releases capacity opens lanes, and a claim that removes an open lane without
using its capacity opens another (``claim/keyed.py``). Lanes are opened in each lane set, because it may be that no
worker asks for the lanes of another set. The first lanes by their order keys are opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mainspring.breakers.records import is_breaker
from mainspring.jobs.records import order_key
from mainspring.stores.sqlite.breakers import wake_freed_probes, wake_waiting_queues
from mainspring.stores.sqlite.lanes import costs_of, names_of, read_buckets
from mainspring.stores.sqlite.rows import limit_name

from .buckets import Capacities
from .capacity import CONCURRENCY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mainspring.stores.sqlite.driver.transaction import Tx

LANES_OPENED = 100
"""Lanes of one lane set that are opened for one bucket at a time."""
SLICE = 200
"""Lanes that one transaction opens after a limit changed, or because their moment has come."""
BELOW_ALL_RANKS = -(1 << 40)
_encode = msgspec.json.encode


class ParkedLane(NamedTuple):
    """A parked lane: the row of the statements ``parked_lanes*``."""

    lane_set: str
    rank: int
    seq: int
    lane: str
    queue: str
    buckets: str
    vtime: float | None
    step: float | None


# ---- jobs and holders leave their buckets ----------------------------------------------------------------


def release_jobs(tx: Tx, jobs: Sequence[tuple[bytes, str]]) -> None:
    """Jobs with these buckets run no more. :func:`settle_released` wakes or opens what waits for the capacity."""
    holds: list[tuple[str, bytes]] = []
    for job, buckets in jobs:
        names = names_of(buckets)
        tx.released.update(names)
        if "=" in names[-1]:
            holds += [(name, job) for name in names]
    if holds:
        tx.cursor.executemany(tx.sql["drop_job_hold"], holds)


def correct_costs_of_job(tx: Tx, buckets: str | None, spent: Sequence[tuple[str, int]], slow: int) -> None:
    """Correct the costs of an attempt of a job with these buckets; see :func:`correct_costs`."""
    if spent or slow > 0:
        correct_costs(tx, costs_of(read_buckets(buckets)), spent, slow)


def correct_costs(tx: Tx, costs: Mapping[str, int], spent: Sequence[tuple[str, int]], slow: int) -> None:
    """Replace the costs that were taken at the start by what was really spent, and block the buckets for ``slow``."""
    capacities = Capacities(tx)
    real = dict(spent)
    for name, cost in costs.items():
        capacity = capacities[name]
        if slow > 0:
            capacity.block(tx.now + slow)
        limit = limit_name(name)
        if limit in real and capacity.correct(cost, real[limit]):
            open_waiting(tx, capacities, name)


def settle_released(tx: Tx, capacities: Capacities) -> None:
    """Wake or open what waits for the buckets that were released."""
    wake_freed_probes(tx)
    for name in _buckets_with_waiting(tx):
        limit = capacities.limit_of(name)
        if limit is None or limit.kind == CONCURRENCY:  # the end of a job gives no start of a rate back
            open_waiting(tx, capacities, name)
    tx.released.clear()


def _buckets_with_waiting(tx: Tx) -> list[str]:
    """The released buckets, without breakers and without buckets with a key on which no lane is parked."""
    keyed = [name for name in tx.released if "=" in name]
    waited = {name for (name,) in tx.all("buckets_with_parked_lanes", (_encode(keyed).decode(),))} if keyed else ()
    return sorted(name for name in tx.released if name in waited or not ("=" in name or is_breaker(name)))


# ---- open lanes ------------------------------------------------------------------------------------------


def open_waiting(tx: Tx, capacities: Capacities, bucket: str) -> None:
    """The bucket may have capacity: open lanes that are parked on it, or wake the queues that wait for it."""
    if "=" in bucket:
        found = [ParkedLane(*row) for row in tx.all("parked_lanes", (bucket, LANES_OPENED))]
        n = min(capacities[bucket].available(), LANES_OPENED) if found else 0
        if n > 0:
            _open_in_each_set(tx, bucket, found, n)
    elif capacities[bucket].available() > 0:
        wake_waiting_queues(tx, bucket)


def recheck_bucket(tx: Tx, bucket: str) -> None:
    """Jobs that wait for the bucket have to find out anew when it has capacity: one lane of each set is enough."""
    if "=" in bucket:
        found = [ParkedLane(*row) for row in tx.all("parked_lanes", (bucket, LANES_OPENED))]
        _open_in_each_set(tx, bucket, found, 1)
    else:
        wake_waiting_queues(tx, bucket)


def _open_in_each_set(tx: Tx, bucket: str, found: list[ParkedLane], n: int) -> None:
    lane_sets = sorted({row.lane_set for row in found})
    if len(found) < LANES_OPENED:
        for lane_set in lane_sets:
            _open_rows(tx, _first([row for row in found if row.lane_set == lane_set], n))
        return
    lane_set = ""
    while following := tx.first("next_parked_set", (bucket, lane_set)):
        (lane_set,) = following
        _open_rows(tx, first_parked(tx, bucket, lane_set, n))


def first_parked(tx: Tx, bucket: str, lane_set: str, n: int) -> list[ParkedLane]:
    """The first ``n`` lanes of a lane set that are parked on the bucket."""
    found: list[ParkedLane] = []
    rank = BELOW_ALL_RANKS
    while following := tx.first("next_parked_rank", (bucket, lane_set, rank)):
        (rank,) = following
        found += [ParkedLane(*row) for row in tx.all("parked_lanes_at_rank", (bucket, lane_set, rank, n))]
    return _first(found, n)


def _first(rows: list[ParkedLane], n: int) -> list[ParkedLane]:
    return sorted(rows, key=lambda row: (order_key(row.seq, -row.rank), row.lane))[:n]


def _open_rows(tx: Tx, rows: Iterable[ParkedLane]) -> None:
    _open(tx, [(row.lane, row.rank, row.queue) for row in rows])


def _open(tx: Tx, lanes: Sequence[tuple[str, int, str]]) -> None:
    tx.cursor.executemany(tx.sql["open_lane"], [(lane, rank) for lane, rank, _ in lanes])
    tx.woken.update(queue for _, _, queue in lanes)


def open_due_lanes(tx: Tx, lane_set: str) -> None:
    """Open the lanes of a set whose moment to check again has come."""
    due = tx.all("lanes_to_recheck", (lane_set, tx.now, SLICE))
    if due:
        _open(tx, due)


# ---- changed limits --------------------------------------------------------------------------------------


def recheck_limit(tx: Tx, limit: str) -> bool:
    """Wake or open what waits for the buckets of a limit, at most 200 lanes. True if more lanes have to be opened."""
    wake_waiting_queues(tx, limit)
    lanes = tx.all("parked_lanes_of_limit", (limit + "=", limit + ">", SLICE))
    _open(tx, lanes)
    more = len(lanes) == SLICE
    tx.run("add_recheck" if more else "drop_recheck", (limit,))
    return more


def recheck_limits(tx: Tx) -> bool:
    """Go on with the limits that :func:`recheck_limit` has not finished. True if more lanes have to be opened."""
    return any([recheck_limit(tx, limit) for (limit,) in tx.all("limits_to_recheck")])  # noqa: C419  # each of them
