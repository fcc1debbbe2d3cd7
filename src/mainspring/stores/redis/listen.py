"""Wake-ups: a listener blocks on the wake lists of its queues, on a connection of its own.

Scripts put tokens into the list of a queue, one for each listener at most (``lua/_wake.lua``). A
token may be lost with the connection that took it: whoever listens polls as well.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import msgspec

from .connection import Connection
from .errors import translate
from .resp import Broken, check, pack
from .wire import Wire

REFRESH = 20.0
"""Seconds after which a listener says again that it is there; it counts for three times as long."""

BLOCK = 10.0
"""Seconds that the server holds one call back. Its empty answer shows that the connection is alive."""

LATE = 5.0
"""Seconds beyond that after which the connection is taken for dead."""

_pack_names = msgspec.msgpack.Encoder().encode


class RedisListener:
    """See :class:`mainspring.stores.base.Listener`."""

    def __init__(self, connection: Connection, wire: Wire, name: str, queues: Sequence[str], wakes: list[str]) -> None:
        self._connection = connection
        self._wire = wire
        self._name = name
        self._queues = _pack_names(list(queues))
        self._call = pack(("BLPOP", *wakes, BLOCK))
        self._asked: asyncio.Future[Any] | None = None
        self._asked_at = 0.0
        self._refreshed = asyncio.get_running_loop().time()
        self._closed = False

    async def wait(self, timeout: float) -> bool:
        try:
            return await self._wait(timeout)
        except Exception as error:
            self._wire.abort()
            raise translate(error, self._connection.url) or error from error

    async def _wait(self, timeout: float) -> bool:
        """Whoever stops waiting leaves the call open; its answer is there for the next who waits."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        await self._refresh(loop.time())
        while not self._closed:
            if self._asked is None:
                self._asked, self._asked_at = self._wire.send(self._call), loop.time()
            dead_at = self._asked_at + BLOCK + LATE
            await asyncio.wait([self._asked], timeout=max(0.0, min(until, dead_at) - loop.time()))
            if self._asked.done():
                token, self._asked = check(self._asked.result()), None
                if token is not None:
                    return True
            elif loop.time() >= dead_at:
                raise Broken("the connection for wake-ups gives no answer")
            if loop.time() >= until:
                return False
        return False

    async def _refresh(self, now: float) -> None:
        if now - self._refreshed >= REFRESH:
            self._refreshed = now
            await self._connection.run("listen", self._name, self._queues)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._wire.abort()
        self._connection.send_off("unlisten", self._name, self._queues)


async def listen(connection: Connection, tag: str, worker: str, queues: Sequence[str]) -> RedisListener:
    """Tell the scripts that somebody listens, and connect. ``worker`` is there for people who look at the keys."""
    name = f"{worker}:{os.getpid()}:{os.urandom(4).hex()}"
    wire = await connection.own_wire()
    listener = RedisListener(connection, wire, name, queues, [f"{tag}wake:{queue}" for queue in queues])
    try:
        await connection.run("listen", name, _pack_names(list(queues)))
    except BaseException:
        listener.close()
        raise
    return listener


async def notify(connection: Connection, queues: Sequence[str]) -> None:
    """Wake those who listen to these queues."""
    await connection.run("notify", _pack_names(list(queues)))
