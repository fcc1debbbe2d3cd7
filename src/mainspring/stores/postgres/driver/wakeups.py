"""Wake-ups: NOTIFY with a commit or after it, LISTEN on a connection of its own, one channel for each queue.

A process notifies a queue at most once in a few milliseconds, at the first commit of a burst. The commits in the rest
of that time send no notification: a listener therefore wakes a second time, a little later. Every notification may be
lost: a listener polls as well.

An enqueue that notifies with its own commit (:class:`NotifyingEnqueue`) lets workers come while it still waits for the
disk. A notification takes a lock that all notifying transactions share, and keeps it until the commit is complete, disk
and replicas included: such commits would go one by one. So the enqueue commits without waiting, and a small transaction
that waits follows it. No promise is broken: a claim comes after its job in the log of the server, so the claim is not
on the disk before the job is, and the caller gets its reply when both are.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from typing import LiteralString

import psycopg
from psycopg import sql
from psycopg.pq import Format

from mainspring.common.pause import GrowingPause
from mainspring.jobs.records import JobBatch
from mainspring.stores.postgres.driver.arrays import words
from mainspring.stores.postgres.driver.connections import AsyncServerConnection
from mainspring.stores.postgres.driver.native import NativeStep
from mainspring.stores.postgres.driver.session import Rows, Step

NOTIFY = "select set_config('synchronous_commit', 'off', true), pg_notify(c, '') from unnest(%(channels)s::text[]) c"
"""Run after the commit that it announces, in a transaction of its own that does not wait for the disk."""

NOTIFY_INSIDE = "select pg_notify(c, '') from unnest(%(channels)s::text[]) c"
"""Run inside a caller's transaction; the server delivers the notification once, at the commit."""

SETTLE: Step = ("select pg_logical_emit_message(true, 'mainspring', '')", {})
"""Writes a message to the log and waits until it, and all before it, is where commits must be."""

_NOTIFYING: LiteralString = """
select e.* from (
    select set_config('synchronous_commit', 'off', true), count(pg_notify(c, '')) from unnest(%(channels)s::text[]) c
) notified left join lateral ({call}) e on true
"""
_LISTEN = sql.SQL("listen {}")
_QUIET = 0.005
"""Seconds for which a process does not notify the same queue again."""
_ECHO = 2 * _QUIET
"""Seconds after a notification at which a listener wakes a second time."""
_LONGEST_CHANNEL = 63
"""Bytes of a channel name that PostgreSQL accepts."""
_MOST_QUEUES = 1000
"""Queues whose last notification is remembered."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
"""Seconds between two tries to make the connection for LISTEN."""

log = logging.getLogger("mainspring.store")


def channel(schema: str, queue: str) -> str:
    """The channel of a queue. A name that is too long, or has a NUL, is hashed."""
    name = f"{schema}:{queue}"
    if len(name.encode()) <= _LONGEST_CHANNEL and "\0" not in name:
        return name
    return f"{schema[:20]}:{hashlib.blake2b(name.encode(), digest_size=16).hexdigest()}"


def ready_queues(batch: JobBatch) -> set[str]:
    """The queues to which a batch brings jobs that may be ready at once."""
    return {job.queue for job in batch.jobs if not job.delay and job.run_at is None}


class Notifier:
    """Remembers when this process notified each queue last."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._notified: dict[str, float] = {}

    def take_due(self, queues: Iterable[str]) -> list[str]:
        """The channels to notify now: those of queues that were quiet for a while. Counts as notified."""
        quiet = self.quiet(queues)
        self.note(quiet, time.monotonic())
        return self.channels(quiet)

    def quiet(self, queues: Iterable[str]) -> set[str]:
        """Those of the queues that were not notified a moment ago."""
        now = time.monotonic()
        return {queue for queue in queues if now - self._notified.get(queue, 0.0) >= _QUIET}

    def note(self, queues: Iterable[str], at: float) -> None:
        """Listeners of these queues were woken after the moment ``at``."""
        if len(self._notified) > _MOST_QUEUES:  # a program may make up queue names without end
            self._notified.clear()
        self._notified.update(dict.fromkeys(queues, at))

    def channels(self, queues: Iterable[str]) -> list[str]:
        """The channels of these queues."""
        return sorted({channel(self._schema, queue) for queue in queues})


class NotifyingEnqueue:
    """One enqueue that notifies with its own commit. Queues that this process notified a moment ago are left out."""

    def __init__(self, notifier: Notifier, batch: JobBatch) -> None:
        self._notifier = notifier
        self._ready = ready_queues(batch)
        self._notified = notifier.quiet(self._ready)
        self._at = time.monotonic()

    def step(self, call: Step) -> Step:
        """The statement to run for this enqueue."""
        if not self._notified:
            return call
        return _add_notify(call[0]), {**call[1], "channels": self._notifier.channels(self._notified)}

    def native_step(self, call: NativeStep) -> NativeStep:
        """The native statement to run for this enqueue."""
        if not self._notified:
            return call
        channels = words(self._notifier.channels(self._notified))
        return NativeStep(_add_native_notify(call.sql), (*call.values, channels), (*call.formats, Format.TEXT))

    @property
    def unsettled(self) -> bool:
        """Whether the commit did not wait for the disk: then run ``SETTLE``, if commits must wait."""
        return bool(self._notified)

    def own_rows(self, rows: Rows) -> Rows:
        """The rows of the enqueue itself: without rows, a notifying statement has one row of nulls."""
        if not self._notified:
            return rows
        self._notifier.note(self._notified, self._at)
        return [row for row in rows if any(value is not None for value in row)]

    def take_due(self, freed: Iterable[str]) -> list[str]:
        """The channels to notify now that all is committed; ``freed`` are queues in which older jobs became ready."""
        return self._notifier.take_due(self._ready.union(freed) - self._notified)


