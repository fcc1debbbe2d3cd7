"""The lanes with keys of one lane set, each by its first job. Lanes without capacity are parked as they are met."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.jobs.records import order_key
from mainspring.stores.shared.constants import SECOND
from mainspring.stores.sqlite.limits.capacity import UNLIMITED
from mainspring.stores.sqlite.limits.waiting import BELOW_ALL_RANKS, ParkedLane, first_parked

from .picker import BELOW_ALL_SEQS, LaneHead, PickedJob, Picker, UnkeyedLimits, head_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainspring.stores.sqlite.driver.transaction import Row, Tx
    from mainspring.stores.sqlite.limits.buckets import Capacities

EXPIRED_LANE = "=late"
"""A lane all of whose jobs have expired is parked on this name, which no bucket has."""
EXPIRED_RECHECK = SECOND
LANES_READ = 50
"""The most lanes that a claim reads at a time, beside two that show whether there are more."""
_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode


SortKey = tuple[float, ...]


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

    @property
    def key(self) -> int:
        """The order key of its first job."""
        return order_key(self.seq, -self.rank)


class RankedLanes:
    """The open lanes of a lane set at one priority, in their order, as far as they were read."""

    __slots__ = ("heap", "last")

    def __init__(self, last: tuple[Any, ...] | None) -> None:
        self.heap: list[tuple[SortKey, str]] = []
        self.last = last
        """The last row that was read; None if all rows were read."""

    def has_unread_first(self) -> bool:
        """Whether a lane that was not read yet may come before the first lane of the heap."""
        return self.last is not None and (not self.heap or self.last[:-1] < self.heap[0][0])


class KeyedLaneSet:
    """See :class:`.picker.JobSource`."""

    _FIRST: tuple[Any, ...] = (BELOW_ALL_SEQS, "")

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
        self._ahead = picker.ahead
        self.passed = False
        self._lanes: dict[tuple[str, int], KeyedLane] = {}
        self._by_rank: dict[int, RankedLanes] = {}
        self._first_rank = 0
        """The rank of the lane whose order key :meth:`key` returned."""
        self._parked: dict[str, KeyedLane] = {}
        """Of each lane that was parked here, the row that comes first."""
        self._held_back: Mapping[str, int] | None = None
        """The costs of the job that found no capacity in an unkeyed limit."""
        self.looked = 0

    # ---- the order of the lanes -----------------------------------------------------------------------

    def begin(self, n: int) -> None:  # noqa: ARG002  # lanes are read on demand
        self._by_rank = {rank: RankedLanes(self._FIRST) for rank in self._ranks()}

    def key(self) -> int | None:
        if self.is_closed() or self.looked >= self._patience:
            return None
        best: int | None = None
        for rank in self._by_rank:
            lane = self.first_at(rank)
            if lane is not None and (best is None or lane.key < best):
                best, self._first_rank = lane.key, rank
        return best

    def first_at(self, rank: int) -> KeyedLane | None:
        """The first lane of one priority."""
        lanes = self._by_rank.get(rank)
        if lanes is None:
            return None
        while lanes.has_unread_first():
            self._read_page(rank, lanes)
        return self._lanes[lanes.heap[0][1], rank] if lanes.heap else None

    def _push(self, lane: KeyedLane) -> None:
        heappush(self._by_rank[lane.rank].heap, (self.sort_key(lane), lane.lane))

    def sort_key(self, lane: KeyedLane) -> SortKey:
        """The place of a lane among the lanes of its priority."""
        return (lane.seq,)

    def _read_page(self, rank: int, lanes: RankedLanes) -> None:
        """Read the next lanes of one priority. Lanes that are known are in the heap already."""
        assert lanes.last is not None
        rows = self._tx.all("open_lanes", (self._name, rank, *lanes.last, self._page))
        for row in rows:
            self._add(*row)
        lanes.last = self._marker_of(rows[-1]) if len(rows) == self._page else None

    @staticmethod
    def _marker_of(row: Row) -> tuple[Any, ...]:
        return row[2], row[0]

    def _ranks(self) -> list[int]:
        """The ranks in use: one search for each."""
        ranks: list[int] = []
        while following := self._tx.first("next_open_rank", (self._name, ranks[-1] if ranks else BELOW_ALL_RANKS)):
            ranks += following
        return ranks

    def _add(self, name: str, rank: int, seq: int, buckets: str, vtime: float | None) -> None:
        if (name, rank) not in self._lanes:
            lane = self._lanes[name, rank] = KeyedLane(name, rank, seq, buckets, vtime)
            self._by_rank.setdefault(rank, RankedLanes(None))
            self._push(lane)

    # ---- the first lane -------------------------------------------------------------------------------

    def pop(self) -> PickedJob | None:
        return self.pop_at(self._first_rank)

    def pop_at(self, rank: int) -> PickedJob | None:
        """Take the first job of the first lane of one priority; see :meth:`.picker.JobSource.pop`."""
        _, name = heappop(self._by_rank[rank].heap)
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
        if self._waits_for_rate_before(lane):
            return None
        if self._ahead and (lane.buckets or self._limits.names):
            self.passed = True
            return None
        return self._take(lane, head)

    def is_closed(self) -> bool:
        """No more jobs can be taken: an unkeyed limit is used up, or the next job needs a free slot."""
        return self._held_back is not None or self.passed

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
        values = (lane.lane, self._tx.now, n, -lane.rank, BELOW_ALL_SEQS)
        rows = self._tx.all("heads" + self._suffix(lane), values)
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
        return PickedJob(head.id, names if lane.buckets else ())

    def _waits_for_rate_before(self, lane: KeyedLane) -> bool:
        """Whether an earlier job of this lane, of another priority, waits for a rate.

        The job here may cost less and fit, but within a lane no job passes another.
        """
        if not any(self._capacities[name].counts_cost for name in lane.buckets):
            return False
        before = self._parked.get(lane.lane)
        if before is not None and before.key < lane.key:
            waits = before.change
        else:
            waits = self._tx.first("parked_before", (lane.lane, lane.key, EXPIRED_LANE))
        if waits is None or waits[1] is None:
            return False
        self._park(lane, *waits)
        return True

    # ---- parking --------------------------------------------------------------------------------------

    def _park(self, lane: KeyedLane, bucket: str, until: int | None) -> None:
        lane.change = (bucket, until)
        before = self._parked.setdefault(lane.lane, lane)
        if lane.key < before.key:
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
