"""Places in the store's order, taken from the file's counter in blocks.

A block lasts for many transactions as long as no other connection writes in between, which
``data_version`` tells: else the next writer's block would lie behind what is left of ours. So order
is exact, and a producer that is alone with its file does not write the counter's page at each commit.
Places that are never used are gaps, and gaps mean nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

BLOCK = 1000


class Seqs:
    """Of one writing connection. Inside a transaction only."""

    __slots__ = ("_end", "_next", "_version")

    def __init__(self) -> None:
        self._next = 0
        self._end = 0
        self._version: int | None = None

    def take(self, cursor: sqlite3.Cursor, advance: str, n: int) -> int:
        """The first of ``n`` places in a row. ``advance`` is the statement that moves the counter."""
        (version,) = cursor.execute("pragma data_version").fetchall()[0]
        if version != self._version or self._next + n > self._end:
            size = max(n, BLOCK)
            (last,) = cursor.execute(advance, (size,)).fetchall()[0]
            self._next, self._end, self._version = last - size + 1, last + 1, version
        first = self._next
        self._next += n
        return first

    def forget(self) -> None:
        """Something was rolled back, perhaps the counter too: begin anew."""
        self._version = None
