"""Several sources of jobs merged into one, by the order keys of their first jobs, as capacity allows."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mainspring.jobs.records import order_key
from mainspring.stores.sqlite.lanes import costs_in, queue_of
from mainspring.stores.sqlite.limits.capacity import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mainspring.stores.sqlite.driver.transaction import Row, Tx
    from mainspring.stores.sqlite.limits.buckets import Capacities

ABOVE_ALL_PRIORITIES = 1 << 40
BELOW_ALL_SEQS = -(1 << 62)
"""The seqs of lifo queues are negative."""
NO_COSTS: Mapping[str, int] = {}


class PickedJob(NamedTuple):
    """A job to be claimed."""

    id: bytes
    held: tuple[str, ...]
    """The buckets in which the job gets a row in ``job_holds``: none for a job that names unkeyed limits only."""


class JobSource(Protocol):
    """Jobs in the order in which they are handed out."""

    passed: bool
    """A job was passed over because it may start in a free slot only."""
    looked: int
    """How many lanes the source has looked at without finding a job to hand out."""

    def begin(self, n: int) -> None:
        """Read the first jobs: up to ``n`` of them will be taken."""
        ...

    def key(self) -> int | None:
        """The order key of the first job as far as it is known; None if the source has no more jobs."""
        ...

    def pop(self) -> PickedJob | None:
        """Take the first job and its capacity; None if that job cannot start, then the next one has to be tried."""
        ...

    def end(self) -> int | None:
        """The picked jobs are claimed: write what was learnt. Returns when to check again, if that is known."""
        ...


class Picker:
    """The jobs chosen for one ``Want``."""

    def __init__(self, patience: int, *, ahead: bool) -> None:
        self.picked: dict[bytes, PickedJob] = {}
        self.patience = patience
        self.ahead = ahead

    def pick(self, sources: Sequence[JobSource], n: int) -> None:
        """Pick up to ``n`` more jobs."""
        if n <= 0:
            return
        wanted = len(self.picked) + n
        heap: list[tuple[int, int]] = []
        for at, source in enumerate(sources):
            source.begin(n)
            self._push(heap, at, source)
        heapify(heap)
        while heap and len(self.picked) < wanted:
            _, at = heappop(heap)
            source = sources[at]
            picked = source.pop()
            if picked is not None:
                self.picked[picked.id] = picked
            self._push(heap, at, source)

    @staticmethod
    def _push(heap: list[tuple[int, int]], at: int, source: JobSource) -> None:
        key = source.key()
        if key is not None:
            heappush(heap, (key, at))


class LaneHead(NamedTuple):
    """One of the first jobs of a lane, and the costs of its start where they matter."""

    key: int
    """The order key."""
    seq: int
    id: bytes
    costs: Mapping[str, int] = NO_COSTS


def head_of(row: Row) -> LaneHead:
    """From a row of the ``*heads`` statements. The statements with costs return the buckets as a fourth column."""
    priority, seq, id, *buckets = row
    return LaneHead(order_key(seq, priority), seq, id, costs_in(buckets[0]) if buckets and buckets[0] else NO_COSTS)


class UnkeyedLimits:
    """The limits without a key that hold back a lane, or a lane set, as a whole."""

    def __init__(
        self, tx: Tx, capacities: Capacities, lane: str, names: tuple[str, ...], *, ahead: bool = False
    ) -> None:
        self._tx = tx
        self._capacities = capacities
        self._queue = queue_of(lane)
        self._ahead = ahead
        """The jobs are claimed ahead of a free slot, so each limit has to stay plentiful."""
        self.names = names

    def available(self, costs: Mapping[str, int] = NO_COSTS) -> int:
        """How many starts with these costs fit."""
        found = [self._capacities[name] for name in self.names]
        left = [each.headroom() if self._ahead else each.available() for each in found]
        return min([n // costs.get(name, 1) for n, name in zip(left, self.names, strict=True)], default=UNLIMITED)

    @property
    def count_costs(self) -> bool:
        return any(self._capacities[name].counts_cost for name in self.names)

    def fit(self, costs: Mapping[str, int]) -> bool:
        """Whether a start with these costs fits."""
        return self.available(costs) > 0 if self._ahead else self.fit_now(costs)

    def fit_now(self, costs: Mapping[str, int]) -> bool:
        """Whether a start with these costs fits, in a free slot."""
        return not self._capacities.full(self.names, costs)

    def wait(self, costs: Mapping[str, int]) -> int | None:
        """A job with these costs is held back: a release of capacity wakes its queue. Returns when to check again."""
        full = self._capacities.full(self.names, costs)
        for name in full:
            self._tx.run("add_waiting_queue", (name, self._queue))
        self._capacities.held_back.add(self._queue)
        return self._capacities.wait_for(full, costs)[1]


class PriorityHeads:
    """The first jobs of a lane at one priority. More of them are read as they are taken."""

    def __init__(self, tx: Tx, statement: str, lane: str, priority: int, page: int) -> None:
        self._tx = tx
        self._statement = statement
        self._lane = lane
        self._priority = priority
        self._page = page
        self._behind = BELOW_ALL_SEQS
        self._heads: list[LaneHead] = []
        """The jobs that were read, the last of them first."""

    def first(self) -> LaneHead | None:
        return self._heads[-1] if self._heads else None

    def take(self) -> LaneHead:
        return self._heads.pop()

    def read(self, n: int) -> None:
        """Read up to ``n`` more jobs, unless some are left or the last page was not full."""
        if self._heads or not self._page:
            return
        values = (self._lane, self._tx.now, self._page, self._priority, self._behind)
        rows = self._tx.all(self._statement, values)
        self._heads = [head_of(row) for row in reversed(rows)]
        self._page = n if len(rows) == self._page else 0
        if rows:
            self._behind = rows[-1][1]


class LaneSource:
    """The jobs of one lane without keys, of any priority."""

    looked = 0

    def __init__(
        self, tx: Tx, capacities: Capacities, name: str, unkeyed: tuple[str, ...], *, ahead: bool = False
    ) -> None:
        self._tx = tx
        self._capacities = capacities
        self._name = name
        self._ahead = ahead
        self._limits = UnkeyedLimits(tx, capacities, name, unkeyed, ahead=ahead)
        self._n = 0
        self._heap: list[tuple[int, int]] = []
        self._heads: dict[int, PriorityHeads] = {}
        self._held_back: Mapping[str, int] | None = None
        """The costs of the job that found no capacity."""
        self.passed = False

    def begin(self, n: int) -> None:
        """Read one job more than fits: so the source knows whether a job is held back."""
        self._n = min(n, self._limits.available() + 1)
        statement = "heads_with_costs" if self._limits.count_costs else "heads"
        priorities = priorities_of(self._tx, self._name)
        page = self._n if len(priorities) == 1 else 1
        self._heads = {each: PriorityHeads(self._tx, statement, self._name, each, page) for each in priorities}
        self._heap = []
        for priority in priorities:
            self._push(priority)

    def _push(self, priority: int) -> None:
        heads = self._heads[priority]
        heads.read(self._n)
        first = heads.first()
        if first is not None:
            heappush(self._heap, (first.key, priority))

    def key(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def pop(self) -> PickedJob | None:
        _, priority = heappop(self._heap)
        head = self._heads[priority].take()
        if not self._limits.fit(head.costs):
            self.passed = self._ahead and self._limits.fit_now(head.costs)
            self._held_back = None if self.passed else head.costs
            self._heap = []
            return None
        self._push(priority)
        self._capacities.take(self._limits.names, head.costs)
        return PickedJob(head.id, ())

    def end(self) -> int | None:
        return None if self._held_back is None else self._limits.wait(self._held_back)


def priorities_of(tx: Tx, lane: str) -> list[int]:
    """The priorities of the ready jobs of a lane: one search for each."""
    found: list[int] = []
    while lower := tx.first("next_priority", (lane, found[-1] if found else ABOVE_ALL_PRIORITIES)):
        found += lower
    return found
