"""One connection through the proxy: two copying tasks, and its current fault."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from mainspring.testing.chaos._faults import Fault

Side = Literal["request", "reply"]
"""The direction of bytes: to the server, or back."""

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_PIECE = 65536
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


def reset(writer: asyncio.StreamWriter) -> None:
    """Reset one end (RST instead of FIN)."""
    if not writer.is_closing():
        end: socket.socket = writer.get_extra_info("socket")
        if end.family != socket.AF_UNIX:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        writer.transport.abort()


class ProxiedConnection:
    """A connection of the program, and its connection to the server."""

    def __init__(self, number: int, near: Stream, far: Stream, fault: Fault, words: Iterable[bytes] = ()) -> None:
        self.number = number
        """The number of the connection, from 1."""
        self.fault = fault
        self.doomed = False
        """``heal`` has no effect on this connection."""
        self.passed: dict[Side, int] = {"request": 0, "reply": 0}
        """The bytes that passed since the fault was set."""
        self.said: set[bytes] = set()
        """The words of the proxy that occurred in the requests."""
        self._near = near
        self._far = far
        self._words = tuple(words)
        self._rest = b""
        self._change = asyncio.Event()

    async def run(self) -> None:
        """Copy bytes in both directions until one end is closed."""
        pumps = [
            asyncio.create_task(self._pump("request", self._near[0])),
            asyncio.create_task(self._pump("reply", self._far[0])),
        ]
        try:
            self.fault.strike(self)
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self.cut()

    # ---- for faults -------------------------------------------------------------------------

    def suffer(self, fault: Fault) -> None:
        """Set the fault from now on. Bytes that wait in the older fault continue under this one."""
        if self.doomed:
            return
        self.fault = fault
        self.passed = {"request": 0, "reply": 0}
        changed, self._change = self._change, asyncio.Event()
        changed.set()
        fault.strike(self)

    async def changed(self, within: float | None = None) -> None:
        """Wait for another fault, or the end of this one, at most this many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._change.wait()

    async def meet(self, side: Side, data: bytes) -> None:
        """Give these bytes to the current fault."""
        await self.fault.meet(self, side, data)

    async def send(self, side: Side, data: bytes) -> None:
        """Send these bytes."""
        writer = (self._far if side == "request" else self._near)[1]
        writer.write(data)
        self.passed[side] += len(data)
        await writer.drain()

    def cut(self) -> None:
        """Close both ends normally."""
        self._near[1].close()
        self._far[1].close()

    def reset(self) -> None:
        """Reset both ends (RST instead of FIN)."""
        reset(self._near[1])
        reset(self._far[1])

    # ---- private ----------------------------------------------------------------------------

    async def _pump(self, side: Side, source: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(_PIECE):
                if side == "request":
                    self._hear(data)
                await self.meet(side, data)

    def _hear(self, data: bytes) -> None:
        """Record the words in these bytes. A word may be divided between two pieces."""
        if not self._words:
            return
        text = self._rest + data
        self.said.update(word for word in self._words if word in text)
        self._rest = text[-max(map(len, self._words)) :]