@cache
def _add_notify(call: LiteralString) -> LiteralString:
    return _NOTIFYING.replace("{call}", call)


@cache
def _add_native_notify(call: bytes) -> bytes:
    last = b"$%d" % (call.count(b"$") + 1)
    return _NOTIFYING.encode().replace(b"%(channels)s", last).replace(b"{call}", call)


class ListenerHub:
    """All listeners of one store object, on one connection that is made again whenever it is lost.

    ``connect`` is None behind a pooler without ``listen_url``: then there is no LISTEN, and workers only poll.
    """

    def __init__(self, schema: str, connect: Callable[[], Awaitable[AsyncServerConnection]] | None) -> None:
        self._schema = schema
        self._connect = connect
        self._listeners: dict[str, set[PostgresListener]] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._connected = False
        self._warned = False
        self._pid = os.getpid()

    async def listen(self, queues: Iterable[str]) -> PostgresListener:
        """A listener that is subscribed when this returns, or, if the server cannot be reached, as soon as it can."""
        listener = PostgresListener(self, [channel(self._schema, queue) for queue in queues])
        for name in listener.channels:
            self._listeners.setdefault(name, set()).add(listener)
        if self._connect is not None:
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._keep_listening(self._connect))
            self._changed.set()
            try:
                await listener.wait_subscribed()
            except BaseException:
                listener.close()
                raise
        return listener

    def remove(self, listener: PostgresListener) -> None:
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

    async def _keep_listening(self, connect: Callable[[], Awaitable[AsyncServerConnection]]) -> None:
        pause = GrowingPause(_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        while True:
            try:
                connection = await connect()
                try:
                    await self._listen_on(connection)
                finally:
                    connection.drop()
            except psycopg.Error as error:
                if not self._warned:  # the worker reports later losses together with its store
                    log.warning("no wake-ups, jobs are found by polling: %s", error)
                    self._warned = True
            if self._connected:
                pause.reset()
            self._connected = False
            for listener in self._all_listeners():
                listener.on_lost()
            await asyncio.sleep(pause.next())

    async def _listen_on(self, connection: AsyncServerConnection) -> None:
        """Until the connection is lost."""
        connection.add_notify_handler(lambda notice: self._on_notify(notice.channel))
        loop = asyncio.get_running_loop()
        subscribed: set[str] = set()
        lost = loop.create_future()

        def on_readable() -> None:
            try:
                connection.pgconn.consume_input()
                while notice := connection.pgconn.notifies():
                    self._on_notify(notice.relname.decode())
            except psycopg.OperationalError as error:
                loop.remove_reader(fd)
                if not lost.done():
                    lost.set_exception(error)

        fd = connection.fileno()
        while True:
            self._changed.clear()
            if new := sorted(self._listeners.keys() - subscribed):
                await connection.execute(sql.SQL("; ").join(_LISTEN.format(sql.Identifier(name)) for name in new))
                subscribed.update(new)
            for listener in self._all_listeners():
                if listener.channels <= subscribed:
                    listener.on_subscribed()
            self._connected = self._warned = True
            loop.add_reader(fd, on_readable)  # after each statement, for the driver removes the reader
            on_readable()
            changed = asyncio.create_task(self._changed.wait())
            try:
                await asyncio.wait((changed, lost), return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
                loop.remove_reader(fd)
            if lost.done():
                lost.result()

    def _on_notify(self, name: str) -> None:
        for listener in self._listeners.get(name, ()):
            listener.wake()

    def _all_listeners(self) -> set[PostgresListener]:
        return {each for group in self._listeners.values() for each in group}


class PostgresListener:
    """What a worker waits on."""

    def __init__(self, hub: ListenerHub, channels: Iterable[str]) -> None:
        self.channels = frozenset(channels)
        self._hub = hub
        self._woken = asyncio.Event()
        self._echo: asyncio.TimerHandle | None = None
        self._echo_at = 0.0
        """By the clock of the loop: the commits that the last notification stands for are complete then."""
        self._subscribed = asyncio.Event()
        self._settled = asyncio.Event()

    @property
    def is_always_woken(self) -> bool:
        return self._subscribed.is_set()

    async def wait(self, timeout: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._woken.wait()
        woken = self._woken.is_set()
        self._woken.clear()
        return woken

    def close(self) -> None:
        if self._echo is not None:
            self._echo.cancel()
        self._hub.remove(self)

    async def wait_subscribed(self) -> None:
        """Until the server has accepted the subscription, or was found to be out of reach."""
        await self._settled.wait()

    def wake(self) -> None:
        self._woken.set()
        loop = asyncio.get_running_loop()
        self._echo_at = loop.time() + _ECHO
        if self._echo is None:
            self._echo = loop.call_at(self._echo_at, self._wake_again)

    def _wake_again(self) -> None:
        loop = asyncio.get_running_loop()
        is_last = loop.time() >= self._echo_at  # else another notification came since the timer was set
        self._echo = None if is_last else loop.call_at(self._echo_at, self._wake_again)
        self._woken.set()

    def on_subscribed(self) -> None:
        """The server notifies us (again): notifications of the time between were missed, so wake."""
        if self._settled.is_set() and not self._subscribed.is_set():
            self._woken.set()
        self._subscribed.set()
        self._settled.set()

    def on_lost(self) -> None:
        self._subscribed.clear()
        self._settled.set()
