"""The connections of one event loop: made when needed, kept while they work, never more than ``size``."""

from __future__ import annotations

import asyncio
import select
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress

import psycopg

from mainspring.common.pause import jittered
from mainspring.stores.postgres.driver.connections import AsyncServerConnection, ServerConnection

_IDLE = 60.0
"""Seconds after which an idle connection is closed, except the last one."""
_CONNECT_TRIES = 8.0
"""Seconds for which a connect is repeated while the server has no free connection."""
_BUSY = ("too many clients", "remaining connection slots", "too many connections", "starting up", "temporarily unavail")


class ConnectionPool:
    """At most ``size`` connections. A connection that comes back in the middle of a transaction is closed."""

    def __init__(self, connect: Callable[[], Awaitable[AsyncServerConnection]], size: int) -> None:
        self._connect = connect
        self._size = size
        self._made = 0
        self._idle: deque[tuple[float, AsyncServerConnection]] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._life: AsyncGenerator[None] | None = None

    async def take(self) -> AsyncServerConnection:
        """A connection for one call; the caller must :meth:`give` it back."""
        while True:
            if self._closed:
                raise psycopg.OperationalError("the pool is closed")
            if self._life is None:
                self._life = self._live()
                with suppress(StopIteration):  # the generator has reached its yield
                    self._life.__anext__().send(None)
            while self._idle:
                _, connection = self._idle.pop()
                if is_alive(connection):
                    return connection
                self._forget(connection)
            if self._made < self._size:
                return await self._make()
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            try:
                await place
            except BaseException:
                if place.done() and not place.cancelled():
                    self._next()  # this caller was woken and is cancelled: wake the next one
                raise

    def give(self, connection: AsyncServerConnection) -> None:
        """The call is over, however it ended."""
        if (
            self._closed
            or connection.closed
            or connection.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE
        ):
            self._forget(connection)
        else:
            self._idle.append((time.monotonic(), connection))
            while len(self._idle) > 1 and self._idle[0][0] < time.monotonic() - _IDLE:
                self._forget(self._idle.popleft()[1])
        self._next()

    def close(self) -> None:
        self._closed = True
        self._close_idle()
        if self._life is not None:
            with suppress(StopIteration):  # the generator awaits nothing
                self._life.aclose().send(None)
        while self._waiting:
            self._next()

    async def _live(self) -> AsyncGenerator[None]:
        """A loop closes its async generators before it ends: a user's ``asyncio.run()`` leaves no connection behind."""
        try:
            yield
        finally:
            self._life = None
            self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            self._forget(self._idle.popleft()[1])

    async def _make(self) -> AsyncServerConnection:
        self._made += 1
        try:
            return await connect_patiently(self._connect)
        except BaseException:
            self._made -= 1
            self._next()
            raise

    def _forget(self, connection: AsyncServerConnection) -> None:
        self._made -= 1
        connection.drop()

    def _next(self) -> None:
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return


async def connect_patiently(connect: Callable[[], Awaitable[AsyncServerConnection]]) -> AsyncServerConnection:
    """Connect; if the server has no free connection at this moment, try again after a random pause."""
    until = time.monotonic() + _CONNECT_TRIES
    while True:
        try:
            return await connect()
        except psycopg.OperationalError as error:
            if not any(word in str(error) for word in _BUSY) or time.monotonic() > until:
                raise
        await asyncio.sleep(jittered(1.0, least=0.1))


def is_alive(connection: ServerConnection | AsyncServerConnection) -> bool:
    """Whether an idle connection still works: checked at the socket, without a round trip."""
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    try:
        while poll.poll(0):  # first the server's last message, then the end of the stream
            connection.pgconn.consume_input()
    except psycopg.OperationalError:
        return False
    return connection.pgconn.status == psycopg.pq.ConnStatus.OK
