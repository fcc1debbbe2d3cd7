"""Connections: one small asyncio client per event loop, one blocking client per process; no retries of the driver.

A call is one EVALSHA. The server that does not know the script says so before anything runs, so
that alone is repeated here, with the whole text. After a timeout nobody knows whether the script
ran: the caller repeats by the contract's rules, never the driver (it retries by default).
"""

from __future__ import annotations

import asyncio
import os
from typing import Any
from weakref import WeakKeyDictionary

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError
from redis.retry import Retry

from mainspring.clock import Clock
from mainspring.errors import BadUrl, StoreUnavailable, mask_url

from .scripts import script

TIMEOUT = 10.0
"""Seconds for a connect, a send or a read; the door holds a whole call to its own deadline."""

_OPTIONS: dict[str, Any] = {
    "socket_timeout": TIMEOUT,
    "socket_connect_timeout": TIMEOUT,
    "retry_on_timeout": False,
    "retry_on_error": [],
    "protocol": 2,
    "decode_responses": False,
}


class Connection:
    """Runs scripts under one meta key, and the few plain commands that need none."""

    def __init__(self, url: str, meta: str, clock: Clock | None) -> None:
        self.url = mask_url(url)
        self._url = "redis" + url.removeprefix("valkey") if url.startswith("valkey:") else url
        self._meta = meta
        self._clock = clock
        self._closed = False
        self._pid = os.getpid()
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()
        self._blocking: Any = None  # the driver's own types know no EVALSHA with bytes
        self._inherited: list[Any] = []
        try:
            parse: Any = redis.connection.parse_url
            parse(self._url)
        except ValueError as error:
            raise BadUrl(url, str(error)) from None

    # ---- life ---------------------------------------------------------------------------------

    def reopen(self) -> None:
        self._closed = False

    async def close(self) -> None:
        """Close what this process and this loop opened. Clients of other loops go with their loop."""
        self._closed = True
        self._leave_to_parent()
        mine = self._clients.pop(asyncio.get_running_loop(), None)
        if mine is not None:
            await mine.aclose()
        if self._blocking is not None:
            self._blocking.close()
            self._blocking = None

    def _leave_to_parent(self) -> None:
        """After a fork: keep the parent's handles, unused. To close or collect them would be heard by the server."""
        if os.getpid() == self._pid:
            return
        self._pid = os.getpid()
        self._inherited += [self._clients, self._blocking]
        self._clients = WeakKeyDictionary()
        self._blocking = None

    def _check(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed", url=self.url, hint="Open it again before you use it.")
        self._leave_to_parent()

    # ---- calls --------------------------------------------------------------------------------

    async def command(self, *words: bytes | str | int) -> Any:
        """One plain command, on the client of the running event loop."""
        return await self._client().execute_command(*words)

    async def run(self, name: str, *arguments: bytes | str | int) -> Any:
        """Run a script: one round trip, one atomic step."""
        client, wanted, now = self._client(), script(name), self._now()
        try:
            return await client.execute_command("EVALSHA", wanted.sha, 1, self._meta, now, *arguments)
        except NoScriptError:
            return await client.execute_command("EVAL", wanted.text, 1, self._meta, now, *arguments)

    def run_now(self, name: str, *arguments: bytes | str | int) -> Any:
        """The same, blocking, in the calling thread."""
        self._check()
        if self._blocking is None:
            self._blocking = redis.Redis.from_url(self._url, retry=Retry(NoBackoff(), 0), **_OPTIONS)
        client, wanted, now = self._blocking, script(name), self._now()
        try:
            return client.execute_command("EVALSHA", wanted.sha, 1, self._meta, now, *arguments)
        except NoScriptError:
            return client.execute_command("EVAL", wanted.text, 1, self._meta, now, *arguments)

    def _client(self) -> Any:
        self._check()
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = redis.asyncio.Redis.from_url(self._url, retry=AsyncRetry(NoBackoff(), 0), **_OPTIONS)
            self._clients[loop] = client
        return client

    def _now(self) -> str | int:
        return "" if self._clock is None else self._clock.now_us()
