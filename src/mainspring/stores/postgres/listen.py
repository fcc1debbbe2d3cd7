"""Wake-ups: NOTIFY with a commit or after it, LISTEN on a connection of its own, a channel for each queue.

A process rings for a queue once in a few milliseconds at most, at the first commit of a burst. What is
committed in the rest of that time is rung for by nobody: a listener therefore wakes a second time, a
little later. All of it may be lost: whoever listens polls as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterable

import psycopg
from psycopg import sql

from mainspring.jobs.records import Batch
from mainspring.stores.postgres.links import AsyncLink

RING = "select set_config('synchronous_commit', 'off', true), pg_notify(c, '') from unnest(%(channels)s::text[]) c"
"""To be run after the commit that it tells of, in a transaction of its own that waits for no disk."""
RING_INSIDE = "select pg_notify(c, '') from unnest(%(channels)s::text[]) c"
"""To be run inside a caller's transaction; the server delivers it once, at the commit."""

_LISTEN = sql.SQL("listen {}")
_QUIET = 0.005
_ECHO = 2 * _QUIET
_LONGEST = 63
_PAUSES = (0.1, 5.0)

log = logging.getLogger("mainspring.store")


def channel(schema: str, queue: str) -> str:
    """The channel of a queue: names that are too long, or odd, are hashed."""
    name = f"{schema}:{queue}"
    if len(name.encode()) <= _LONGEST and "\0" not in name:
        return name
    return f"{schema[:20]}:{hashlib.blake2b(name.encode(), digest_size=16).hexdigest()}"


def ready_queues(batch: Batch) -> set[str]:
    """The queues to which a batch brings jobs that may be ready at once."""
    return {job.queue for job in batch.jobs if not job.delay and job.run_at is None}


class Bell:
    """Knows when this process rang last for each queue."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._rung: dict[str, float] = {}

    def due(self, queues: Iterable[str]) -> list[str]:
        """The channels to ring now: those that were quiet for a while."""
        quiet = self.quiet(queues)
        self.rang(quiet, time.monotonic())
        return self.channels(quiet)

    def quiet(self, queues: Iterable[str]) -> set[str]:
        """Those of the queues that were not rung for a moment ago."""
        now = time.monotonic()
        return {queue for queue in queues if now - self._rung.get(queue, 0.0) >= _QUIET}

    def rang(self, queues: Iterable[str], at: float) -> None:
        """Listeners of these queues were woken after the moment ``at``."""
        if len(self._rung) > 1000:  # names of queues may be made up without end
            self._rung.clear()
        self._rung.update(dict.fromkeys(queues, at))

    def channels(self, queues: Iterable[str]) -> list[str]:
        """The channels of these queues."""
        return sorted({channel(self._schema, queue) for queue in queues})


class Ears:
    """All listeners of one store object, on one connection that is made again whenever it is lost.

    ``connect`` None: nobody can be listened to (a pooler without ``listen_url``); then there is the poll alone.
    """

    def __init__(self, schema: str, connect: Callable[[], Awaitable[AsyncLink]] | None) -> None:
        self._schema = schema
        self._connect = connect
        self._listeners: dict[str, set[PostgresListener]] = {}
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._deaf = self._heard = False
        self._pid = os.getpid()

    async def listen(self, queues: Iterable[str]) -> PostgresListener:
        """A listener that hears from now on, if the server can be reached; else as soon as it can."""
        listener = PostgresListener(self, [channel(self._schema, queue) for queue in queues])
        for name in listener.channels:
            self._listeners.setdefault(name, set()).add(listener)
        if self._connect is not None:
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._keep_listening(self._connect))
            self._news.set()
            try:
                await listener.tuned_in()
            except BaseException:
                listener.close()
                raise
        return listener

    def forget(self, listener: PostgresListener) -> None:
        for name in listener.channels:
            self._listeners.get(name, set()).discard(listener)
            if not self._listeners.get(name):
                self._listeners.pop(name, None)
        if not self._listeners and self._pid == os.getpid():
            self.close()

    def close(self) -> None:
        """Stop listening. Listeners that are left wait for their polls."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    # ---- the connection -----------------------------------------------------------------------

    async def _keep_listening(self, connect: Callable[[], Awaitable[AsyncLink]]) -> None:
        shortest, longest = _PAUSES
        pause = shortest
        while True:
            try:
                link = await connect()
                try:
                    await self._hear(link)
                finally:
                    link.drop()
            except psycopg.Error as error:
                if not self._heard:  # later losses are part of what the worker tells of its store
                    log.warning("no wake-ups, jobs are found by polling: %s", error)
                    self._heard = True
            if not self._deaf:
                pause = shortest
            self._deaf = True
            for listener in self._everybody():
                listener.tell_lost()
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(longest, pause * 2)

    async def _hear(self, link: AsyncLink) -> None:
        """Until the connection is lost."""
        link.add_notify_handler(lambda notice: self._ring(notice.channel))
        loop = asyncio.get_running_loop()
        heard: set[str] = set()
        lost = loop.create_future()

        def readable() -> None:
            try:
                link.pgconn.consume_input()
                while notice := link.pgconn.notifies():
                    self._ring(notice.relname.decode())
            except psycopg.OperationalError as error:
                loop.remove_reader(fd)
                if not lost.done():
                    lost.set_exception(error)

        fd = link.fileno()
        while True:
            self._news.clear()
            if new := sorted(self._listeners.keys() - heard):
                await link.execute(sql.SQL("; ").join(_LISTEN.format(sql.Identifier(name)) for name in new))
                heard.update(new)
            for listener in self._everybody():
                if listener.channels <= heard:
                    listener.tell_heard()
            self._deaf, self._heard = False, True
            loop.add_reader(fd, readable)  # after each statement, for the driver takes it away
            readable()
            news = asyncio.create_task(self._news.wait())
            try:
                await asyncio.wait((news, lost), return_when=asyncio.FIRST_COMPLETED)
            finally:
                news.cancel()
                loop.remove_reader(fd)
            if lost.done():
                lost.result()

    def _ring(self, name: str) -> None:
        for listener in self._listeners.get(name, ()):
            listener.ring()

    def _everybody(self) -> set[PostgresListener]:
        return {each for group in self._listeners.values() for each in group}


class PostgresListener:
    """What a worker waits on."""

    def __init__(self, ears: Ears, channels: Iterable[str]) -> None:
        self.channels = frozenset(channels)
        self._ears = ears
        self._rung = asyncio.Event()
        self._echo: asyncio.TimerHandle | None = None
        self._heard = asyncio.Event()
        self._settled = asyncio.Event()

    async def wait(self, timeout: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._rung.wait()
        rung = self._rung.is_set()
        self._rung.clear()
        return rung

    def close(self) -> None:
        if self._echo is not None:
            self._echo.cancel()
        self._ears.forget(self)

    async def tuned_in(self) -> None:
        """Until the server has heard of us, or was found to be out of reach."""
        await self._settled.wait()

    def ring(self) -> None:
        self._rung.set()
        if self._echo is None:
            self._echo = asyncio.get_running_loop().call_later(_ECHO, self._ring_again)

    def _ring_again(self) -> None:
        self._echo = None
        self._rung.set()

    def tell_heard(self) -> None:
        """We are listened for (again): what came meanwhile was missed."""
        if self._settled.is_set() and not self._heard.is_set():
            self._rung.set()
        self._heard.set()
        self._settled.set()

    def tell_lost(self) -> None:
        self._heard.clear()
        self._settled.set()
