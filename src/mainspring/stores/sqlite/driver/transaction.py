"""One transaction as the functions of the engine see it, and the ``seq`` values that it takes.

``seq`` is the order of the store: the time at which a job becomes ready, made unique. Values are taken from a counter
in the file, which follows the clock, in blocks of 100. A block lasts for many transactions as long as no other
connection writes in between, which ``pragma data_version`` shows: else the block of the other writer would lie behind
the rest of ours. So the order is exact, and a producer that is alone with its file does not write the page of the
counter at each commit. Values that are never used leave gaps, and gaps mean nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mainspring.stores.shared.constants import ATTEMPTS_KEPT, SEQ_BEHIND

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mainspring.stores.sqlite.queues import StoredQueue

    from .statements import SqliteStatements

Row = tuple[Any, ...]
SEQ_BLOCK = 100
"""So few that the counter stays behind the clock while many processes take a block in turn."""


class SeqBlock:
    """The unused ``seq`` values of one writing connection. Use it inside a transaction only."""

    __slots__ = ("_end", "_next", "_version")

    def __init__(self) -> None:
        self._next = 0
        self._end = 0
        self._version: int | None = None

    def take(self, cursor: sqlite3.Cursor, advance: str, n: int, now: int) -> int:
        """Take ``n`` values in a row and return the first. ``advance`` is the statement that moves the counter."""
        (version,) = cursor.execute("pragma data_version").fetchall()[0]
        if version != self._version or self._next + n > self._end or self._next < now - SEQ_BEHIND:
            size = max(n, SEQ_BLOCK)
            (last,) = cursor.execute(advance, (now, size)).fetchall()[0]
            self._next, self._end, self._version = last - size + 1, last + 1, version
        first = self._next
        self._next += n
        return first

    def forget(self) -> None:
        """Drop the block after a rollback: the counter may have been rolled back too."""
        self._version = None


class Tx:
    """A cursor inside an open transaction, the time of the store in it, and what is left to do at its end."""

    __slots__ = (
        "cursor", "now", "released", "seqs", "sql", "stored_queues", "woken",
    )  # fmt: skip

    def __init__(self, cursor: sqlite3.Cursor, sql: SqliteStatements, now: int, seqs: SeqBlock | None = None) -> None:
        self.cursor = cursor
        self.seqs = seqs if seqs is not None else SeqBlock()
        self.sql = sql
        self.now = now
        self.woken: set[str] = set()
        """Queues whose listeners are woken after the commit."""
        self.released: set[str] = set()
        """Names of buckets that a job or a holder has left."""
        self.stored_queues: dict[str, StoredQueue] | None = None
        """The rows of all queues, once they were read."""

    def run(self, name: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> int:
        """Run a statement without a result; return how many rows it changed."""
        return self.cursor.execute(self.sql[name], values).rowcount

    def all(self, name: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        return self.cursor.execute(self.sql[name], values).fetchall()

    def first(self, name: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Row | None:
        rows = self.cursor.execute(self.sql[name], values).fetchall()
        return rows[0] if rows else None

    def sized(self, name: str, n: int, values: Sequence[Any]) -> sqlite3.Cursor:
        return self.cursor.execute(self.sql.sized(name, n), values)

    def next_seq(self, n: int = 1) -> int:
        """Take ``n`` values of the order of the store and return the first."""
        return self.seqs.take(self.cursor, self.sql["next_seq"], n, self.now)

    def add_attempt(self, row: Row) -> None:
        """Keep an ended attempt, and of its job the newest 100 attempts."""
        self.run("add_attempt", row)
        self.run("drop_old_attempts", (row[0], ATTEMPTS_KEPT))

    @contextmanager
    def savepoint(self, name: str) -> Iterator[None]:
        """Undo what happens inside if it raises."""
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
