"""Connections: a small pool for the event loop, a few blocking ones for ``enqueue_now``.

One call is one statement in its own transaction, so one round trip. Where the transaction must say
something of its own (the database defaults to another isolation level, commits need not wait for the
disk) it is pipelined: still one round trip, and nothing is left behind in a session that a pooler shares.

Nothing is repeated by a driver; here a call is repeated only when the server said that it rolled back
(a deadlock among dependents).
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow, tuple_row
from psycopg_pool import AsyncConnectionPool

from mainspring.errors import BadUrl, StoreUnavailable

Params = Mapping[str, Any]
Rows = list[TupleRow]

TRIES = 3
_DEFAULT_LEVEL = "show default_transaction_isolation"
_RELAX = "set local synchronous_commit = off"
_ROLLED_BACK = (pg.DeadlockDetected, pg.SerializationFailure)
_inherited: list[Any] = []  # handles of the process that forked us: to close or collect one would end its session


class Sessions:
    """The connections of one store object; a forked child gets its own."""

    def __init__(self, url: str, *, relaxed: bool, prepare_threshold: int | None, pool_size: int) -> None:
        try:
            conninfo_to_dict(url)
        except psycopg.ProgrammingError as why:
            raise BadUrl(url, str(why).strip()) from None
        self._url = url
        self._settings: dict[str, Any] = {"prepare_threshold": prepare_threshold, "autocommit": True}
        self._relaxed = relaxed
        self._pool_size = pool_size
        self._plain = False
        self._pid = os.getpid()
        self._pool: AsyncConnectionPool | None = None
        self._idle: list[psycopg.Connection] = []
        self._lock = threading.Lock()
        self._closed = False

    # ---- async ------------------------------------------------------------------------------------

    async def open(self) -> None:
        self._after_fork()
        self._closed = False
        if self._pool is not None:
            return
        async with await self.connect() as connection:  # a pool hides why it cannot connect
            row = await (await connection.execute(_DEFAULT_LEVEL)).fetchone()
        self._plain = _is_plain(row, self._relaxed)
        self._pool = AsyncConnectionPool(
            self._url, kwargs=self._settings, min_size=1, max_size=self._pool_size, timeout=5.0, open=False,
            configure=_configure, check=_still_there, name="mainspring",
        )  # fmt: skip
        await self._pool.open()

    async def close(self) -> None:
        self._after_fork()
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    async def connect(self) -> psycopg.AsyncConnection:
        """A connection outside the pool."""
        return await psycopg.AsyncConnection.connect(self._url, **self._settings)

    async def rows(self, sql: LiteralString, params: Params, *, prepare: bool | None = None) -> Rows:
        """Run one statement in one transaction of its own, read committed."""
        for left in reversed(range(TRIES)):
            try:
                return await self._once(sql, params, prepare)
            except _ROLLED_BACK:
                if not left:
                    raise
        raise AssertionError("unreachable")

    async def _once(self, sql: LiteralString, params: Params, prepare: bool | None) -> Rows:
        self._after_fork()
        if self._pool is None:
            raise closed(self._url)
        async with self._pool.connection() as connection:
            if self._plain:
                return await (await connection.execute(sql, params, prepare=prepare, binary=True)).fetchall()
            async with connection.pipeline():
                async with connection.transaction():
                    if self._relaxed:
                        await connection.execute(_RELAX)
                    cursor = await connection.execute(sql, params, prepare=prepare, binary=True)
                return await cursor.fetchall()

    # ---- blocking ---------------------------------------------------------------------------------

    def rows_now(self, sql: LiteralString, params: Params) -> Rows:
        """The same on a blocking connection of our own, in the calling thread."""
        for left in reversed(range(TRIES)):
            try:
                with self._borrowed() as connection:
                    return self._once_now(connection, sql, params)
            except _ROLLED_BACK:
                if not left:
                    raise
        raise AssertionError("unreachable")

    def _once_now(self, connection: psycopg.Connection, sql: LiteralString, params: Params) -> Rows:
        if self._plain:
            return run(connection, sql, params)
        with connection.pipeline(), connection.transaction():
            if self._relaxed:
                connection.execute(_RELAX)
            return run(connection, sql, params)

    @contextmanager
    def _borrowed(self) -> Iterator[psycopg.Connection]:
        self._after_fork()
        if self._closed:
            raise closed(self._url)
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None or not _alive(connection):
            connection = psycopg.connect(self._url, **self._settings)
            self._plain = _is_plain(connection.execute(_DEFAULT_LEVEL).fetchone(), self._relaxed)
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        try:
            yield connection
        finally:
            with self._lock:
                keep = not (connection.closed or self._closed) and len(self._idle) < self._pool_size
                if keep:
                    self._idle.append(connection)
            if not keep:
                connection.close()

    def _after_fork(self) -> None:
        if self._pid != os.getpid():
            _inherited.append((self._pool, self._idle, self._lock))
            self._pid, self._pool, self._idle, self._lock = os.getpid(), None, [], threading.Lock()


def run(connection: psycopg.Connection[Any], sql: LiteralString, params: Params) -> Rows:
    """Run a statement whatever rows and cursors the connection's owner prefers."""
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        return cursor.execute(sql, params, binary=True).fetchall()


def closed(url: str) -> StoreUnavailable:
    return StoreUnavailable("the store is not open", url=url, hint="Call open() first; after close() open it again.")


def _is_plain(default_level: TupleRow | None, relaxed: bool) -> bool:
    return not relaxed and default_level == ("read committed",)


async def _configure(connection: psycopg.AsyncConnection[Any]) -> None:
    await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)


def _alive(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    # An idle connection with something to read was most often ended by the server: ask the socket, not the server.
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    try:
        while poll.poll(0):  # first the farewell, then the end of the stream
            connection.pgconn.consume_input()
    except psycopg.OperationalError:
        return False
    return connection.pgconn.status == psycopg.pq.ConnStatus.OK


async def _still_there(connection: psycopg.AsyncConnection[Any]) -> None:
    if not _alive(connection):
        raise psycopg.OperationalError("the server ended the connection")
