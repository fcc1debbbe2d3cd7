"""The line of a group of lanes with keys: each lane by its first job, those without room parked as they are met."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import msgspec

from .parking import BELOW_ALL, Parked, first_parked
from .picking import Gates, Head, Key, Picked, Picker, head_of
from .room import ANY
from .rooms import Rooms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .tx import Tx

LATE = "=late"
"""Stands for a bucket in the rows of lanes all of whose jobs have expired."""
LATER = 1_000_000
BELOW = -(1 << 62)
"""Below every place in the line: of a stack they are negative."""
_names = msgspec.json.Decoder(tuple[str, ...]).decode


class Front:
    """A lane at one priority: where it stands in line and who stands in it."""

    __slots__ = ("buckets", "gone", "heads", "lane", "rank", "seq", "set", "vtime")

    def __init__(self, lane: str, rank: int, seq: int, buckets: str, vtime: float | None) -> None:
        self.lane = lane
        self.rank = rank
        self.seq = seq
        self.buckets = _names(buckets)
        self.heads: list[Head] | None = None
        self.set: tuple[str, int | None] | None = None
        """On what it waits, and until when, if anything has changed for it; "" when it stands in line."""
        self.gone = False
        self.vtime = vtime
        """Of a fair key, the virtual time of its next claim."""


class KeyedLine:
    """See :class:`.picking.Line`."""

    limited = True
    _FIRST: tuple[Any, ...] = (BELOW_ALL, BELOW, "")

    def __init__(self, tx: Tx, rooms: Rooms, group: str, gates: tuple[str, ...], n: int, picker: Picker) -> None:
        self._tx = tx
        self._rooms = rooms
        self._group = group
        self._gates = Gates(tx, rooms, group, gates)
        self._n = n
        self._size = min(n, 50) + 2
        self._patience = picker.patience
        self._parked: dict[str, Front] = {}
        self._fronts: dict[tuple[str, int], Front] = {}
        self._line: list[tuple[Key, str, int]] = []
        self._aged = False
        self._last: tuple[Any, ...] | None = self._FIRST
        self._ages: dict[int, tuple[int, str]] = {}
        self._stuck: Mapping[str, int] | None = None
        self.looked = 0

    # ---- the line -----------------------------------------------------------------------------

    def begin(self, n: int, *, aged: bool) -> None:  # noqa: ARG002  # reads on as it goes
        self._aged = aged
        self._line = []
        for front in self._fronts.values():
            if not front.gone and not (front.set and front.set[0]):
                self._push(front)
        self._ages = dict.fromkeys(self._ranks(), (BELOW, "")) if aged else {}

    def key(self) -> Key | None:
        if self._stuck is not None:
            return None
        if self._aged:
            while behind := [rank for rank, last in self._ages.items() if self._lies_before(last[:1])]:
                for rank in behind:
                    self._read_rank(rank, *self._ages.pop(rank))
        else:
            while self._last is not None and self._lies_before(self._last[:-1]):
                self._read_on(self._last)
        return self._line[0][0] if self._line else None

    def _lies_before(self, read: Key) -> bool:
        """Whether somebody may come behind the last that was read and before the first in line."""
        return not self._line or read < self._line[0][0]

    def _push(self, front: Front) -> None:
        heappush(self._line, (self._place(front), front.lane, front.rank))

    def _place(self, front: Front) -> Key:
        return (front.seq,) if self._aged else (front.rank, front.seq)

    def _read_on(self, last: tuple[Any, ...]) -> None:
        """The next lanes by priority and seq; those that are known stand in line already."""
        rows = self._tx.all("open_lanes", (self._group, *last, self._size))
        for row in rows:
            self._meet(*row)
        self._last = (rows[-1][1], rows[-1][2], rows[-1][0]) if len(rows) == self._size else None

    def _read_rank(self, rank: int, seq: int, lane: str) -> None:
        """The next lanes of one priority."""
        rows = self._tx.all("open_at_rank", (self._group, rank, seq, lane, self._size))
        for row in rows:
            self._meet(*row)
        if len(rows) == self._size:
            self._ages[rank] = rows[-1][2], rows[-1][0]

    def _ranks(self) -> list[int]:
        """The priorities in use: one probe for each, so no index by seq alone is needed."""
        ranks: list[int] = []
        while lower := self._tx.first("open_rank", (self._group, ranks[-1] if ranks else BELOW_ALL)):
            ranks += lower
        return ranks

    def _meet(self, lane: str, rank: int, seq: int, buckets: str, vtime: float | None) -> None:
        if (lane, rank) not in self._fronts:
            front = self._fronts[lane, rank] = Front(lane, rank, seq, buckets, vtime)
            self._push(front)

    # ---- its first ----------------------------------------------------------------------------

    def pop(self) -> Picked | None:
        _, lane, rank = heappop(self._line)
        front = self._fronts[lane, rank]
        self.looked += 1
        rooms = self._rooms
        if self._gates.most() <= 0 and not self._gates.costs:
            self._stuck = {}
            return None
        full = [name for name in front.buckets if rooms[name].most() <= 0]
        if full and not any(rooms[name].costs for name in full):
            self._park(front, full[0], rooms[full[0]].ends)
            return None
        head = self._head(front)
        if head is None:
            return None
        if rooms.stuck(self._gates.names, head.costs):
            self._stuck = head.costs
            return None
        stuck = rooms.stuck(front.buckets, head.costs)
        if stuck:
            self._park(front, *rooms.moment(stuck, head.costs))
            return None
        if self._is_behind(front):
            return None
        return self._take(front, head)

    def _head(self, front: Front) -> Head | None:
        """The first job of the lane; None if there is none, or if it stands further back than was thought."""
        if front.heads is None:
            front.heads = self._read(front)
        if not front.heads:
            self._leave(front)
            return None
        head = front.heads[-1]
        if head.seq != front.seq:
            front.seq = head.seq
            front.set = ("", None)
            self._push(front)
            self._pass_along(front)
            return None
        return head

    def _read(self, front: Front) -> list[Head]:
        """The first jobs of the lane, the last of them first: one more than there is room for."""
        n = min(self._n, *(self._rooms[name].most() for name in front.buckets)) + 1
        rows = self._tx.all("level_heads" + self._costs(front), (front.lane, self._tx.now, n, -front.rank))
        return [head_of(row) for row in reversed(rows)]

    def _costs(self, front: Front) -> str:
        """Whether it matters what a start costs, as the end of a statement's name."""
        return "_costs" if self._gates.costs or any(self._rooms[name].costs for name in front.buckets) else ""

    def _take(self, front: Front, head: Head) -> Picked:
        self.looked -= 1
        names = (*self._gates.names, *front.buckets)
        self._rooms.take(names, head.costs)
        assert front.heads is not None
        front.heads.pop()
        if front.heads:
            front.seq = front.heads[-1].seq
            front.set = ("", None)
            self._push(front)
        else:
            front.gone = True
        return Picked(head.id, names if front.buckets else (), bool(names))

    def is_roomy(self) -> bool:
        """Keys are there to be short."""
        return False

    def _is_behind(self, front: Front) -> bool:
        """Whether a job before it in its lane waits for a rate: it may cost less, but nobody passes in a lane."""
        if not any(self._rooms[name].costs for name in front.buckets):
            return False
        ahead = self._parked.get(front.lane)
        if ahead is not None and ahead.rank < front.rank:
            before = ahead.set
        else:
            before = self._tx.first("parked_above", (front.lane, front.rank, LATE))
        if before is None or before[1] is None:
            return False
        self._park(front, *before)
        return True

    # ---- out of the line ----------------------------------------------------------------------

    def _park(self, front: Front, bucket: str, until: int | None) -> None:
        front.set = (bucket, until)
        ahead = self._parked.setdefault(front.lane, front)
        if front.rank < ahead.rank:
            self._parked[front.lane] = front
        self._pass_along(front, bucket)

    def _leave(self, front: Front) -> None:
        """Nobody is there."""
        front.gone = True
        self._pass_along(front)

    def _pass_along(self, front: Front, parked_on: str = "") -> None:
        """The place that it was in line for goes to the next. Who waits for a rate is opened by time."""
        for name in front.buckets:
            room = self._rooms[name]
            if name != parked_on and not room.costs and 0 < room.most() < ANY:
                for row in first_parked(self._tx, name, self._group, 1):
                    self._open(row)

    def _open(self, row: Parked) -> None:
        """Written at once: it must not be found again."""
        self._tx.run("open_lane", (row.lane, row.rank))
        self._meet(row.lane, row.rank, row.seq, row.buckets, row.vtime)

    def end(self) -> int | None:
        for front in self._fronts.values():
            if front.gone:
                front.set = None if self._tx.run("drop_lane", (front.lane, front.rank)) else self._late()
            if front.set is not None:
                self._write(front, *front.set)
        moment = None if self._stuck is None else self._gates.wait(self._stuck)
        (until,) = self._tx.all("first_until", (self._group,))[0]
        return min((at for at in (moment, until) if at is not None), default=None)

    def _write(self, front: Front, parked_on: str, until: int | None) -> None:
        self._tx.run("set_lane", (front.seq, parked_on, until, front.lane, front.rank))

    def _late(self) -> tuple[str, int | None]:
        """A lane with expired jobs only stands in line, for they are good to whoever has an earlier clock: unless there
        are so many that they hide the others."""
        return (LATE, self._tx.now + LATER) if self.looked >= self._patience else ("", None)
