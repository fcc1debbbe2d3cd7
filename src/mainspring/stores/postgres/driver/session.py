"""Connections: a small pool for the event loop, a few blocking connections for ``enqueue_now``.

One call is one statement in its own transaction, so one round trip. Where the transaction must set something first
(behind a pooler), or where several statements belong together, the statements are pipelined: still one round trip, and
no setting is left in a session that a pooler shares.

The driver never repeats a statement. Here a call is repeated only if the server has rolled it back (a deadlock among
dependents).
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, LiteralString, NamedTuple, TypeVar

import psycopg
from psycopg import errors as pg
from psycopg.rows import TupleRow, tuple_row

from mainspring.errors import StoreUnavailable
from mainspring.stores.postgres.driver.connections import (
    CALL_LIMIT,
    AsyncServerConnection,
    ServerConnection,
    add_session_settings,
    parse_url,
)
from mainspring.stores.postgres.driver.errors import misconfigured
from mainspring.stores.postgres.driver.native import PREPARE_AFTER, NativeRows, NativeStep
from mainspring.stores.postgres.driver.pool import ConnectionPool, is_alive
from mainspring.stores.shared.deadlines import blocking_deadline

R = TypeVar("R")

Params = Mapping[str, Any]
Rows = list[TupleRow]
Step = tuple[LiteralString, Params]

TRIES = 3
"""How often a call that the server rolls back is tried."""
_LOOK_AGAIN = 0.05
"""Seconds after which a blocking call that waits for a connection looks again, if it was not woken."""
_READ_SETTINGS = "select current_setting('synchronous_commit'), current_setting('fsync')"
_SET_LOCAL = (
    "select set_config('statement_timeout', %(limit)s, true), set_config('synchronous_commit', %(commit)s, true)"
)
_ROLLED_BACK = (pg.DeadlockDetected, pg.SerializationFailure)
_inherited: list[Any] = []
"""Handles of the process that forked this one: to close or collect such a handle would end the parent's session."""


class ServerSettings(NamedTuple):
    """What the server was found to be set to."""

    commit: str
    """``synchronous_commit`` of our transactions."""
    fsync: bool


