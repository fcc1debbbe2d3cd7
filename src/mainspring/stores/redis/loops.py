"""The connections of one event loop: made when they are needed, gone when the loop ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, MutableMapping
from contextlib import suppress
from weakref import WeakSet

from . import wire
from .address import Address
from .resp import Broken
from .wire import Wire


class Shared:
    """A connection that is made when it is needed. All who need it meanwhile wait for the same try and hear its end."""

    def __init__(self, address: Address, confirm: tuple[bytes, ...]) -> None:
        self.wire: Wire | None = None
        self._address = address
        self._commands = confirm
        self._making: asyncio.Task[Wire] | None = None

    async def ready(self) -> Wire:
        if self.wire is not None and not self.wire.lost:
            return self.wire
        if self._making is None:
            self._making = asyncio.create_task(wire.connect(self._address, self._commands))
            self._making.add_done_callback(self._made)
        making = self._making
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            if making.cancelled():  # by close(); to the caller that is no reason to end
                raise Broken("the store was closed") from None
            raise

    def _made(self, making: asyncio.Task[Wire]) -> None:
        self._making = None
        if not making.cancelled() and making.exception() is None:
            self.wire = making.result()

    async def close(self) -> None:
        if self._making is not None:
            self._making.cancel()
            await asyncio.wait([self._making])
        if self.wire is not None:
            await self.wire.close()


class OfLoop:
    """What one event loop has open. A call that waits for replicas holds up those behind it, so they go apart.

    A loop closes its async generators before it ends, and so what nobody closed: a user's
    ``asyncio.run()`` leaves neither a connection nor a warning behind.
    """

    def __init__(
        self,
        address: Address,
        confirm: tuple[bytes, ...],
        listed: MutableMapping[asyncio.AbstractEventLoop, OfLoop],
    ) -> None:
        self.plain = Shared(address, ())
        self.confirmed = Shared(address, confirm)
        self.lent: WeakSet[Wire] = WeakSet()
        self._life = self._live(listed)
        with suppress(StopIteration):  # it has come to its yield
            self._life.__anext__().send(None)

    async def close(self) -> None:
        await self.plain.close()
        await self.confirmed.close()
        for each in list(self.lent):
            await each.close()
        await self._life.aclose()

    async def _live(self, listed: MutableMapping[asyncio.AbstractEventLoop, OfLoop]) -> AsyncGenerator[None]:
        """Its end waits for nothing: the loop may reach it while somebody is in :meth:`close`."""
        try:
            yield
        finally:
            listed.pop(asyncio.get_running_loop(), None)
            for each in (self.plain.wire, self.confirmed.wire, *self.lent):
                if each is not None:
                    each.abort()
