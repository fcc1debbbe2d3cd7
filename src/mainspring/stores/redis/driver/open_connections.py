"""The connections of one event loop: made when they are needed, closed when the loop ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, MutableMapping
from contextlib import suppress
from weakref import WeakSet

from . import loop_connection
from .address import RedisAddress
from .loop_connection import LoopConnection
from .resp import ConnectionBroken


class SharedConnection:
    """A connection that is made at the first call. Calls that come meanwhile wait for it and share its error.

    A retired connection is added to ``lent``: the callers that still wait for replies have it.
    """

    def __init__(self, address: RedisAddress, confirm: tuple[bytes, ...], lent: WeakSet[LoopConnection]) -> None:
        self.current: LoopConnection | None = None
        self._address = address
        self._confirm = confirm
        self._lent = lent
        self._making: asyncio.Task[LoopConnection] | None = None

    @property
    def open(self) -> LoopConnection | None:
        """The connection; None if no connection takes calls."""
        current = self.current
        return current if current is not None and not current.lost and not current.retired else None

    async def ready(self) -> LoopConnection:
        if self.open is not None:
            return self.open
        if self._making is None:
            self._making = asyncio.create_task(loop_connection.connect(self._address, self._confirm))
            self._making.add_done_callback(self._on_made)
        making = self._making
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            if making.cancelled():  # by close(): the caller itself was not cancelled
                raise ConnectionBroken("the store was closed") from None
            raise

    def _on_made(self, making: asyncio.Task[LoopConnection]) -> None:
        self._making = None
        if not making.cancelled() and making.exception() is None:
            if self.current is not None and self.current.retired:
                self._lent.add(self.current)
            self.current = making.result()

    async def close(self) -> None:
        if self._making is not None:
            self._making.cancel()
            await asyncio.wait([self._making])
        if self.current is not None:
            await self.current.close()


class OpenConnections:
    """The open connections of one event loop. Confirmed calls have a connection of their own: a call that waits for
    replicas delays all calls behind it.

    A loop closes its async generators before it ends. ``_live`` uses that to close the connections that were not
    closed: a user's ``asyncio.run()`` leaves neither an open connection nor a warning.
    """

    def __init__(
        self,
        address: RedisAddress,
        confirm: tuple[bytes, ...],
        listed: MutableMapping[asyncio.AbstractEventLoop, OpenConnections],
    ) -> None:
        self.lent: WeakSet[LoopConnection] = WeakSet()
        self.plain = SharedConnection(address, (), self.lent)
        self.confirmed = SharedConnection(address, confirm, self.lent)
        self._life = self._live(listed)
        with suppress(StopIteration):  # the generator has reached its yield
            self._life.__anext__().send(None)

    async def close(self) -> None:
        await self.plain.close()
        await self.confirmed.close()
        for each in list(self.lent):
            await each.close()
        await self._life.aclose()

    async def _live(self, listed: MutableMapping[asyncio.AbstractEventLoop, OpenConnections]) -> AsyncGenerator[None]:
        """The end of this generator awaits nothing: the loop may reach it while a task is in :meth:`close`."""
        try:
            yield
        finally:
            listed.pop(asyncio.get_running_loop(), None)
            for each in (self.plain.current, self.confirmed.current, *self.lent):
                if each is not None:
                    each.abort()
