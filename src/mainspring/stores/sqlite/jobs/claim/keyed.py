"""The lanes with keys of one lane set, each by its first job. Lanes without capacity are parked as they are met."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.stores.shared.constants import SECOND
from mainspring.stores.sqlite.limits.capacity import UNLIMITED
from mainspring.stores.sqlite.limits.waiting import BELOW_ALL_RANKS, ParkedLane, first_parked

from .picker import LaneHead, PickedJob, Picker, SortKey, UnkeyedLimits, head_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainspring.stores.sqlite.driver.transaction import Tx
    from mainspring.stores.sqlite.limits.buckets import Capacities

EXPIRED_LANE = "=late"
"""A lane all of whose jobs have expired is parked on this name, which no bucket has."""
EXPIRED_RECHECK = SECOND
BELOW_ALL_SEQS = -(1 << 62)
"""The seqs of lifo queues are negative."""
LANES_READ = 50
"""The most lanes that a claim reads at a time, beside two that show whether there are more."""
_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode


class KeyedLane:
    """A lane at one priority: its place among the lanes of its set, and its first jobs."""

    __slots__ = ("buckets", "change", "gone", "heads", "lane", "rank", "seq", "vtime")

    def __init__(self, lane: str, rank: int, seq: int, buckets: str, vtime: float | None) -> None:
        self.lane = lane
        self.rank = rank
        self.seq = seq
        self.buckets = _decode_names(buckets)
        self.heads: list[LaneHead] | None = None
        self.change: tuple[str, int | None] | None = None
        """The bucket to park on and when to check again, if the row has to be written; "" for an open lane."""
        self.gone = False
        self.vtime = vtime
        """Of a fair key, the virtual time of the next claim."""


class KeyedLaneSet:
    """See :class:`.picker.JobSource`."""

    limited = True
    _FIRST: tuple[Any, ...] = (BELOW_ALL_RANKS, BELOW_ALL_SEQS, "")

    def __init__(
        self, tx: Tx, capacities: Capacities, name: str, unkeyed: tuple[str, ...], n: int, picker: Picker
    ) -> None:
        self._tx = tx
        self._capacities = capacities
        self._name = name
        self._limits = UnkeyedLimits(tx, capacities, name, unkeyed)
        self._n = n
        self._page = min(n, LANES_READ) + 2
        self._patience = picker.patience
        self._lanes: dict[tuple[str, int], KeyedLane] = {}
        self._heap: list[tuple[SortKey, str, int]] = []
        self._parked: dict[str, KeyedLane] = {}
        """Of each lane that was parked here, the row with the highest priority."""
        self._aged = False
        self._last: tuple[Any, ...] | None = self._FIRST
        """The last row that was read; None if all rows were read."""
        self._last_by_rank: dict[int, tuple[int, str]] = {}
        self._held_back: Mapping[str, int] | None = None
        """The costs of the job that found no capacity in an unkeyed limit."""
        self.looked = 0

    # ---- the order of the lanes -----------------------------------------------------------------------

    def begin(self, n: int, *, aged: bool) -> None:  # noqa: ARG002  # lanes are read on demand
        self._aged = aged
        self._heap = []
        for lane in self._lanes.values():
            if not lane.gone and not (lane.change and lane.change[0]):
                self._push(lane)
        self._last_by_rank = dict.fromkeys(self._ranks(), (BELOW_ALL_SEQS, "")) if aged else {}

    def key(self) -> SortKey | None:
        if self._held_back is not None:
            return None
        if self._aged:
            while behind := [rank for rank, last in self._last_by_rank.items() if self._is_before_first(last[:1])]:
                for rank in behind:
                    self._read_rank(rank, *self._last_by_rank.pop(rank))
        else:
            while self._last is not None and self._is_before_first(self._last[:-1]):
                self._read_page(self._last)
        return self._heap[0][0] if self._heap else None

    def _is_before_first(self, last: SortKey) -> bool:
        """Whether a lane that was not read yet may come before the first lane of the heap."""
        return not self._heap or last < self._heap[0][0]

    def _push(self, lane: KeyedLane) -> None:
        heappush(self._heap, (self._sort_key(lane), lane.lane, lane.rank))

    def _sort_key(self, lane: KeyedLane) -> SortKey:
        return (lane.seq,) if self._aged else (lane.rank, lane.seq)

    def _read_page(self, last: tuple[Any, ...]) -> None:
        """Read the next lanes by priority and seq. Lanes that are known are in the heap already."""
        rows = self._tx.all("open_lanes", (self._name, *last, self._page))
        for row in rows:
            self._add(*row)
        self._last = (rows[-1][1], rows[-1][2], rows[-1][0]) if len(rows) == self._page else None

    def _read_rank(self, rank: int, seq: int, lane: str) -> None:
        """Read the next lanes of one priority."""
        rows = self._tx.all("open_lanes_at_rank", (self._name, rank, seq, lane, self._page))
        for row in rows:
            self._add(*row)
        if len(rows) == self._page:
            self._last_by_rank[rank] = rows[-1][2], rows[-1][0]

    def _ranks(self) -> list[int]:
        """The ranks in use: one search for each, so no index by seq alone is needed."""
        ranks: list[int] = []
        while following := self._tx.first("next_open_rank", (self._name, ranks[-1] if ranks else BELOW_ALL_RANKS)):
            ranks += following
        return ranks

    def _add(self, name: str, rank: int, seq: int, buckets: str, vtime: float | None) -> None:
        if (name, rank) not in self._lanes:
            lane = self._lanes[name, rank] = KeyedLane(name, rank, seq, buckets, vtime)
            self._push(lane)

    # ---- the first lane -------------------------------------------------------------------------------

    def pop(self) -> PickedJob | None:
        _, name, rank = heappop(self._heap)
        lane = self._lanes[name, rank]
        self.looked += 1
        capacities = self._capacities
        if self._limits.available() <= 0 and not self._limits.count_costs:
            self._held_back = {}
            return None
        used_up = [name for name in lane.buckets if capacities[name].available() <= 0]
        if used_up and not any(capacities[name].counts_cost for name in used_up):
            self._park(lane, used_up[0], capacities[used_up[0]].first_expiry)
            return None
        head = self._head(lane)
        if head is None:
            return None
        if capacities.full(self._limits.names, head.costs):
            self._held_back = head.costs
            return None
        full = capacities.full(lane.buckets, head.costs)
        if full:
            self._park(lane, *capacities.wait_for(full, head.costs))
            return None
        if self._waits_for_rate_above(lane):
            return None
        return self._take(lane, head)

    def _head(self, lane: KeyedLane) -> LaneHead | None:
        """The first job of the lane; None if there is none, or if the lane had to move back because of its seq."""
        if lane.heads is None:
            lane.heads = self._read_heads(lane)
        if not lane.heads:
            self._drop(lane)
            return None
        head = lane.heads[-1]
        if head.seq != lane.seq:
            lane.seq = head.seq
            lane.change = ("", None)
            self._push(lane)
            self._open_another(lane)
            return None
        return head

    def _read_heads(self, lane: KeyedLane) -> list[LaneHead]:
        """The first jobs of the lane, the last of them first: one job more than fits."""
        n = min(self._n, *(self._capacities[name].available() for name in lane.buckets)) + 1
        values = (lane.lane, self._tx.now, n, -lane.rank)
        rows = self._tx.all("priority_heads" + self._suffix(lane), values)
        return [head_of(row) for row in reversed(rows)]

    def _suffix(self, lane: KeyedLane) -> str:
        """The end of the name of a ``*heads`` statement: with costs, if the cost of a start matters in this lane."""
        has_costs = self._limits.count_costs or any(self._capacities[name].counts_cost for name in lane.buckets)
        return "_with_costs" if has_costs else ""

    def _take(self, lane: KeyedLane, head: LaneHead) -> PickedJob:
        self.looked -= 1
        names = (*self._limits.names, *lane.buckets)
        self._capacities.take(names, head.costs)
        assert lane.heads is not None
        lane.heads.pop()
        if lane.heads:
            lane.seq = lane.heads[-1].seq
            lane.change = ("", None)
            self._push(lane)
        else:
            lane.gone = True
        return PickedJob(head.id, names if lane.buckets else (), bool(names))

    def is_plentiful(self) -> bool:
        """Keyed limits are never claimed ahead of a free slot."""
        return False

    def _waits_for_rate_above(self, lane: KeyedLane) -> bool:
        """Whether a job of this lane with a higher priority waits for a rate.

        The job here may cost less and fit, but within a lane no job passes another.
        """
        if not any(self._capacities[name].counts_cost for name in lane.buckets):
            return False
        above = self._parked.get(lane.lane)
        if above is not None and above.rank < lane.rank:
            waits = above.change
        else:
            waits = self._tx.first("parked_above", (lane.lane, lane.rank, EXPIRED_LANE))
        if waits is None or waits[1] is None:
            return False
        self._park(lane, *waits)
        return True

    # ---- parking --------------------------------------------------------------------------------------

    def _park(self, lane: KeyedLane, bucket: str, until: int | None) -> None:
        lane.change = (bucket, until)
        above = self._parked.setdefault(lane.lane, lane)
        if lane.rank < above.rank:
            self._parked[lane.lane] = lane
        self._open_another(lane, bucket)

    def _drop(self, lane: KeyedLane) -> None:
        """The lane has no ready job."""
        lane.gone = True
        self._open_another(lane)

    def _open_another(self, lane: KeyedLane, parked_on: str = "") -> None:
        """This lane does not use its capacity: open the next lane that waits for it. Rates open lanes by time."""
        for name in lane.buckets:
            capacity = self._capacities[name]
            if name != parked_on and not capacity.counts_cost and 0 < capacity.available() < UNLIMITED:
                for row in first_parked(self._tx, name, self._name, 1):
                    self._open(row)

    def _open(self, row: ParkedLane) -> None:
        """Written at once, so that it is not found again."""
        self._tx.run("open_lane", (row.lane, row.rank))
        self._add(row.lane, row.rank, row.seq, row.buckets, row.vtime)

    def end(self) -> int | None:
        for lane in self._lanes.values():
            if lane.gone:
                dropped = self._tx.run("drop_empty_lane", (lane.lane, lane.rank))
                lane.change = None if dropped else self._expired_change()
            if lane.change is not None:
                self._write(lane, *lane.change)
        moment = None if self._held_back is None else self._limits.wait(self._held_back)
        (recheck_at,) = self._tx.all("next_recheck", (self._name,))[0]
        return min((at for at in (moment, recheck_at) if at is not None), default=None)

    def _write(self, lane: KeyedLane, parked_on: str, until: int | None) -> None:
        self._tx.run("set_lane", (lane.seq, parked_on, until, lane.lane, lane.rank))

    def _expired_change(self) -> tuple[str, int | None]:
        """A lane that has expired jobs only stays open, because a process with an earlier clock may claim them; unless
        there are so many such lanes that they hide the others: then it is parked for a second."""
        if self.looked >= self._patience:
            return EXPIRED_LANE, self._tx.now + EXPIRED_RECHECK
        return "", None
