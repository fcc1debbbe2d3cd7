"""The SQL of this engine, read from ``sql/*.sql``.

A file holds the statements of one feature, each under a line ``-- name: word``. ``{t}`` is replaced by the table
prefix and ``{UPPER_CASE}`` by the constant of that name, once, when the texts are loaded. ``{rows:4}`` becomes a list
of ``(?, ?, ?, ?)`` and ``{marks}`` a list of ``?``: both are filled in for the number of rows of a call.
Other names in lower case are filled in by the module that runs the statement.
"""

# SQLite names files by text, and some of this is asked at every commit:
# ruff: noqa: PTH118, PTH120, PTH123, PTH208

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache

from mainspring.stores.shared.constants import fill as fill_constants

from .constants import BLOBS, FILLED

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_ROWS = re.compile(r"\{rows:(\d+)\}")
FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "sql")
LARGEST = 128
"""The most rows that one statement takes."""


class SqliteStatements(dict[str, str]):
    """Statements by name, for one table prefix."""

    def __init__(self, prefix: str) -> None:
        super().__init__((name, text.replace("{t}", prefix)) for name, text in _load_texts().items())
        self.prefix = prefix
        self._sized: dict[tuple[str, int], str] = {}

    def sized(self, name: str, n: int) -> str:
        """The statement for ``n`` rows. Use sizes from :func:`sizes`, so that SQLite prepares few texts."""
        text = self._sized.get((name, n))
        if text is None:
            text = self._sized[name, n] = fill_rows(self[name], n)
        return text


def fill_rows(text: str, n: int) -> str:
    """``text`` with its row lists written out for ``n`` rows."""
    text = _ROWS.sub(lambda found: ", ".join(["(" + ", ".join("?" * int(found[1])) + ")"] * n), text)
    return text.replace("{marks}", ", ".join("?" * n))


def sizes(n: int) -> Iterator[tuple[int, int]]:
    """Cut ``n`` rows into (start, end) slices whose lengths are powers of two, so that few texts serve every ``n``."""
    start, size = 0, LARGEST
    while start < n:
        while size > n - start:
            size //= 2
        yield start, start + size
        start += size


@cache
def _load_texts() -> dict[str, str]:
    found: dict[str, str] = {}
    for file in sorted(os.listdir(FOLDER)):
        if file.endswith(".sql"):
            with open(os.path.join(FOLDER, file), encoding="utf-8") as opened:
                _, *parts = _NAME.split(_fill_names(opened.read()))
            found.update(zip(parts[::2], (part.strip() for part in parts[1::2]), strict=True))
    return found


def _fill_names(text: str) -> str:
    for name, value in BLOBS.items():
        text = text.replace(f"{{{name}}}", f"x'{value.hex()}'")
    return fill_constants(text, FILLED)
