"""TLS in front of a server that speaks none: real certificates, a real handshake."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

CERTIFICATE = Path(__file__).with_name("localhost.pem")
"""For the name ``localhost`` alone, signed by itself; the key is in it and worth nothing."""


class TlsEnd:
    """Takes TLS connections on a free port of localhost and passes their bytes on to a server."""

    def __init__(self, url: str) -> None:
        self._to = urlsplit(url)
        self._tasks: set[asyncio.Task[None]] = set()

    def url(self, host: str = "localhost", options: str = "") -> str:
        port = self._server.sockets[0].getsockname()[1]
        return f"rediss://:{self._to.password}@{host}:{port}/0{options}"

    async def __aenter__(self) -> Self:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(CERTIFICATE)
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0, ssl=context)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._to.hostname, self._to.port)
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._pump(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while some := await source.read(65_536):
                sink.write(some)
                await sink.drain()
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            sink.close()