class Sessions:
    """The connections of one store object; a forked child makes its own."""

    def __init__(self, url: str, *, relaxed: bool, pooler: bool, pool_size: int) -> None:
        self._url = url
        self._given = parse_url(url)
        self._how: dict[str, Any] = {"prepare_threshold": None if pooler else PREPARE_AFTER, "autocommit": True}
        self._relaxed = relaxed
        self._pooler = pooler
        self._size = pool_size
        self._server: ServerSettings | None = None
        self._pid = os.getpid()
        self._pool: ConnectionPool | None = None
        self._idle: list[ServerConnection] = []
        self._make_places()
        self._lock = threading.Lock()
        self._closed = False

    # ---- async ------------------------------------------------------------------------------------

    async def open(self) -> bool:
        """Connect once and read :attr:`server`. False if the sessions were open already."""
        self._after_fork()
        self._closed = False
        if self._pool is not None:
            return False
        pool = ConnectionPool(self.connect, self._size)
        pool.give(await pool.take())
        self._pool = pool
        return True

    async def close(self) -> None:
        self._after_fork()
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @property
    def server(self) -> ServerSettings:
        if self._server is None:
            raise not_open(self._url)
        return self._server

    @property
    def takes_native(self) -> bool:
        """Whether a session is ours alone, so that a statement needs no transaction with settings around it."""
        return not self._pooler

    @property
    def waits_for_disk(self) -> bool:
        """Whether commits wait, at least for the disk."""
        return self.server.commit != "off"

    async def connect(self) -> AsyncServerConnection:
        """A connection that the pool does not share."""
        try:
            connection = await AsyncServerConnection.connect(**self._connect_parameters(), **self._how)
        except psycopg.OperationalError as error:
            raise self._explain_refusal(error) from error
        try:
            await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
            if self._server is None:
                found = await (await connection.execute(_READ_SETTINGS)).fetchone()
                if correction := self._note_settings(found):
                    await connection.execute(correction)
        except BaseException:
            connection.drop()
            raise
        return connection

    async def rows(
        self, sql: LiteralString, params: Params, *, prepare: bool | None = None, first: Sequence[Step] = ()
    ) -> Rows:
        """Run one statement, read committed, in a transaction of its own or after the statements of ``first``."""

        async def run(connection: AsyncServerConnection) -> Rows:
            if not (self._pooler or first):
                return await (await connection.execute(sql, params, prepare=prepare, binary=True)).fetchall()
            async with connection.pipeline(), connection.transaction():
                for step, given in (*self._preamble(), *first):
                    await connection.execute(step, given, binary=True)
                cursor = await connection.execute(sql, params, prepare=prepare, binary=True)
            return await cursor.fetchall()

        return await self._repeated(run)

    async def native_rows(self, step: NativeStep) -> NativeRows:
        """Run a native statement in a transaction of its own; not behind a pooler."""
        return await self._repeated(lambda connection: connection.run_native(step))

    async def _repeated(self, run: Callable[[AsyncServerConnection], Awaitable[R]]) -> R:
        for left in reversed(range(TRIES)):
            try:
                return await self._once(run)
            except _ROLLED_BACK:
                if not left:
                    raise
        raise AssertionError("unreachable")

    async def _once(self, run: Callable[[AsyncServerConnection], Awaitable[R]]) -> R:
        self._after_fork()
        pool = self._pool
        if pool is None:
            raise not_open(self._url)
        connection = await pool.take()
        try:
            return await run(connection)
        except pg.ReadOnlySqlTransaction:
            connection.drop()  # another server is the primary now: a new connection may find it
            raise
        finally:
            pool.give(connection)

    # ---- blocking ---------------------------------------------------------------------------------

    def rows_now(self, sql: LiteralString, params: Params, *, may_wait: bool = False) -> Rows:
        """Run one statement on a blocking connection of our own, in the calling thread.

        ``may_wait``: an open transaction of another program can hold the statement up. One connection is left for
        statements that cannot be held up.
        """

        def run(connection: ServerConnection) -> Rows:
            if not self._pooler:
                return run_on(connection, sql, params)
            with connection.pipeline(), connection.transaction():
                for step, given in self._preamble():
                    connection.execute(step, given, binary=True)
                return run_on(connection, sql, params)

        return self._repeated_now(run, may_wait)

    def native_rows_now(self, step: NativeStep) -> NativeRows:
        """Run a native statement that cannot be held up, as :meth:`rows_now` does; not behind a pooler."""
        return self._repeated_now(lambda connection: connection.run_native(step), may_wait=False)

    def _repeated_now(self, run: Callable[[ServerConnection], R], may_wait: bool) -> R:
        for left in reversed(range(TRIES)):
            try:
                with self._borrow(may_wait) as connection:
                    return self._once_now(connection, run)
            except _ROLLED_BACK:
                if not left:
                    raise
        raise AssertionError("unreachable")

    def _once_now(self, connection: ServerConnection, run: Callable[[ServerConnection], R]) -> R:
        try:
            return run(connection)
        except pg.ReadOnlySqlTransaction:
            connection.close()  # as in _once
            raise

    @contextmanager
    def _borrow(self, may_wait: bool) -> Iterator[ServerConnection]:
        self._after_fork()
        if self._closed:
            raise not_open(self._url)
        until = blocking_deadline.after(CALL_LIMIT)
        kinds = (self._waiting_calls, self._all_calls) if may_wait else (self._all_calls,)
        held: list[CallPlace] = []
        try:
            for places in kinds:
                if (place := places.take(max(0.0, until - time.monotonic()))) is None:
                    raise StoreUnavailable(f"all {self._size} connections of this process are in use", url=self._url)
                held.append(place)
            place = None
            connection = self._take_idle() or self._connect_now(until)
            try:
                connection.until = until
                yield connection
            finally:
                self._give_back(connection)
        finally:
            held.clear()
            for places in kinds:
                places.wake()

    def _take_idle(self) -> ServerConnection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if is_alive(connection):
                return connection
            connection.close()

    def _connect_now(self, until: float) -> ServerConnection:
        try:
            connection = ServerConnection.connect(**self._connect_parameters(), **self._how)
        except psycopg.OperationalError as error:
            raise self._explain_refusal(error) from error
        try:
            connection.until = until
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            if self._server is None and (
                correction := self._note_settings(connection.execute(_READ_SETTINGS).fetchone())
            ):
                connection.execute(correction)
        except BaseException:
            connection.close()
            raise
        return connection

    def _give_back(self, connection: ServerConnection) -> None:
        idle = psycopg.pq.TransactionStatus.IDLE
        good = not connection.closed and connection.pgconn.transaction_status == idle
        with self._lock:
            keep = good and not self._closed
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()

    # ---- both -------------------------------------------------------------------------------------

    def _connect_parameters(self) -> dict[str, Any]:
        """The parameters of a new connection. Until the settings of the server are known, its default for commits
        holds."""
        if self._pooler:
            return self._given
        more = {} if self._server is None else {"synchronous_commit": self._server.commit}
        return add_session_settings(self._given, **more)

    def _explain_refusal(self, error: psycopg.OperationalError) -> Exception:
        """The error to raise: after a first connection the URL is known to be right, and waiting may help."""
        return (misconfigured(error, self._url) if self._server is None else None) or error

    def _preamble(self) -> Sequence[Step]:
        if not self._pooler:
            return ()
        return ((_SET_LOCAL, {"limit": f"{CALL_LIMIT:g}s", "commit": self.server.commit}),)

    def _note_settings(self, row: TupleRow | None) -> LiteralString | None:
        """Note what the server is set to; returns the statement that corrects the session which asked."""
        commit, fsync = row or ("on", "on")
        wanted = "off" if self._relaxed else "on" if commit == "off" else commit
        self._server = ServerSettings(wanted, fsync == "on")
        if wanted == commit or self._pooler:
            return None
        return "set synchronous_commit = off" if self._relaxed else "set synchronous_commit = on"

    def _after_fork(self) -> None:
        if self._pid != os.getpid():
            _inherited.append((self._pool, self._idle, self._lock, self._all_calls, self._waiting_calls))
            self._pid, self._pool, self._idle = os.getpid(), None, []
            self._lock = threading.Lock()
            self._make_places()

    def _make_places(self) -> None:
        self._all_calls = CallPlaces(self._size)
        self._waiting_calls = CallPlaces(max(1, self._size - 1))


