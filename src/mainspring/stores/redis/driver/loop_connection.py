"""The connection of an event loop: concurrent calls share it.

All commands that callers send within one step of the loop go out in one write, and replies come in the order of the
commands, so a hundred producers cost a few system calls. The reply to a caller that was cancelled is dropped when it
comes, and the other callers notice nothing.

A caller is also cancelled when its time is over. It will call again, and the new call must not wait behind a connection
that died silently. So a connection that owed a reply for a second when a caller was cancelled is *retired*: it takes no
new calls, the callers that still wait for their replies keep it, and the last of them closes it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, cast

from .address import RedisAddress
from .resp import (
    INCOMPLETE,
    ConnectionBroken,
    ServerError,
    check,
    check_greeting,
    new_reader,
    pack,
    set_socket_options,
)

CONNECT_TIMEOUT = 3.0
"""Seconds to connect and to get the replies to the first commands."""
SILENCE = 1.0
"""Seconds. A connection that received nothing for this long, while a call waited for a reply, is retired."""


class LoopConnection(asyncio.Protocol):
    """One connection. ``confirm``: the commands that follow calls that ask for confirmation, once for each write."""

    def __init__(self, loop: asyncio.AbstractEventLoop, confirm: tuple[bytes, ...] = ()) -> None:
        self.lost = False
        self.retired = False
        """It takes no new calls: use another connection."""
        self.known_scripts: set[str] = set()
        """Scripts whose whole text was sent on this connection."""
        self._why: Exception = ConnectionBroken("there is no connection")
        self._loop = loop
        self._confirm = confirm
        self._confirming: list[asyncio.Future[Any]] = []
        self._transport: asyncio.Transport | None = None
        self._reader = new_reader()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._unsent: list[bytes] = []
        self._silent_since = 0.0
        """When the last bytes came, or when the first call after that was sent."""
        self._over: asyncio.Future[None] = loop.create_future()

    # ---- calls --------------------------------------------------------------------------------

    def send(self, packed: bytes) -> asyncio.Future[Any]:
        """Send a packed command with the next write. The result of the future is the reply, or a ``ServerError``."""
        if self.lost:
            raise self._why
        future: asyncio.Future[Any] = self._loop.create_future()
        if not self._waiting:
            self._silent_since = self._loop.time()
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(packed)
        self._waiting.append(future)
        return future

    async def call(self, packed: bytes) -> Any:
        """Send a command and wait for the reply."""
        try:
            return check(await self.send(packed))
        except BaseException:  # a time limit of a job arrives in place of a cancellation
            self._retire_if_silent()
            raise

    async def call_confirmed(self, packed: bytes) -> tuple[Any, list[Any]]:
        """Send a command; return its reply and the replies to ``confirm``, which all calls of one write share."""
        try:
            future = self.send(packed)
            if not self._confirming:
                self._confirming = [self._loop.create_future() for _ in self._confirm]
            shared = self._confirming
            reply = check(await future)
            return reply, [check(await asyncio.shield(each)) for each in shared]
        except BaseException:
            self._retire_if_silent()
            raise

    def _retire_if_silent(self) -> None:
        """A caller was cancelled, or its call failed."""
        if self._waiting and self._loop.time() - self._silent_since >= SILENCE:
            self.retired = True
        self._close_if_over()

    def _close_if_over(self) -> None:
        """Close a retired connection for which no caller waits."""
        if self.retired and all(each.done() for each in (*self._waiting, *self._confirming)):
            self.abort()

    def _flush(self) -> None:
        if not self._unsent:
            return  # sent by close() already
        if self._confirming:
            self._unsent += self._confirm
            self._waiting += self._confirming
            self._confirming = []
        data = self._unsent[0] if len(self._unsent) == 1 else b"".join(self._unsent)
        self._unsent = []
        if self._transport is not None and not self.lost:
            self._transport.write(data)

    # ---- life ---------------------------------------------------------------------------------

    async def close(self) -> None:
        """Send the commands that are still unsent, then close."""
        if self._unsent:
            self._flush()
        self.abort()
        await self._over

    def abort(self) -> None:
        """Drop the connection. All calls that wait for a reply fail."""
        self._lose(ConnectionBroken("the connection was closed by the client"))

    def _lose(self, error: Exception) -> None:
        if not self.lost:
            self.lost, self._why = True, error
        if self._transport is not None:
            self._transport.abort()
        waiting, self._waiting = [*self._waiting, *self._confirming], deque()
        self._confirming = []
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # retrieved here: no task waits for some of these futures any more

    # ---- called by asyncio --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        set_socket_options(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        self._silent_since = self._loop.time()
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not INCOMPLETE:
                if not self._waiting:
                    unasked = ConnectionBroken("the server sent a reply that no call waits for")
                    self._lose(reply if isinstance(reply, ServerError) else unasked)
                    return
                future = self._waiting.popleft()
                if not future.done():
                    future.set_result(reply)
        except ConnectionBroken as error:
            self._lose(error)  # these bytes are not the protocol
        if self.retired:
            self._close_if_over()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(ConnectionBroken(f"the connection was lost: {exc or 'the server closed it'}"))
        if not self._over.done():
            self._over.set_result(None)


async def connect(address: RedisAddress, confirm: tuple[bytes, ...] = ()) -> LoopConnection:
    """A new connection of the running loop. Raises ``ConnectionBroken`` after ``CONNECT_TIMEOUT``: callers wait for
    it."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            return await _connect(address, confirm)
    except TimeoutError as late:
        raise ConnectionBroken(f"no connection in {CONNECT_TIMEOUT:g} s") from late
    except ConnectionBroken:
        raise
    except OSError as error:  # this runs in a task of its own: no other code can interrupt it
        raise ConnectionBroken(str(error)) from error


async def _connect(address: RedisAddress, confirm: tuple[bytes, ...]) -> LoopConnection:
    loop = asyncio.get_running_loop()
    context = address.context()
    connection = LoopConnection(loop, confirm)
    if address.path:
        await loop.create_unix_connection(lambda: connection, address.path)
    else:
        name = address.host if context is not None else None
        await loop.create_connection(lambda: connection, address.host, address.port, ssl=context, server_hostname=name)
    try:
        replies = [connection.send(pack(words)) for words in address.greeting()]
        check_greeting([await reply for reply in replies])
    except BaseException:
        connection.abort()
        raise
    return connection
