"""The line of the fair keys of a queue: each lane by its virtual time.

Self-clocked fair queuing. A lane has a vtime for its next claim. The lane with the least is served, and its vtime
grows by one over its weight; the clock of the queue is the vtime that was served last. A lane that appears is put one
step behind the clock, and nothing of one that is empty has to be remembered: what it was served lies before the clock.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Protocol

from mainspring.jobs.lanes import is_limited, weight_of

from .keyed import BELOW, Front, KeyedLine
from .parking import BELOW_ALL, open_due
from .picking import Head, Key, Line, Picked, Picker, head_of
from .places import queue_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .rooms import Rooms
    from .tx import Tx


class Clock:
    """How far the virtual time of a queue has come, by priority."""

    def __init__(self, tx: Tx, queue: str) -> None:
        self._tx = tx
        self._queue = queue
        self._vtimes: dict[int, float] = {}
        self._moved: set[int] = set()

    def charge(self, front: Front) -> float:
        """The next vtime of a lane that is served in its turn."""
        assert front.vtime is not None
        now = self._at(front.rank)
        if front.vtime > now:
            self._vtimes[front.rank] = now = front.vtime
            self._moved.add(front.rank)
        return now + 1 / weight_of(front.lane)

    def _at(self, rank: int) -> float:
        if rank not in self._vtimes:
            found = self._tx.first("clock", (self._queue, rank))
            self._vtimes[rank] = found[0] if found else 0.0
        return self._vtimes[rank]

    def write(self) -> None:
        for rank in self._moved:
            self._tx.run("set_clock", (self._queue, rank, self._vtimes[rank]))


class FairGroup(KeyedLine):
    """The lanes of one group."""

    _FIRST = (BELOW_ALL, -1.0, BELOW, "")

    def __init__(
        self, tx: Tx, rooms: Rooms, group: str, gates: tuple[str, ...], n: int, picker: Picker, clock: Clock
    ) -> None:
        super().__init__(tx, rooms, group, gates, n, picker)
        self.limited = is_limited(group)
        self._clock = clock
        self._ahead: dict[tuple[str, int], int] = {}
        """How many jobs of a lane were read at a time, where there may be more."""

    def _place(self, front: Front) -> Key:
        assert front.vtime is not None
        return (front.seq,) if self._aged else (front.rank, front.vtime, front.seq)

    def _read_on(self, last: tuple[Any, ...]) -> None:
        rows = self._tx.all("fair_lanes", (self._group, *last, self._size))
        for row in rows:
            self._meet(*row)
        self._last = (rows[-1][1], rows[-1][4], rows[-1][2], rows[-1][0]) if len(rows) == self._size else None

    def _read(self, front: Front) -> list[Head]:
        """No more than its part of what is wanted is likely to be."""
        return self._read_behind(front, BELOW, max(1, self._n // len(self._fronts)))

    def _read_behind(self, front: Front, seq: int, n: int) -> list[Head]:
        n = min([n, *(self._rooms[name].most() for name in front.buckets)]) + 1
        values = (front.lane, self._tx.now, n, -front.rank, seq)
        rows = self._tx.all("next_heads" + self._costs(front), values)
        self._ahead[front.lane, front.rank] = n if len(rows) == n else 0
        return [head_of(row) for row in reversed(rows)]

    def _take(self, front: Front, head: Head) -> Picked:
        ahead = self._ahead[front.lane, front.rank]
        if ahead and front.heads == [head]:
            front.heads = [*self._read_behind(front, head.seq, 2 * ahead), head]
        if self._aged:
            assert front.vtime is not None
            front.vtime += 1 / weight_of(front.lane)
        else:
            front.vtime = self._clock.charge(front)
        return super()._take(front, head)

    def _write(self, front: Front, parked_on: str, until: int | None) -> None:
        self._tx.run("set_fair_lane", (front.seq, parked_on, until, front.vtime, front.lane, front.rank))


class FairLine:
    """All lanes of fair keys of a queue. See :class:`.picking.Line`."""

    limited = False

    def __init__(self, groups: list[FairGroup], clock: Clock, picker: Picker) -> None:
        self._groups = groups
        self._clock = clock
        self._picker = picker
        self._first = groups[0]
        self._aged = False
        self.looked = 0

    def begin(self, n: int, *, aged: bool) -> None:
        self._aged = aged
        for group in self._groups:
            group.begin(n, aged=aged)

    def key(self) -> Key | None:
        best = None
        for group in self._groups:
            if self._is_closed(group) or group.looked >= self._picker.patience:
                continue
            key = group.key()
            if key is not None and (best is None or key < best):
                best, self._first = key, group
        return best if best is None or self._aged else (best[0], best[2])

    def pop(self) -> Picked | None:
        if self._is_closed(self._first):  # by what another line gave since it was asked for its key
            return None
        picked = self._first.pop()
        self.looked = max(self.looked, self._first.looked)
        return picked

    def _is_closed(self, group: FairGroup) -> bool:
        return group.limited and self._picker.limited <= 0

    def is_roomy(self) -> bool:
        return False

    def end(self) -> int | None:
        moments = [group.end() for group in self._groups]
        self._clock.write()
        return min((at for at in moments if at is not None), default=None)


class Named(Protocol):
    """A group of lanes with keys, and the limits that hold it back as a whole."""

    @property
    def name(self) -> str: ...
    @property
    def gates(self) -> tuple[str, ...]: ...


def fair_lines(tx: Tx, rooms: Rooms, groups: Iterable[Named], n: int, picker: Picker) -> list[Line]:
    """One line for each queue."""
    by_queue: defaultdict[str, list[Named]] = defaultdict(list)
    for group in groups:
        by_queue[queue_of(group.name)].append(group)
    lines: list[Line] = []
    for queue, own in by_queue.items():
        clock = Clock(tx, queue)
        for group in own:
            open_due(tx, group.name)
        lines.append(
            FairLine([FairGroup(tx, rooms, each.name, each.gates, n, picker, clock) for each in own], clock, picker)
        )
    return lines
