"""The connection of an event loop: concurrent calls share it.

What callers send within one step of the loop goes out in one write, and replies come in the order
of the calls, so a hundred producers cost a few system calls. A caller that gives up leaves its
place in the line behind, and the reply that comes for it is dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, cast

from .address import Address
from .resp import MORE, Broken, ServerError, check, check_greeting, new_reader, pack, tend

SOON = 3.0
"""Seconds to connect and to be greeted."""
PATIENCE = 1.0
"""Seconds after which a connection that said nothing to a caller who gave up is not trusted any more."""


class Wire(asyncio.Protocol):
    """One connection. ``confirm`` are the commands that follow the calls which ask for it, once for all of a write."""

    def __init__(self, loop: asyncio.AbstractEventLoop, confirm: tuple[bytes, ...] = ()) -> None:
        self.lost = False
        self.told: set[str] = set()
        """Scripts whose text was said on it."""
        self._why: Exception = Broken("there is no connection")
        self._loop = loop
        self._confirm = confirm
        self._confirming: list[asyncio.Future[Any]] = []
        self._transport: asyncio.Transport | None = None
        self._reader = new_reader()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._unsent: list[bytes] = []
        self._heard = 0.0
        self._over: asyncio.Future[None] = loop.create_future()

    # ---- calls --------------------------------------------------------------------------------

    def send(self, packed: bytes) -> asyncio.Future[Any]:
        """Send a packed command with the next write; the future has the reply, which may be a ``ServerError``."""
        if self.lost:
            raise self._why
        future: asyncio.Future[Any] = self._loop.create_future()
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(packed)
        self._waiting.append(future)
        return future

    async def call(self, packed: bytes) -> Any:
        """Send a command and wait for the reply."""
        sent = self._loop.time()
        try:
            return check(await self.send(packed))
        except asyncio.CancelledError:
            self._gave_up(sent)
            raise

    async def call_confirmed(self, packed: bytes) -> tuple[Any, list[Any]]:
        """The same; beside the reply come those of ``confirm``, which all calls of this write share."""
        sent = self._loop.time()
        try:
            future = self.send(packed)
            if not self._confirming:
                self._confirming = [self._loop.create_future() for _ in self._confirm]
            shared = self._confirming
            reply = check(await future)
            return reply, [check(await asyncio.shield(each)) for each in shared]
        except asyncio.CancelledError:
            self._gave_up(sent)
            raise

    def _gave_up(self, sent: float) -> None:
        """The second whose reply is still to come: what they repeat would stand behind replies that nobody reads."""
        silent = self._heard <= sent and self._loop.time() - sent >= PATIENCE
        if silent or sum(each.done() for each in self._waiting) > 1:
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
        """Send what is to be sent, and end."""
        if self._unsent:
            self._flush()
        self.abort()
        await self._over

    def abort(self) -> None:
        """Throw the connection away; who waits on it is told."""
        self._lose(Broken("the connection was given up"))

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
                future.exception()  # heard: some of these nobody waits for any more

    # ---- asyncio's side -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        tend(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not MORE:
                if not self._waiting:
                    self._lose(reply if isinstance(reply, ServerError) else Broken("the server speaks unasked"))
                    return
                future = self._waiting.popleft()
                if not future.done():
                    future.set_result(reply)
        except Broken as error:
            self._lose(error)  # not the protocol

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(Broken(f"the connection was lost: {exc or 'the server closed it'}"))
        if not self._over.done():
            self._over.set_result(None)


async def connect(address: Address, confirm: tuple[bytes, ...] = ()) -> Wire:
    """A connection of the running loop, greeted. Others may wait for it: it is there soon or given up."""
    try:
        async with asyncio.timeout(SOON):
            return await _connect(address, confirm)
    except TimeoutError as late:
        raise Broken(f"no connection in {SOON:g} s") from late


async def _connect(address: Address, confirm: tuple[bytes, ...]) -> Wire:
    loop = asyncio.get_running_loop()
    context = address.context()
    wire = Wire(loop, confirm)
    if address.path:
        await loop.create_unix_connection(lambda: wire, address.path)
    else:
        name = address.host if context is not None else None
        await loop.create_connection(lambda: wire, address.host, address.port, ssl=context, server_hostname=name)
    try:
        replies = [wire.send(pack(words)) for words in address.greeting()]
        check_greeting([await reply for reply in replies])
    except BaseException:
        wire.abort()
        raise
    return wire
