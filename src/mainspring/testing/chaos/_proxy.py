"""The proxy: a listening socket, its connections, and a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Self, TypeVar

from mainspring.testing.chaos._address import by_way_of, target_of
from mainspring.testing.chaos._faults import Fault
from mainspring.testing.chaos._link import ProxiedConnection, Stream, reset

F = TypeVar("F", bound=Fault)
R = TypeVar("R")


class Proxy:
    """A proxy to the server of ``url``. Use it as a context manager and give ``wire.url`` to the program.

    ``words``: bytes to look out for in requests; `Link.said` has those that a link has sent, so that a test
    can tell one connection from another.
    """

    def __init__(self, url: str, *, words: Iterable[bytes] = ()) -> None:
        self._to = target_of(url)
        self._url = url
        self._words = tuple(words)
        self._fault = Fault()
        self._links: dict[int, ProxiedConnection] = {}
        self._made = 0
        self._port = 0
        self._serving: dict[asyncio.Task[None], socket.socket] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mainspring-chaos", daemon=True)

    @property
    def url(self) -> str:
        """The URL of the server through this proxy."""
        return by_way_of(self._url, self._port)

    @property
    def links(self) -> list[ProxiedConnection]:
        """The open connections, oldest first."""
        return self._in_loop(lambda: list(self._links.values()))

    def set(self, fault: F, *links: ProxiedConnection) -> F:
        """Set the fault on all connections, present and future, or on the given ones only. Returns the fault."""

        def strike() -> F:
            if not links:
                self._fault = fault
            for link in links or tuple(self._links.values()):
                link.suffer(fault)
            return fault

        return self._in_loop(strike)

    def heal(self) -> None:
        """Remove all faults."""
        self.set(Fault())

    @contextlib.contextmanager
    def suffering(self, fault: F, *links: ProxiedConnection) -> Iterator[F]:
        """Set the fault for the time of the block."""
        try:
            yield self.set(fault, *links)
        finally:
            self.heal()

    # ---- life -------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen on a free port of the loopback interface."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._port = self._listener.getsockname()[1]
        self._thread.start()
        self._in_loop(lambda: self._loop.add_reader(self._listener, self._accept))

    def close(self) -> None:
        """Reset every connection and stop."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ---- private ----------------------------------------------------------------------------

    # Not asyncio.start_server: in Python 3.11 it forgets the sockets that it accepts while it is closed.

    def _accept(self) -> None:
        try:
            end, _ = self._listener.accept()
        except OSError:  # the peer has closed its connection already
            return
        end.setblocking(False)
        serving = self._loop.create_task(self._serve(end))
        self._serving[serving] = end
        serving.add_done_callback(lambda over: self._serving.pop(over).close())

    async def _serve(self, end: socket.socket) -> None:
        near = await asyncio.open_connection(sock=end)
        try:
            await self._link(near, await self._connect())
        except OSError:
            return
        finally:
            reset(near[1])

    async def _link(self, near: Stream, far: Stream) -> None:
        self._made += 1
        link = self._links[self._made] = ProxiedConnection(self._made, near, far, self._fault, self._words)
        try:
            await link.run()
        finally:
            del self._links[link.number]

    async def _connect(self) -> Stream:
        if self._to.path:
            return await asyncio.open_unix_connection(self._to.path)
        return await asyncio.open_connection(self._to.host, self._to.port)

    async def _end(self) -> None:
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for link in self._links.values():
            link.reset()  # a peer that does not read cannot delay the end
        for serving in self._serving:
            serving.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        for _ in range(3):  # the end of a task, the reset of its socket, the closing of that: a round of the loop each
            await asyncio.sleep(0)

    def _in_loop(self, do: Callable[[], R]) -> R:
        """Run it in the thread of the event loop that owns the connections."""

        async def call() -> R:
            return do()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()
