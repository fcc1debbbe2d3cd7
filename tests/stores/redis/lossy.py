"""A proxy between a client and a server that can lose a reply."""

from __future__ import annotations

import asyncio
from typing import Self
from urllib.parse import urlsplit, urlunsplit


class LossyWire:
    """Passes bytes both ways. After ``lose_reply`` the next reply is dropped and its connection cut.

    The reply exists, so the server has done what it was asked; only the client does not know.
    """

    def __init__(self, url: str) -> None:
        self._to = urlsplit(url)
        self._losing = False
        self._pumps: set[asyncio.Task[None]] = set()
        self.lost = 0

    @property
    def url(self) -> str:
        """The server's URL by way of this wire."""
        port = self._server.sockets[0].getsockname()[1]
        login, _, _ = self._to.netloc.rpartition("@")
        return urlunsplit(self._to._replace(netloc=f"{login}@127.0.0.1:{port}"))

    def lose_reply(self) -> None:
        self._losing = True

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        await self._server.wait_closed()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._to.hostname, self._to.port)
        for source, sink, replies in ((reader, far_writer, False), (far_reader, writer, True)):
            pump = asyncio.create_task(self._pump(source, (writer, far_writer), sink, replies))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        both: tuple[asyncio.StreamWriter, asyncio.StreamWriter],
        sink: asyncio.StreamWriter,
        replies: bool,
    ) -> None:
        try:
            while some := await source.read(65536):
                if replies and self._losing:
                    self._losing = False
                    self.lost += 1
                    break
                sink.write(some)
                await sink.drain()
        except ConnectionError:
            pass
        finally:
            for writer in both:
                writer.close()
