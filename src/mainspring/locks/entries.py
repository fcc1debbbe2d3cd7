"""The open ``with`` blocks and ``acquire`` calls of one lock object, found again by thread or task."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress

from mainspring.locks.hold import CancelScope, Hold


class SkippedEntry:
    """A ``with`` block whose lock was busy (``on_busy="skip"``)."""

    __slots__ = ("asked", "entries", "open", "over")

    def __init__(self, entries: LockEntries) -> None:
        self.entries = entries
        self.asked = False
        """Whether the block checked that it does not hold the lock."""
        self.over = False
        self.open = True


class HeldEntry:
    """A ``with`` block or an ``acquire`` call that holds its lock. With a scope, a lost lock cancels the block."""

    __slots__ = ("entries", "hold", "open", "over", "scope")

    def __init__(self, entries: LockEntries, hold: Hold, scope: CancelScope | None, *, block: bool) -> None:
        self.entries = entries
        self.hold = hold
        self.scope = scope
        self.over = False
        """This entry does not hold the lock any more."""
        self.open = block
        """This entry is a ``with`` block that has not ended."""


LockEntry = HeldEntry | SkippedEntry

_entries: contextvars.ContextVar[tuple[LockEntry, ...]] = contextvars.ContextVar("mainspring_locks", default=())


class LockEntries:
    """The entries of one lock object."""

    def __init__(self) -> None:
        self.last: HeldEntry | None = None
        """The newest entry that held the lock, also after its end."""
        self._guard = threading.Lock()
        self._all: list[LockEntry] = []

    def add(self, hold: Hold, scope: CancelScope | None = None, *, block: bool = False) -> None:
        """Add an entry that holds the lock."""
        self.last = HeldEntry(self, hold, scope, block=block)
        self._push(self.last)

    def skip(self) -> None:
        """Add a block that runs without the lock."""
        self._push(SkippedEntry(self))

    def current(self) -> LockEntry | None:
        """Return the entry of this thread or task, or of the task that started it; otherwise the newest of all."""
        return self._newest(lambda entry: not entry.over)

    def end_block(self) -> LockEntry | None:
        """End the current ``with`` block and return its entry; None if it has ended already."""
        entry = self._newest(lambda entry: entry.open)
        if entry is not None:
            entry.open = False
            self.close(entry)
        return entry

    def close(self, entry: LockEntry) -> None:
        """Mark an entry as over: it does not hold the lock any more."""
        entry.over = True
        if not entry.open:
            with self._guard, suppress(ValueError):
                self._all.remove(entry)

    def is_own(self) -> bool:
        """Whether the current thread or task holds the lock."""
        with self._guard:
            return any(isinstance(each, HeldEntry) and not each.over and each.hold.is_own for each in self._all)

    def _newest(self, fits: Callable[[LockEntry], bool]) -> LockEntry | None:
        mine = [each for each in _entries.get() if each.entries is self and fits(each)]
        with self._guard:
            found = mine or [each for each in self._all if fits(each)]
        return found[-1] if found else None

    def _push(self, entry: LockEntry) -> None:
        with self._guard:
            self._all.append(entry)
        _entries.set((*(each for each in _entries.get() if each.open or not each.over), entry))