class CallPlaces:
    """How many blocking calls may run at once; the calls that wait are served in their order.

    A time limit or a signal handler may raise an exception in the calling thread at any bytecode, also between the
    moment when a call has its place and the moment when it is noted. So a place is an object, and it is free again when
    the object is gone: the interpreter ensures that, whatever ends the call. (A semaphore would lose a place, and its
    lock could stay acquired.)
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._places: dict[weakref.ref[CallPlace], None] = {}  # a dict keeps the order

    @property
    def free(self) -> int:
        """How many places are free."""
        return max(0, self._size - len(self._places))

    def take(self, seconds: float) -> CallPlace | None:
        """A place to keep as long as the call runs; None if none is free within this time."""
        place = CallPlace()
        self._places[weakref.ref(place, self._places.__delitem__)] = None  # no Python code runs when it is gone
        if len(self._places) <= self._size:
            return place
        woken: SimpleQueue[None] = SimpleQueue()
        place.woken = woken
        mine, until = weakref.ref(place), time.monotonic() + seconds
        while mine not in list(self._places)[: self._size]:
            if (left := until - time.monotonic()) <= 0:
                return None
            with suppress(Empty):
                woken.get(timeout=min(left, _LOOK_AGAIN))
        return place

    def wake(self) -> None:
        """A place was freed: let the call that gets it look. Without it, that call looks a moment later."""
        if len(self._places) >= self._size:
            for mine in list(self._places)[: self._size]:
                if (place := mine()) is not None and place.woken is not None:
                    place.woken.put(None)


class CallPlace:
    """The place of one blocking call."""

    __slots__ = ("__weakref__", "woken")

    def __init__(self) -> None:
        self.woken: SimpleQueue[None] | None = None
        """Set for a call that waits."""


def run_on(connection: psycopg.Connection[Any], sql: LiteralString, params: Params) -> Rows:
    """Run a statement with plain tuples, whatever rows and cursors the owner of the connection has chosen."""
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        return cursor.execute(sql, params, binary=True).fetchall()


def not_open(url: str) -> StoreUnavailable:
    return StoreUnavailable("the store is not open", url=url, hint="Call open() first; after close() open it again.")
