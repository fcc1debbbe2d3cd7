"""Several sources of jobs merged into one: by priority and seq or by seq alone, as capacity allows."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mainspring.stores.sqlite.lanes import costs_in, queue_of
from mainspring.stores.sqlite.limits.capacity import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mainspring.stores.sqlite.driver.transaction import Row, Tx
    from mainspring.stores.sqlite.limits.buckets import Capacities

SortKey = tuple[float, ...]
_ABOVE_ALL_PRIORITIES = 1 << 40
NO_COSTS: Mapping[str, int] = {}


class PickedJob(NamedTuple):
    """A job to be claimed."""

    id: bytes
    held: tuple[str, ...]
    """The buckets in which the job gets a row in ``job_holds``: none for a job that names unkeyed limits only."""
    is_scarce: bool
    """At least one bucket of the job is scarce."""


class JobSource(Protocol):
    """Jobs in the order in which they are handed out."""

    limited: bool
    looked: int
    """How many lanes the source has looked at without finding a job to hand out."""

    def begin(self, n: int, *, aged: bool) -> None:
        """Start from the first job: up to ``n`` jobs, by priority and seq, or if ``aged`` by seq alone.

        The source may give jobs again that are picked already.
        """
        ...

    def key(self) -> SortKey | None:
        """The sort key of the first job as far as it is known; None if the source has no more jobs."""
        ...

    def pop(self) -> PickedJob | None:
        """Take the first job and its capacity; None if that job cannot start, then the next one has to be tried."""
        ...

    def is_plentiful(self) -> bool:
        """Whether the first job can be picked without using a scarce bucket."""
        ...

    def end(self) -> int | None:
        """The picked jobs are claimed: write what was learnt. Returns when to check again, if that is known."""
        ...


class Picker:
    """The jobs chosen for one ``Want``."""

    def __init__(self, limited: int | None, patience: int) -> None:
        self.picked: dict[bytes, PickedJob] = {}
        self.patience = patience
        self.limited = UNLIMITED if limited is None else limited
        """How many more jobs with a scarce bucket may be picked."""

    def pick(self, sources: Sequence[JobSource], n: int, *, aged: bool = False) -> None:
        """Pick up to ``n`` more jobs."""
        if n <= 0:
            return
        wanted = len(self.picked) + n
        heap: list[tuple[SortKey, int]] = []
        for at, source in enumerate(sources):
            if not source.limited or self.limited > 0 or source.is_plentiful():
                source.begin(wanted, aged=aged)
                self._push(heap, at, source)
        heapify(heap)
        while heap and len(self.picked) < wanted:
            _, at = heappop(heap)
            source = sources[at]
            if source.limited and (source.looked >= self.patience or (self.limited <= 0 and not source.is_plentiful())):
                continue
            picked = source.pop()
            if picked is not None:
                self.picked[picked.id] = picked
                self.limited -= picked.is_scarce
            self._push(heap, at, source)

    @staticmethod
    def _push(heap: list[tuple[SortKey, int]], at: int, source: JobSource) -> None:
        key = source.key()
        if key is not None:
            heappush(heap, (key, at))


class LaneHead(NamedTuple):
    """One of the first jobs of a lane, and the costs of its start where they matter."""

    rank: int
    seq: int
    id: bytes
    costs: Mapping[str, int] = NO_COSTS


def head_of(row: Row) -> LaneHead:
    """From a row of the ``*heads`` statements. The statements with costs return the buckets as a fourth column."""
    priority, seq, id, *buckets = row
    return LaneHead(-priority, seq, id, costs_in(buckets[0]) if buckets and buckets[0] else NO_COSTS)


class UnkeyedLimits:
    """The limits without a key that hold back a lane, or a lane set, as a whole."""

    def __init__(self, tx: Tx, capacities: Capacities, lane: str, names: tuple[str, ...]) -> None:
        self._tx = tx
        self._capacities = capacities
        self._queue = queue_of(lane)
        self.names = names

    def available(self, costs: Mapping[str, int] = NO_COSTS) -> int:
        """How many starts with these costs fit."""
        return min([self._capacities[name].available() // costs.get(name, 1) for name in self.names], default=UNLIMITED)

    @property
    def count_costs(self) -> bool:
        return any(self._capacities[name].counts_cost for name in self.names)

    def headroom(self, costs: Mapping[str, int]) -> int:
        """How many starts with these costs fit before a limit is scarce."""
        found = [self._capacities[name].headroom() // costs.get(name, 1) for name in self.names]
        return max(min(found, default=UNLIMITED), 0)

    def are_plentiful(self, costs: Mapping[str, int]) -> bool:
        return all(self._capacities[name].is_plentiful(costs.get(name, 1)) for name in self.names)

    def wait(self, costs: Mapping[str, int]) -> int | None:
        """A job with these costs is held back: a release of capacity wakes its queue. Returns when to check again."""
        full = self._capacities.full(self.names, costs)
        for name in full:
            self._tx.run("add_waiting_queue", (name, self._queue))
        self._capacities.held_back.add(self._queue)
        return self._capacities.wait_for(full, costs)[1]


class LaneSource:
    """The jobs of one lane without keys, of any priority."""

    looked = 0

    def __init__(self, tx: Tx, capacities: Capacities, name: str, unkeyed: tuple[str, ...], picker: Picker) -> None:
        self._tx = tx
        self._capacities = capacities
        self._name = name
        self._limits = UnkeyedLimits(tx, capacities, name, unkeyed)
        self._picked = picker.picked
        self._heads: list[tuple[SortKey, LaneHead]] = []
        self._held_back: Mapping[str, int] | None = None
        """The costs of the job that found no capacity."""
        self.limited = bool(unkeyed)

    def begin(self, n: int, *, aged: bool) -> None:
        """Read one job more than fits: so the source knows whether a job is held back."""
        n = min(n, self._limits.available() + 1 + len(self._picked))
        suffix = "_with_costs" if self._limits.count_costs else ""
        if aged:
            heads = [head_of(row) for row in _oldest(self._tx, self._name, n, suffix)]
            found: list[tuple[SortKey, LaneHead]] = [((head.seq,), head) for head in heads]
        else:
            heads = [head_of(row) for row in self._tx.all("heads" + suffix, (self._name, self._tx.now, n))]
            found = [((head.rank, head.seq), head) for head in heads]
        self._heads = sorted(found, key=lambda each: each[0], reverse=True)

    def key(self) -> SortKey | None:
        return self._heads[-1][0] if self._heads else None

    def pop(self) -> PickedJob | None:
        _, head = self._heads.pop()
        if head.id in self._picked:
            return None
        if self._capacities.full(self._limits.names, head.costs):
            self._held_back = head.costs
            self._heads = []
            return None
        is_scarce = self.limited and not self._limits.are_plentiful(head.costs)
        self._capacities.take(self._limits.names, head.costs)
        return PickedJob(head.id, (), is_scarce)

    def is_plentiful(self) -> bool:
        return self._limits.are_plentiful(self._heads[-1][1].costs if self._heads else NO_COSTS)

    def end(self) -> int | None:
        return None if self._held_back is None else self._limits.wait(self._held_back)


def _oldest(tx: Tx, lane: str, n: int, suffix: str) -> list[Row]:
    """The first jobs of each priority in use: one search for each priority, so no index by seq alone is needed."""
    found: list[Row] = []
    priority = _ABOVE_ALL_PRIORITIES
    while lower := tx.first("next_priority", (lane, priority)):
        (priority,) = lower
        found += tx.all("priority_heads" + suffix, (lane, tx.now, n, priority))
    return found
