"""Several lines as one: the first of all of them, by priority and seq or by age, as rooms allow."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple, Protocol

from .places import costs_in, queue_of
from .room import ANY
from .rooms import Rooms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .tx import Row, Tx

Key = tuple[float, ...]
_ABOVE_ALL = 1 << 40
NO_COSTS: Mapping[str, int] = {}


class Picked(NamedTuple):
    """A job to be claimed."""

    id: bytes
    held: tuple[str, ...]
    """The buckets in which it then has a row for its place: none of a job that names gates only."""
    is_short: bool
    """One of its buckets has not much left."""


class Line(Protocol):
    """Jobs in the order in which they are handed out."""

    limited: bool
    looked: int
    """How many lanes it has looked at without a job to show for it."""

    def begin(self, n: int, *, aged: bool) -> None:
        """From the first on, those that are picked among them, ``n`` in all: by priority and seq, or by seq alone."""
        ...

    def key(self) -> Key | None:
        """Where its first stands, as far as it knows; None when it has no more."""
        ...

    def pop(self) -> Picked | None:
        """Its first, with its places taken; None if that is no good and the next has to be looked at."""
        ...

    def is_roomy(self) -> bool:
        """Whether its first may be had without being short."""
        ...

    def end(self) -> int | None:
        """What was picked is claimed: write down what was learnt. From when on it is worth looking again, if known."""
        ...


class Picker:
    """What one want gets."""

    def __init__(self, limited: int | None, patience: int) -> None:
        self.picked: dict[bytes, Picked] = {}
        self.patience = patience
        self.limited = ANY if limited is None else limited
        """How many more may be short."""

    def pick(self, lines: Sequence[Line], n: int, *, aged: bool = False) -> None:
        """Up to ``n`` more."""
        if n <= 0:
            return
        wanted = len(self.picked) + n
        heap: list[tuple[Key, int]] = []
        for at, line in enumerate(lines):
            if not line.limited or self.limited > 0 or line.is_roomy():
                line.begin(wanted, aged=aged)
                self._push(heap, at, line)
        heapify(heap)
        while heap and len(self.picked) < wanted:
            _, at = heappop(heap)
            line = lines[at]
            if line.limited and (line.looked >= self.patience or (self.limited <= 0 and not line.is_roomy())):
                continue
            picked = line.pop()
            if picked is not None:
                self.picked[picked.id] = picked
                self.limited -= picked.is_short
            self._push(heap, at, line)

    @staticmethod
    def _push(heap: list[tuple[Key, int]], at: int, line: Line) -> None:
        key = line.key()
        if key is not None:
            heappush(heap, (key, at))


class Head(NamedTuple):
    """A job that stands in a lane, and what its start costs where that matters."""

    rank: int
    seq: int
    id: bytes
    costs: Mapping[str, int] = NO_COSTS


def head_of(row: Row) -> Head:
    """Of the statements for heads: those that tell the costs have a fourth column."""
    priority, seq, id, *buckets = row
    return Head(-priority, seq, id, costs_in(buckets[0]) if buckets and buckets[0] else NO_COSTS)


class Gates:
    """The limits without a key that hold back a lane, or a group of lanes, as a whole."""

    def __init__(self, tx: Tx, rooms: Rooms, lane: str, names: tuple[str, ...]) -> None:
        self._tx = tx
        self._rooms = rooms
        self._queue = queue_of(lane)
        self.names = names

    def most(self, costs: Mapping[str, int] = NO_COSTS) -> int:
        """How many starts fit that cost so much each."""
        return min([self._rooms[name].most() // costs.get(name, 1) for name in self.names], default=ANY)

    @property
    def costs(self) -> bool:
        return any(self._rooms[name].costs for name in self.names)

    def spare(self, costs: Mapping[str, int]) -> int:
        """How many of those before there is not much left."""
        return max(min([self._rooms[name].spare() // costs.get(name, 1) for name in self.names], default=ANY), 0)

    def are_roomy(self, costs: Mapping[str, int]) -> bool:
        return all(self._rooms[name].is_roomy(costs.get(name, 1)) for name in self.names)

    def wait(self, costs: Mapping[str, int]) -> int | None:
        """A job that costs so much was held back: whoever frees a place wakes the queue. When to look again."""
        stuck = self._rooms.stuck(self.names, costs)
        for name in stuck:
            self._tx.run("note_wait", (name, self._queue))
        self._rooms.held.add(self._queue)
        return self._rooms.moment(stuck, costs)[1]


class LaneLine:
    """The jobs of one lane without keys, of any priority."""

    looked = 0

    def __init__(self, tx: Tx, rooms: Rooms, name: str, gates: tuple[str, ...], picker: Picker) -> None:
        self._tx = tx
        self._rooms = rooms
        self._name = name
        self._gates = Gates(tx, rooms, name, gates)
        self._picked = picker.picked
        self._heads: list[tuple[Key, Head]] = []
        self._stuck: Mapping[str, int] | None = None
        self.limited = bool(gates)

    def begin(self, n: int, *, aged: bool) -> None:
        """Reads one more than there is room for: so it is known whether somebody waits."""
        n = min(n, self._gates.most() + 1 + len(self._picked))
        costs = "_costs" if self._gates.costs else ""
        if aged:
            heads = [head_of(row) for row in _oldest(self._tx, self._name, n, costs)]
            found: list[tuple[Key, Head]] = [((head.seq,), head) for head in heads]
        else:
            heads = [head_of(row) for row in self._tx.all("heads" + costs, (self._name, self._tx.now, n))]
            found = [((head.rank, head.seq), head) for head in heads]
        self._heads = sorted(found, key=lambda each: each[0], reverse=True)

    def key(self) -> Key | None:
        return self._heads[-1][0] if self._heads else None

    def pop(self) -> Picked | None:
        _, head = self._heads.pop()
        if head.id in self._picked:
            return None
        if self._rooms.stuck(self._gates.names, head.costs):
            self._stuck = head.costs
            self._heads = []
            return None
        is_short = self.limited and not self._gates.are_roomy(head.costs)
        self._rooms.take(self._gates.names, head.costs)
        return Picked(head.id, (), is_short)

    def is_roomy(self) -> bool:
        return self._gates.are_roomy(self._heads[-1][1].costs if self._heads else NO_COSTS)

    def end(self) -> int | None:
        return None if self._stuck is None else self._gates.wait(self._stuck)


def _oldest(tx: Tx, lane: str, n: int, costs: str) -> list[Row]:
    """The first of each priority in use: one probe a level, so no index by seq alone is needed."""
    found: list[Row] = []
    level = _ABOVE_ALL
    while lower := tx.first("level", (lane, level)):
        (level,) = lower
        found += tx.all("level_heads" + costs, (lane, tx.now, n, level))
    return found
