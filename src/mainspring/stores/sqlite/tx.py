"""One transaction, as the engine's functions see it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .seqs import Seqs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mainspring.breakers.records import BreakerRow

    from .settings import Kept
    from .statements import Statements
    from .switches import Told

Row = tuple[Any, ...]

KEPT_ATTEMPTS = 100
HAS_CHILDREN = 1
ORDERED = 2
LIMITED = 4
FOLLOWED_SUCCESS = 8
FOLLOWED_END = 16
"""Follow-up jobs for another end than success; the only flag that a plain success need not look at."""
GATED = 32
"""It is limited, and by gates only: while it runs, its own row is its place in them."""
OF_PART = 64
"""It is of a part: others may wait for its success."""


class Tx:
    """A cursor inside an open transaction, the store's time in it, and whom to wake after the commit."""

    __slots__ = ("cursor", "freed", "news", "now", "queues", "seqs", "sql", "told", "woken")

    def __init__(self, cursor: sqlite3.Cursor, sql: Statements, now: int, seqs: Seqs | None = None) -> None:
        self.cursor = cursor
        self.seqs = seqs if seqs is not None else Seqs()
        self.sql = sql
        self.now = now
        self.woken: set[str] = set()
        self.freed: set[str] = set()
        """Buckets that somebody has left."""
        self.queues: dict[str, Kept] | None = None
        """What is stored of queues, once somebody has asked."""
        self.told: dict[str, Told] = {}
        """What breakers are to hear."""
        self.news: list[BreakerRow] = []
        """Breakers that have opened, closed, or are probed from now on."""

    def run(self, name: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> int:
        """Run a statement that returns nothing; how many rows it changed."""
        return self.cursor.execute(self.sql[name], values).rowcount

    def all(self, name: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        return self.cursor.execute(self.sql[name], values).fetchall()

    def first(self, name: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Row | None:
        rows = self.cursor.execute(self.sql[name], values).fetchall()
        return rows[0] if rows else None

    def sized(self, name: str, n: int, values: Sequence[Any]) -> sqlite3.Cursor:
        return self.cursor.execute(self.sql.sized(name, n), values)

    def next_seq(self, n: int = 1) -> int:
        """Take ``n`` places in the store's order; the first of them."""
        return self.seqs.take(self.cursor, self.sql["next_seq"], n)

    def add_attempt(self, row: Row) -> None:
        """Keep an ended attempt; of each job the newest ones."""
        self.run("add_attempt", row)
        self.run("forget_attempts", (row[0], KEPT_ATTEMPTS))

    @contextmanager
    def savepoint(self, name: str) -> Iterator[None]:
        """What happens inside is undone if it raises."""
        execute = self.cursor.execute
        execute("savepoint " + name)
        try:
            yield
        except BaseException:
            self.seqs.forget()
            if self.cursor.connection.in_transaction:  # a full disk rolls everything back by itself
                execute("rollback to " + name)
                execute("release " + name)
            raise
        execute("release " + name)
