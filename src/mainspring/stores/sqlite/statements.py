"""The SQL of this engine, read from ``sql/*.sql``.

A file holds one statement or a small family, each under a line ``-- name: word``. ``{t}`` stands
for the table prefix, ``{rows:4}`` for a list of ``(?, ?, ?, ?)`` and ``{marks}`` for a list of
``?``: those two are filled in for the number of rows that a call has.
"""

# SQLite names files by text, and some of this is asked at every commit:
# ruff: noqa: PTH118, PTH120, PTH123, PTH208

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_ROWS = re.compile(r"\{rows:(\d+)\}")
LARGEST = 128


class Statements(dict[str, str]):
    """Statements by name, for one table prefix."""

    def __init__(self, prefix: str) -> None:
        super().__init__((name, text.replace("{t}", prefix)) for name, text in _texts().items())
        self.prefix = prefix
        self._sized: dict[tuple[str, int], str] = {}

    def sized(self, name: str, n: int) -> str:
        """The statement with room for ``n`` rows. Use sizes from :func:`sizes`: each text is prepared once."""
        text = self._sized.get((name, n))
        if text is None:
            text = self._sized[name, n] = fill(self[name], n)
        return text


def fill(text: str, n: int) -> str:
    """``text`` with its row lists written out for ``n`` rows."""
    text = _ROWS.sub(lambda found: ", ".join(["(" + ", ".join("?" * int(found[1])) + ")"] * n), text)
    return text.replace("{marks}", ", ".join("?" * n))


def sizes(n: int) -> Iterator[tuple[int, int]]:
    """``n`` cut into (start, end) slices whose lengths are powers of two, so that few texts serve every ``n``."""
    start, size = 0, LARGEST
    while start < n:
        while size > n - start:
            size //= 2
        yield start, start + size
        start += size


@cache
def _texts() -> dict[str, str]:
    folder = os.path.join(os.path.dirname(__file__), "sql")
    found: dict[str, str] = {}
    for file in sorted(os.listdir(folder)):
        if file.endswith(".sql"):
            with open(os.path.join(folder, file), encoding="utf-8") as opened:
                _, *parts = _NAME.split(opened.read())
            found.update(zip(parts[::2], (part.strip() for part in parts[1::2]), strict=True))
    return found
