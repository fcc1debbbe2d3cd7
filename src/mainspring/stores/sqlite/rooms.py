"""The rooms of a transaction: one set of rules for claims, guests and whoever looks.

A room is read when it is first asked for; what is taken from it holds for its transaction, and starts are
written by :meth:`Rooms.write`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from .rates import Pace, Window
from .room import ANY, Places, Room, Size
from .running import Running
from .switches import Guard

if TYPE_CHECKING:
    from .tx import Tx


def limit_of(bucket: str) -> str:
    """The limit whose size a bucket has; names of limits have no ``=``."""
    return bucket.partition("=")[0]


_KINDS: Mapping[str, type[Room]] = {each.kind: each for each in (Places, Window, Pace, Guard)}
_UNKNOWN = Size("", ANY, 0, 0)


class Rooms:
    """By the name of their bucket."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.running = Running(tx)
        self._sizes: dict[str, Size | None] = {}
        self._rooms: dict[str, Room] = {}
        self.held: set[str] = set()
        """Queues in which a gate had no room for a job."""

    def size_of(self, bucket: str) -> Size | None:
        """What the bucket's limit lets through; None if the limit is not known."""
        name = limit_of(bucket)
        if name not in self._sizes:
            found = self._tx.first("limit", (name,))
            self._sizes[name] = None if found is None else Size(*found)
        return self._sizes[name]

    def __getitem__(self, bucket: str) -> Room:
        room = self._rooms.get(bucket)
        if room is None:
            size = self.size_of(bucket) or _UNKNOWN
            room = self._rooms[bucket] = _KINDS.get(size.kind, Room)(self._tx, bucket, size, self.running)
        return room

    def stuck(self, buckets: Iterable[str], costs: Mapping[str, int]) -> list[str]:
        """Those in which a job that costs so much has no room."""
        return [name for name in buckets if not self[name].fits(costs.get(name, 1))]

    def moment(self, stuck: Iterable[str], costs: Mapping[str, int]) -> tuple[str, int | None]:
        """On which of these to wait, and when to look again: the last, or one of which nobody knows."""
        last, at = "", -1
        for name in stuck:
            room = self[name]
            moment = room.when(costs.get(name, 1))
            if moment is None:
                return name, room.ends
            if moment > at:
                last, at = name, moment
        return last, at

    def take(self, buckets: Iterable[str], costs: Mapping[str, int], n: int = 1) -> None:
        """So many starts that cost as much each."""
        for name in buckets:
            self[name].take(costs.get(name, 1), n)

    def write(self) -> None:
        for room in self._rooms.values():
            room.write()
