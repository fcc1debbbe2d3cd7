"""Fair keys: the lanes of a queue's fair keys in the order of their virtual time.

Self-clocked fair queuing. A lane has a vtime for its next claim. The lane with the lowest vtime is served, and its
vtime grows by one over its weight. The virtual time of the queue is the vtime that was served last. A new lane is put
one step behind the virtual time of the queue, and nothing of an empty lane has to be remembered: what it was served
lies before that time.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

from .jobs.claim.keyed import KeyedLane, KeyedLaneSet, RankedLanes, SortKey
from .jobs.claim.picker import BELOW_ALL_SEQS, JobSource, LaneHead, PickedJob, Picker, head_of
from .lanes import queue_of
from .limits.waiting import open_due_lanes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .driver.transaction import Tx
    from .limits.buckets import Capacities
    from .limits.waiting import ParkedLane


class VirtualClock:
    """The virtual time of a queue, by rank."""

    def __init__(self, tx: Tx, queue: str) -> None:
        self._tx = tx
        self._queue = queue
        self._vtimes: dict[int, float] = {}
        self._moved: set[int] = set()

    def charge(self, lane: KeyedLane, step: float) -> float:
        """Advance to the vtime of a lane that is served now; return its next vtime, one step later."""
        assert lane.vtime is not None
        now = self._at(lane.rank)
        if lane.vtime > now:
            self._vtimes[lane.rank] = now = lane.vtime
            self._moved.add(lane.rank)
        return now + step

    def _at(self, rank: int) -> float:
        if rank not in self._vtimes:
            found = self._tx.first("virtual_time", (self._queue, rank))
            self._vtimes[rank] = found[0] if found else 0.0
        return self._vtimes[rank]

    def write(self) -> None:
        for rank in self._moved:
            self._tx.run("set_virtual_time", (self._queue, rank, self._vtimes[rank]))


class FairLaneSet(KeyedLaneSet):
    """The lanes of fair keys of one lane set."""

    _FIRST = (-1.0, BELOW_ALL_SEQS, "")

    def __init__(
        self,
        tx: Tx,
        capacities: Capacities,
        name: str,
        unkeyed: tuple[str, ...],
        n: int,
        picker: Picker,
        clock: VirtualClock,
    ) -> None:
        super().__init__(tx, capacities, name, unkeyed, n, picker)
        self._clock = clock
        self._steps: dict[str, float] = {}
        """By how much a claim puts a lane back."""
        self._heads_read: dict[tuple[str, int], int] = {}
        """How many jobs of a lane were read at a time; 0 if the lane has no more."""

    @property
    def ranks(self) -> Iterable[int]:
        return self._by_rank

    def sort_key(self, lane: KeyedLane) -> SortKey:
        assert lane.vtime is not None
        return lane.vtime, lane.seq

    def _read_page(self, rank: int, lanes: RankedLanes) -> None:
        assert lanes.last is not None
        rows = self._tx.all("open_fair_lanes", (self._name, rank, *lanes.last, self._page))
        for *row, step in rows:
            self._steps[row[0]] = step
            self._add(*row)
        lanes.last = (rows[-1][4], rows[-1][2], rows[-1][0]) if len(rows) == self._page else None

    def _read_heads(self, lane: KeyedLane) -> list[LaneHead]:
        """Read about as many jobs as this lane is likely to give: its share of the wanted jobs."""
        return self._read_behind(lane, BELOW_ALL_SEQS, max(1, self._n // len(self._lanes)))

    def _read_behind(self, lane: KeyedLane, seq: int, n: int) -> list[LaneHead]:
        n = min([n, *(self._capacities[name].available() for name in lane.buckets)]) + 1
        values = (lane.lane, self._tx.now, n, -lane.rank, seq)
        rows = self._tx.all("heads" + self._suffix(lane), values)
        self._heads_read[lane.lane, lane.rank] = n if len(rows) == n else 0
        return [head_of(row) for row in reversed(rows)]

    def _take(self, lane: KeyedLane, head: LaneHead) -> PickedJob:
        read = self._heads_read[lane.lane, lane.rank]
        if read and lane.heads == [head]:
            lane.heads = [*self._read_behind(lane, head.seq, 2 * read), head]
        lane.vtime = self._clock.charge(lane, self._steps[lane.lane])
        return super()._take(lane, head)

    def _open(self, row: ParkedLane) -> None:
        assert row.step is not None
        self._steps[row.lane] = row.step
        super()._open(row)

    def _write(self, lane: KeyedLane, parked_on: str, until: int | None) -> None:
        self._tx.run("set_fair_lane", (lane.seq, parked_on, until, lane.vtime, lane.lane, lane.rank))


class FairQueue:
    """All lanes of fair keys of a queue. See :class:`.claim.picker.JobSource`."""

    def __init__(self, lane_sets: list[FairLaneSet], clock: VirtualClock, picker: Picker) -> None:
        self._lane_sets = lane_sets
        self._clock = clock
        self._picker = picker
        self._first, self._first_rank = lane_sets[0], 0
        self.looked = 0
        self.passed = False

    def begin(self, n: int) -> None:
        for lane_set in self._lane_sets:
            lane_set.begin(n)

    def key(self) -> int | None:
        """Of each priority, the lane that is next by virtual time; of these, the one whose first job comes first."""
        next_at: dict[int, tuple[SortKey, KeyedLane, FairLaneSet]] = {}
        for lane_set in self._lane_sets:
            if lane_set.is_closed() or lane_set.looked >= self._picker.patience:
                continue
            for rank in lane_set.ranks:
                lane = lane_set.first_at(rank)
                if lane is None:
                    continue
                place = lane_set.sort_key(lane)
                if rank not in next_at or place < next_at[rank][0]:
                    next_at[rank] = place, lane, lane_set
        best: int | None = None
        for _, lane, lane_set in next_at.values():
            if best is None or lane.key < best:
                best, self._first, self._first_rank = lane.key, lane_set, lane.rank
        return best

    def pop(self) -> PickedJob | None:
        picked = self._first.pop_at(self._first_rank)
        self.looked = max(self.looked, self._first.looked)
        self.passed = self.passed or self._first.passed
        return picked

    def end(self) -> int | None:
        moments = [lane_set.end() for lane_set in self._lane_sets]
        self._clock.write()
        return min((at for at in moments if at is not None), default=None)


class NamedLaneSet(Protocol):
    """A lane set with keys, and the unkeyed limits that hold it back as a whole."""

    @property
    def name(self) -> str: ...
    @property
    def unkeyed(self) -> tuple[str, ...]: ...


def fair_queues(
    tx: Tx, capacities: Capacities, lane_sets: Iterable[NamedLaneSet], n: int, picker: Picker
) -> list[JobSource]:
    """One source for each queue."""
    by_queue: defaultdict[str, list[NamedLaneSet]] = defaultdict(list)
    for lane_set in lane_sets:
        by_queue[queue_of(lane_set.name)].append(lane_set)
    sources: list[JobSource] = []
    for queue, own in by_queue.items():
        clock = VirtualClock(tx, queue)
        for lane_set in own:
            open_due_lanes(tx, lane_set.name)
        found = [FairLaneSet(tx, capacities, each.name, each.unkeyed, n, picker, clock) for each in own]
        sources.append(FairQueue(found, clock, picker))
    return sources
