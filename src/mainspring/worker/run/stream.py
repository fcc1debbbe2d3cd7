"""What one attempt sends to the readers of its job, on its way to the store.

An item has a place: the first that an attempt sends stands at 1. The next attempt writes over the
places of the one before, so a reader that sees each place once sees a repeat only once.
"""

from __future__ import annotations

import itertools
from collections import deque
from uuid import UUID

from mainspring.errors import StreamFull

ITEMS_LIMIT = 10_000
BYTES_LIMIT = 8_000_000


class Stream:
    """The items of one attempt. Written by its body, from any of its threads, and emptied by the reporter."""

    __slots__ = ("_bytes", "_places", "waiting")

    def __init__(self) -> None:
        self._places = itertools.count(1)
        self._bytes = 0
        self.waiting: deque[tuple[int, bytes]] = deque()
        """Items that the store does not have yet, by place."""

    def add(self, job: bytes, item: bytes) -> bool:
        """Give the item its place; True if nothing waited before it. ``StreamFull`` beyond the limits."""
        if self._bytes + len(item) > BYTES_LIMIT:
            raise StreamFull(UUID(bytes=job), f"{BYTES_LIMIT // 1_000_000} MB")
        place = next(self._places)
        if place > ITEMS_LIMIT:
            raise StreamFull(UUID(bytes=job), f"{ITEMS_LIMIT:,} items")
        self._bytes += len(item)
        first = not self.waiting
        self.waiting.append((place, item))
        return first

    def take(self, most: int) -> tuple[tuple[int, bytes], ...]:
        """The next items, of about ``most`` bytes together and at least one if there is one."""
        taken: list[tuple[int, bytes]] = []
        while self.waiting and most > 0:
            taken.append(self.waiting.popleft())
            most -= len(taken[-1][1])
        return tuple(taken)

    def put_back(self, items: tuple[tuple[int, bytes], ...]) -> None:
        """They were not stored: they are the next to be taken."""
        self.waiting.extendleft(reversed(items))
