"""Who is inside of a lock: one entry for each ``with`` and each acquire, found again by thread or task."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress

from mainspring.locks.hold import Hold, Scope


class Skipped:
    """A ``with`` whose lock was busy, and whether anybody asked."""

    __slots__ = ("asked", "open", "over", "room")

    def __init__(self, room: Entries) -> None:
        self.room = room
        self.asked = False
        self.over = False
        self.open = True


class Inside:
    """One that holds its lock; with a scope, what runs inside is cancelled when that is lost."""

    __slots__ = ("hold", "open", "over", "room", "scope")

    def __init__(self, room: Entries, hold: Hold, scope: Scope | None, *, block: bool) -> None:
        self.room = room
        self.hold = hold
        self.scope = scope
        self.over = False
        """The lock is not held by it any more."""
        self.open = block
        """It is a ``with`` that has not been left."""


Entry = Inside | Skipped

_entries: contextvars.ContextVar[tuple[Entry, ...]] = contextvars.ContextVar("mainspring_locks", default=())


class Entries:
    """Those of one lock object."""

    def __init__(self) -> None:
        self.last: Inside | None = None
        """The newest of all that held the lock, also when it is over."""
        self._guard = threading.Lock()
        self._all: list[Entry] = []

    def add(self, hold: Hold, scope: Scope | None = None, *, block: bool = False) -> None:
        self.last = Inside(self, hold, scope, block=block)
        self._push(self.last)

    def skip(self) -> None:
        self._push(Skipped(self))

    def current(self) -> Entry | None:
        """That of this thread or task, or of the one that it came from; else the newest of all."""
        return self._newest(lambda entry: not entry.over)

    def left(self) -> Entry | None:
        """The ``with`` that is left now. None if somebody left it already."""
        entry = self._newest(lambda entry: entry.open)
        if entry is not None:
            entry.open = False
            self.close(entry)
        return entry

    def close(self, entry: Entry) -> None:
        """It holds the lock no more."""
        entry.over = True
        if not entry.open:
            with self._guard, suppress(ValueError):
                self._all.remove(entry)

    def is_own(self) -> bool:
        """Whether the very thread or task that asks holds the lock."""
        with self._guard:
            return any(isinstance(each, Inside) and not each.over and each.hold.is_own for each in self._all)

    def _newest(self, fits: Callable[[Entry], bool]) -> Entry | None:
        mine = [each for each in _entries.get() if each.room is self and fits(each)]
        with self._guard:
            found = mine or [each for each in self._all if fits(each)]
        return found[-1] if found else None

    def _push(self, entry: Entry) -> None:
        with self._guard:
            self._all.append(entry)
        _entries.set((*(each for each in _entries.get() if each.open or not each.over), entry))
