"""Whether the file behind an open connection is still the one at its path.

A file that was deleted or replaced lives on behind its open handles: old processes would go on
writing where new ones never look. Looked at once a second at most.
"""

# SQLite names files by text, and this is asked at every commit:
# ruff: noqa: PTH116

from __future__ import annotations

import os
import time

from mainspring.common.clock import LONG_AGO

_LOOK = 1.0


class Identity:
    """Of one database file; ``path`` None: in memory, always itself."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._known: tuple[int, int] | None = None
        self._looked = LONG_AGO

    def note(self) -> None:
        """A connection was opened just now."""
        self._known = self._look()

    def changed(self) -> bool:
        """The path names another file than the one that was opened, or none."""
        now = time.monotonic()
        if self._path is None or now - self._looked < _LOOK:
            return False
        self._looked = now
        return self._known is not None and self._look() != self._known

    def _look(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path or "")
        except OSError:
            return None
        return found.st_dev, found.st_ino
