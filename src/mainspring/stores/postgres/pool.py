"""The connections of one event loop: made when needed, kept while good, never more than a few."""

from __future__ import annotations

import asyncio
import random
import select
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress

import psycopg

from mainspring.stores.postgres.links import AsyncLink, Link

_IDLE = 60.0
_PATIENCE = 8.0
_BUSY = ("too many clients", "remaining connection slots", "too many connections", "starting up", "temporarily unavail")


class Pool:
    """At most ``size`` connections. One that is given back in a doubtful state is closed."""

    def __init__(self, connect: Callable[[], Awaitable[AsyncLink]], size: int) -> None:
        self._connect = connect
        self._size = size
        self._made = 0
        self._idle: deque[tuple[float, AsyncLink]] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._life: AsyncGenerator[None] | None = None

    async def take(self) -> AsyncLink:
        """A connection for one call; give it back."""
        while True:
            if self._closed:
                raise psycopg.OperationalError("the pool is closed")
            if self._life is None:
                self._life = self._live()
                with suppress(StopIteration):  # it has come to its yield
                    self._life.__anext__().send(None)
            while self._idle:
                _, link = self._idle.pop()
                if alive(link):
                    return link
                self._forget(link)
            if self._made < self._size:
                return await self._make()
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            try:
                await place
            except asyncio.CancelledError:
                if place.done() and not place.cancelled():
                    self._next()  # our turn came and we are gone: it is somebody else's
                raise

    def give(self, link: AsyncLink) -> None:
        """The call is over, however it ended."""
        if self._closed or link.closed or link.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            self._forget(link)
        else:
            self._idle.append((time.monotonic(), link))
            while len(self._idle) > 1 and self._idle[0][0] < time.monotonic() - _IDLE:
                self._forget(self._idle.popleft()[1])
        self._next()

    def close(self) -> None:
        self._closed = True
        self._let_go()
        if self._life is not None:
            with suppress(StopIteration):  # it waits for nothing
                self._life.aclose().send(None)
        while self._waiting:
            self._next()

    async def _live(self) -> AsyncGenerator[None]:
        """A loop closes its async generators before it ends: a user's ``asyncio.run()`` leaves no connection behind."""
        try:
            yield
        finally:
            self._life = None
            self._let_go()

    def _let_go(self) -> None:
        while self._idle:
            self._forget(self._idle.popleft()[1])

    async def _make(self) -> AsyncLink:
        self._made += 1
        try:
            return await patiently(self._connect)
        except BaseException:
            self._made -= 1
            self._next()
            raise

    def _forget(self, link: AsyncLink) -> None:
        self._made -= 1
        link.drop()

    def _next(self) -> None:
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return


async def patiently(connect: Callable[[], Awaitable[AsyncLink]]) -> AsyncLink:
    """Connect; a server that has no place at this moment is asked again, each client in its own rhythm."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return await connect()
        except psycopg.OperationalError as error:
            if not any(word in str(error) for word in _BUSY) or time.monotonic() > until:
                raise
        await asyncio.sleep(random.uniform(0.1, 1.0))


def alive(link: Link | AsyncLink) -> bool:
    """Whether an idle connection is still there: asked of the socket, not of the server."""
    if link.closed:
        return False
    poll = select.poll()
    poll.register(link.fileno(), select.POLLIN)
    try:
        while poll.poll(0):  # first the farewell, then the end of the stream
            link.pgconn.consume_input()
    except psycopg.OperationalError:
        return False
    return link.pgconn.status == psycopg.pq.ConnStatus.OK
