"""The faults of a connection, one class each.

``strike`` is called once for each link, when the fault is set or the link is made under it; ``meet`` for
each piece of bytes, which it sends on, holds back or loses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainspring.testing.chaos._link import ProxiedConnection, Side


class Fault:
    """No fault: bytes pass unchanged. The base class of all faults."""

    def strike(self, link: ProxiedConnection) -> None:
        """Called when this fault is set on a connection."""

    async def meet(self, link: ProxiedConnection, side: Side, data: bytes) -> None:
        """Called when these bytes arrive on ``side`` of the connection."""
        await link.send(side, data)

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__}({said})"


class Delay(Fault):
    """Each request arrives this many seconds later."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def meet(self, link: ProxiedConnection, side: Side, data: bytes) -> None:
        if side == "request":
            await link.changed(self.seconds)
        await link.send(side, data)


class Throttle(Fault):
    """At most this many bytes per second, on each connection and side."""

    def __init__(self, bytes_per_second: int) -> None:
        self.bytes_per_second = bytes_per_second

    async def meet(self, link: ProxiedConnection, side: Side, data: bytes) -> None:
        piece = max(1, self.bytes_per_second // 20)
        for start in range(0, len(data), piece):
            if link.fault is not self:
                await link.meet(side, data[start:])
                return
            await link.send(side, data[start : start + piece])
            await link.changed(piece / self.bytes_per_second)


class Stall(Fault):
    """No bytes pass and no error is raised; the bytes arrive after the fault. ``side``: only on that side."""

    def __init__(self, side: Side | None = None) -> None:
        self.side = side

    async def meet(self, link: ProxiedConnection, side: Side, data: bytes) -> None:
        if self.side in (None, side):
            await link.changed()
            await link.meet(side, data)
        else:
            await link.send(side, data)


class Cut(Fault):
    """The connection is closed after this many bytes on one side; with ``after=0`` at once, also each new one."""

    def __init__(self, after: int = 0, side: Side = "reply") -> None:
        self.after = after
        self.side = side

    def strike(self, link: ProxiedConnection) -> None:
        if not self.after:
            link.cut()

    async def meet(self, link: ProxiedConnection, side: Side, data: bytes) -> None:
        left = self.after - link.passed[side]
        if side != self.side or len(data) < left:
            await link.send(side, data)
            return
        await link.send(side, data[:left])
        link.cut()


class Reset(Fault):
    """The connection is reset, and so is each new one, as if the machine runs and its server does not."""

    def strike(self, link: ProxiedConnection) -> None:
        link.reset()


class HalfOpen(Fault):
    """Sent bytes are lost and the connection stays open, for ever: ``heal`` helps new connections only."""

    def strike(self, link: ProxiedConnection) -> None:
        link.doomed = True

    async def meet(self, link: ProxiedConnection, side: Side, data: bytes) -> None:
        """Drop these bytes."""


class DropReply(Fault):
    """The request arrives, its reply is lost and the connection is closed: the client cannot know the outcome.

    ``to``: only the reply to a request with these bytes in it; ``times``: how many replies are lost.
    ``dropped`` counts them.
    """

    PAUSE = 0.05  # a long reply may begin before the server has finished: do not disturb it

    def __init__(self, to: bytes = b"", times: int = 1) -> None:
        self.to = to
        self.times = times
        self.dropped = 0
        self._asked: set[int] = set()

    async def meet(self, link: ProxiedConnection, side: Side, data: bytes) -> None:
        if side == "request":
            if self.to in data:
                self._asked.add(link.number)
            await link.send(side, data)
        elif self.dropped < self.times and link.number in self._asked:
            self.dropped += 1
            await link.changed(self.PAUSE)
            link.cut()
        else:
            await link.send(side, data)
