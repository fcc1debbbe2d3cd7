"""Wake-ups: a listener blocks on the wake lists of its queues, on a connection of its own.

Scripts put tokens into the wake list of a queue, at most one for each listener (``lua/_wakeups.lua``). A token is lost
if the connection breaks that took it: a listener polls as well.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import msgspec

from .client import RedisClient
from .errors import translate
from .loop_connection import LoopConnection
from .resp import ConnectionBroken, check, pack

REFRESH = 20.0
"""Seconds between the reports of a listener that it listens. It counts for three times as long."""

BLOCK = 10.0
"""Seconds for which the server blocks one call. An empty reply shows that the connection is alive."""

LATE = 5.0
"""Seconds after ``BLOCK`` without a reply, after which the connection counts as broken."""

_pack_names = msgspec.msgpack.Encoder().encode


class RedisListener:
    """See :class:`mainspring.stores.base.Listener`."""

    def __init__(
        self, client: RedisClient, connection: LoopConnection, name: str, queues: Sequence[str], wakes: list[str]
    ) -> None:
        self._client = client
        self._connection = connection
        self._name = name
        self._queues = _pack_names(list(queues))
        self._call = pack(("BLPOP", *wakes, BLOCK))
        self._reply: asyncio.Future[Any] | None = None
        self._sent_at = 0.0
        self._refreshed = asyncio.get_running_loop().time()
        self._closed = False
        self.is_always_woken = True
        """Without a connection, ``wait`` raises."""

    async def wait(self, timeout: float) -> bool:
        try:
            return await self._wait(timeout)
        except Exception as error:
            self._connection.abort()
            raise translate(error, self._client.url) or error from error

    async def _wait(self, timeout: float) -> bool:
        """A wait that ends leaves its call open; the next wait gets the reply."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        await self._refresh(loop.time())
        while not self._closed:
            if self._reply is None:
                self._reply, self._sent_at = self._connection.send(self._call), loop.time()
            dead_at = self._sent_at + BLOCK + LATE
            await asyncio.wait([self._reply], timeout=max(0.0, min(until, dead_at) - loop.time()))
            if self._reply.done():
                token, self._reply = check(self._reply.result()), None
                if token is not None:
                    return True
            elif loop.time() >= dead_at:
                raise ConnectionBroken("the connection for wake-ups gives no reply")
            if loop.time() >= until:
                return False
        return False

    async def _refresh(self, now: float) -> None:
        if now - self._refreshed >= REFRESH:
            self._refreshed = now
            await self._client.run("listen", self._name, self._queues)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._connection.abort()
        self._client.send_off("unlisten", self._name, self._queues)


async def listen(client: RedisClient, worker: str, queues: Sequence[str]) -> RedisListener:
    """Register a listener with the scripts, and connect. ``worker`` is for people who look at the keys."""
    name = f"{worker}:{os.getpid()}:{os.urandom(4).hex()}"
    connection = await client.own_connection()
    wakes = [client.key("wake", queue) for queue in queues]
    listener = RedisListener(client, connection, name, queues, wakes)
    try:
        await client.run("listen", name, _pack_names(list(queues)))
    except BaseException:
        listener.close()
        raise
    return listener


async def notify(client: RedisClient, queues: Sequence[str]) -> None:
    """Wake the listeners of these queues."""
    await client.run("notify", _pack_names(list(queues)))
