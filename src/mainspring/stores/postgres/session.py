"""Connections: a small pool for the event loop, a few blocking ones for ``enqueue_now``.

One call is one statement in its own transaction, so one round trip. Where the transaction must say something of its
own (behind a pooler, or when several statements belong together) it is pipelined: still one round trip, and nothing is
left behind in a session that a pooler shares.

Nothing is repeated by a driver; here a call is repeated only when the server said that it rolled back
(a deadlock among dependents).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, LiteralString, NamedTuple

import psycopg
from psycopg import errors as pg
from psycopg.rows import TupleRow, tuple_row

from mainspring.errors import StoreUnavailable
from mainspring.stores.postgres.links import CALL_LIMIT, AsyncLink, Link, parameters, session_options
from mainspring.stores.postgres.pool import Pool, alive

Params = Mapping[str, Any]
Rows = list[TupleRow]
Step = tuple[LiteralString, Params]

TRIES = 3
_ASK = "select current_setting('synchronous_commit'), current_setting('fsync')"
_SAY = "select set_config('statement_timeout', %(limit)s, true), set_config('synchronous_commit', %(commit)s, true)"
_ROLLED_BACK = (pg.DeadlockDetected, pg.SerializationFailure)
_inherited: list[Any] = []  # handles of the process that forked us: to close or collect one would end its session


class Server(NamedTuple):
    """What the server was found to be set to."""

    commit: str
    """``synchronous_commit`` of our transactions."""
    fsync: bool


class Sessions:
    """The connections of one store object; a forked child gets its own."""

    def __init__(self, url: str, *, relaxed: bool, pooler: bool, pool_size: int) -> None:
        self._url = url
        self._given = parameters(url)
        self._how: dict[str, Any] = {"prepare_threshold": None if pooler else 5, "autocommit": True}
        self._relaxed = relaxed
        self._pooler = pooler
        self._size = pool_size
        self._server: Server | None = None
        self._pid = os.getpid()
        self._pool: Pool | None = None
        self._idle: list[Link] = []
        self._begin_places()
        self._lock = threading.Lock()
        self._closed = False

    # ---- async ------------------------------------------------------------------------------------

    async def open(self) -> bool:
        """Connect once; what is found out about the server is in :attr:`server`. False: it was open."""
        self._after_fork()
        self._closed = False
        if self._pool is not None:
            return False
        pool = Pool(self.connect, self._size)
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
        for link in idle:
            link.close()

    @property
    def server(self) -> Server:
        if self._server is None:
            raise closed(self._url)
        return self._server

    @property
    def patient(self) -> bool:
        """Whether commits wait, for the disk at least."""
        return self.server.commit != "off"

    async def connect(self) -> AsyncLink:
        """A connection of its own: nothing else is said on it."""
        link = await AsyncLink.connect(**self._told(), **self._how)
        try:
            await link.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
            if self._server is None and (late := self._learn(await (await link.execute(_ASK)).fetchone())):
                await link.execute(late)
        except BaseException:
            link.drop()
            raise
        return link

    async def rows(
        self, sql: LiteralString, params: Params, *, prepare: bool | None = None, first: Sequence[Step] = ()
    ) -> Rows:
        """Run one statement, read committed, in a transaction of its own or with those that come ``first``."""
        for left in reversed(range(TRIES)):
            try:
                return await self._once(sql, params, prepare, first)
            except _ROLLED_BACK:
                if not left:
                    raise
        raise AssertionError("unreachable")

    async def _once(self, sql: LiteralString, params: Params, prepare: bool | None, first: Sequence[Step]) -> Rows:
        self._after_fork()
        pool = self._pool
        if pool is None:
            raise closed(self._url)
        link = await pool.take()
        try:
            if not (self._pooler or first):
                return await (await link.execute(sql, params, prepare=prepare, binary=True)).fetchall()
            async with link.pipeline(), link.transaction():
                for step, given in (*self._preamble(), *first):
                    await link.execute(step, given, binary=True)
                cursor = await link.execute(sql, params, prepare=prepare, binary=True)
            return await cursor.fetchall()
        except pg.ReadOnlySqlTransaction:
            link.drop()  # the primary is somewhere else by now: a new connection may find it
            raise
        finally:
            pool.give(link)

    # ---- blocking ---------------------------------------------------------------------------------

    def rows_now(self, sql: LiteralString, params: Params, *, may_wait: bool = False) -> Rows:
        """The same on a blocking connection of our own, in the calling thread.

        ``may_wait``: somebody's open transaction can hold it up; one connection is left for those that wait for nobody.
        """
        for left in reversed(range(TRIES)):
            try:
                with self._borrowed(may_wait) as link:
                    return self._once_now(link, sql, params)
            except _ROLLED_BACK:
                if not left:
                    raise
        raise AssertionError("unreachable")

    def _once_now(self, link: Link, sql: LiteralString, params: Params) -> Rows:
        try:
            if not self._pooler:
                return run(link, sql, params)
            with link.pipeline(), link.transaction():
                for step, given in self._preamble():
                    link.execute(step, given, binary=True)
                return run(link, sql, params)
        except pg.ReadOnlySqlTransaction:
            link.close()  # as above
            raise

    @contextmanager
    def _borrowed(self, may_wait: bool) -> Iterator[Link]:
        self._after_fork()
        if self._closed:
            raise closed(self._url)
        until = time.monotonic() + CALL_LIMIT
        with ExitStack() as held:
            for places in (self._patient, self._places) if may_wait else (self._places,):
                if not places.acquire(timeout=max(0.0, until - time.monotonic())):
                    raise StoreUnavailable(f"all {self._size} connections of this process are in use", url=self._url)
                held.callback(places.release)
            link = self._idle_link() or self._connect_now(until)
            held.callback(self._give_back, link)
            link.until = until
            yield link

    def _idle_link(self) -> Link | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                link = self._idle.pop()
            if alive(link):
                return link
            link.close()

    def _connect_now(self, until: float) -> Link:
        link = Link.connect(**self._told(), **self._how)
        try:
            link.until = until
            link.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            if self._server is None and (late := self._learn(link.execute(_ASK).fetchone())):
                link.execute(late)
        except BaseException:
            link.close()
            raise
        return link

    def _give_back(self, link: Link) -> None:
        good = not link.closed and link.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with self._lock:
            keep = good and not self._closed
            if keep:
                self._idle.append(link)
        if not keep:
            link.close()

    # ---- both -------------------------------------------------------------------------------------

    def _told(self) -> dict[str, Any]:
        """What to connect with. Until the server was asked, commits go by its own default."""
        if self._pooler:
            return self._given
        more = {} if self._server is None else {"synchronous_commit": self._server.commit}
        return session_options(self._given, **more)

    def _preamble(self) -> Sequence[Step]:
        if not self._pooler:
            return ()
        return ((_SAY, {"limit": f"{CALL_LIMIT:g}s", "commit": self.server.commit}),)

    def _learn(self, row: TupleRow | None) -> LiteralString | None:
        """Note what the server is set to; returns what the session that asked must be told."""
        commit, fsync = row or ("on", "on")
        wanted = "off" if self._relaxed else "on" if commit == "off" else commit
        self._server = Server(wanted, fsync == "on")
        if wanted == commit or self._pooler:
            return None
        return "set synchronous_commit = off" if self._relaxed else "set synchronous_commit = on"

    def _after_fork(self) -> None:
        if self._pid != os.getpid():
            _inherited.append((self._pool, self._idle, self._lock, self._places, self._patient))
            self._pid, self._pool, self._idle = os.getpid(), None, []
            self._lock = threading.Lock()
            self._begin_places()

    def _begin_places(self) -> None:
        self._places = threading.BoundedSemaphore(self._size)
        self._patient = threading.BoundedSemaphore(max(1, self._size - 1))


def run(connection: psycopg.Connection[Any], sql: LiteralString, params: Params) -> Rows:
    """Run a statement whatever rows and cursors the connection's owner prefers."""
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        return cursor.execute(sql, params, binary=True).fetchall()


def closed(url: str) -> StoreUnavailable:
    return StoreUnavailable("the store is not open", url=url, hint="Call open() first; after close() open it again.")
