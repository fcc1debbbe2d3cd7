"""Hand out work: suspects first, then base lanes and the lanes beside them as one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mainspring.records import Claim, Want

from .modes import paused
from .places import queue_of, read_buckets
from .statements import sizes

if TYPE_CHECKING:
    from mainspring.stores.base import Turn

    from .tx import Row, Tx

_names = msgspec.json.Decoder(frozenset[str]).decode
_ABOVE_ALL = 1 << 40


class Lane(NamedTuple):
    name: str
    buckets: tuple[str, ...] = ()


class Picked(NamedTuple):
    id: bytes
    buckets: tuple[str, ...]


def hand_out(tx: Tx, turn: Turn, tasks: str) -> list[Claim]:
    """The claims of a turn, in the order of its wants."""
    claims: list[Claim] = []
    suspects = turn.suspects
    for want in _open(tx, turn.wants):
        if want.n <= 0 or not want.lanes:
            continue
        usual, suspected = _lanes(tx, want, tasks)
        rooms: dict[str, int] = {}
        left = want.n
        if suspected and suspects > 0:
            picked = _pick(tx, suspected, min(left, suspects), 0, rooms)
            suspects -= len(picked)
            left -= len(picked)
            claims += _claim_ids(tx, turn, picked)
        if left > 0:
            claims += _from_lanes(tx, turn, usual, left, oldest=want.oldest, rooms=rooms)
    return claims


def _open(tx: Tx, wants: Sequence[Want]) -> Sequence[Want]:
    """What is wanted of queues that are not paused."""
    held = paused(tx) if wants else None
    if not held:
        return wants
    return [Want(tuple(lane for lane in w.lanes if queue_of(lane) not in held), w.n, w.oldest) for w in wants]


def _lanes(tx: Tx, want: Want, tasks: str) -> tuple[list[Lane], list[Lane]]:
    """The lanes of a want that have jobs: the usual ones, and the suspects'."""
    usual, suspected = [Lane(lane) for lane in want.lanes], list[Lane]()
    beside = tx.sized("lanes_beside", len(want.lanes), want.lanes).fetchall()
    known = _names(tasks) if beside else frozenset()
    for name, suspect, task, buckets in beside:
        if (task is None or task in known) and tx.all("heads", (name, tx.now, 1)):
            lane = Lane(name, tuple(bucket for bucket, _ in read_buckets(buckets)))
            (suspected if suspect else usual).append(lane)
    return usual, suspected


def _from_lanes(tx: Tx, turn: Turn, lanes: list[Lane], n: int, *, oldest: int, rooms: dict[str, int]) -> list[Claim]:
    if len(lanes) > 1:
        lanes = [lane for lane in lanes if tx.all("heads", (lane.name, tx.now, 1))]
    if len(lanes) == 1 and not oldest and not lanes[0].buckets:
        rows = tx.all("claim", (lanes[0].name, tx.now, n, turn.worker, turn.number))
        rows.sort(key=_order)
        return [claim_of(row) for row in rows]
    return _claim_ids(tx, turn, _pick(tx, lanes, n, oldest, rooms)) if lanes else []


def _order(row: Row) -> tuple[int, int]:
    return -row[5], row[14]


def _pick(tx: Tx, lanes: list[Lane], n: int, oldest: int, rooms: dict[str, int]) -> list[Picked]:
    """Up to ``n`` heads: the first ``oldest`` by seq alone, the others by priority and seq, as rooms allow."""
    lanes = [lane for lane in lanes if _room(tx, lane, rooms) > 0]
    picked: dict[bytes, Picked] = {}
    if oldest > 0:
        aged = sorted((seq, job, lane) for lane in lanes for _, seq, job in _oldest(tx, lane, min(oldest, n)))
        _fill(picked, ((job, lane) for _, job, lane in aged), min(oldest, n), rooms)
    if len(picked) < n:
        heads = [(-p, seq, job, lane) for lane in lanes for p, seq, job in tx.all("heads", (lane.name, tx.now, n))]
        _fill(picked, ((job, lane) for _, _, job, lane in sorted(heads)), n, rooms)
    return list(picked.values())


def _oldest(tx: Tx, lane: Lane, n: int) -> list[Row]:
    """The first of each priority in use: one probe a level, so no index by seq alone is needed."""
    found: list[Row] = []
    level = _ABOVE_ALL
    while lower := tx.first("level", (lane.name, level)):
        (level,) = lower
        found += tx.all("level_heads", (lane.name, tx.now, n, level))
    return found


def _fill(picked: dict[bytes, Picked], heads: Iterable[tuple[bytes, Lane]], n: int, rooms: dict[str, int]) -> None:
    for job, lane in heads:
        if len(picked) >= n:
            return
        if job in picked or any(rooms[bucket] <= 0 for bucket in lane.buckets):
            continue
        for bucket in lane.buckets:
            rooms[bucket] -= 1
        picked[job] = Picked(job, lane.buckets)


def _room(tx: Tx, lane: Lane, rooms: dict[str, int]) -> int:
    """How many jobs of this lane may start, counted from running rows; 1 stands for any number without limits."""
    for bucket in lane.buckets:
        if bucket not in rooms:
            size = tx.first("bucket_size", (bucket,))
            rooms[bucket] = (size[0] if size else 0) - tx.all("used", (bucket,))[0][0]
    return min((rooms[bucket] for bucket in lane.buckets), default=1)


def _claim_ids(tx: Tx, turn: Turn, picked: list[Picked]) -> list[Claim]:
    rows: dict[bytes, Row] = {}
    for start, end in sizes(len(picked)):
        values = [tx.now, turn.worker, turn.number, *(each.id for each in picked[start:end])]
        rows.update((row[0], row) for row in tx.sized("claim_ids", end - start, values).fetchall())
    for each in picked:
        for bucket in each.buckets:
            tx.run("hold", (bucket, each.id, rows[each.id][1]))
    return [claim_of(rows[each.id]) for each in picked]


def claim_of(row: Row) -> Claim:
    return Claim(
        row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7], row[8], row[9] == 1, row[10], row[11],
        row[12], row[13],
    )  # fmt: skip
