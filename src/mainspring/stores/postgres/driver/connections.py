"""How a connection is made and how it ends: every wait has a limit, and a call that is cut short closes its connection.

The settings of a session are sent as it starts, so that a call is one statement and one round trip. Behind a pooler a
session is shared with other programs: there no setting is left in the session, and each transaction sets what it needs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cached_property
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import unquote

import psycopg
from psycopg import waiting
from psycopg.abc import PQGen, PQGenConn
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo
from psycopg.rows import TupleRow

from mainspring.common.redact import redact
from mainspring.errors import BadUrl, did_you_mean
from mainspring.stores.postgres.driver.native import NativeRows, NativeStatements, NativeStep
from mainspring.stores.shared.deadlines import blocking_deadline

R = TypeVar("R")

CALL_LIMIT = 10.0
"""Seconds after which a blocking call ends, and after which the server ends a statement."""

_DEFAULTS: dict[str, Any] = {
    "application_name": "mainspring",
    "connect_timeout": 3,
    # A half open connection is noticed within 10 s, whether we wait for an answer or the server waits to send one.
    "keepalives": 1,
    "keepalives_idle": 3,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 9000,
}
_SESSION = {
    "default_transaction_isolation": "read\\ committed",
    "statement_timeout": f"{CALL_LIMIT:g}s",
    "idle_in_transaction_session_timeout": f"{CALL_LIMIT:g}s",
    # Only the time limit of the socket ends a server process that sends to a client which has vanished or does not
    # read.
    "tcp_user_timeout": "9s",
    "tcp_keepalives_idle": "30s",
    "tcp_keepalives_interval": "10s",
    "tcp_keepalives_count": "3",
}


def parse_url(url: str) -> dict[str, Any]:
    """The connection parameters of a URL, with our own limits as defaults."""
    _check_parameters(url)
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError as why:
        raise BadUrl(url, redact(str(why).strip())) from None
    return {**_DEFAULTS, **given}


def _check_parameters(url: str) -> None:
    """Raise ``BadUrl`` for a parameter that libpq does not know, with the ones that it knows."""
    known = {"ssl", *(each.keyword.decode() for each in Conninfo.get_defaults())}
    for each in url.partition("?")[2].split("&"):
        name = unquote(each.partition("=")[0])
        if name and name not in known:
            raise BadUrl(
                url,
                f"has the unknown parameter {name!r}{did_you_mean(name, known)}",
                hint=f"Known parameters, of libpq: {', '.join(sorted(known))}.",
            )


def add_session_settings(given: dict[str, Any], **more: str) -> dict[str, Any]:
    """The connection parameters with the settings of a session that no other program shares."""
    settings = " ".join(f"-c {name}={value}" for name, value in {**_SESSION, **more}.items())
    return {**given, "options": f"{given.get('options') or ''} {settings}".strip()}


def make_listen_connect(url: str) -> Callable[[], Awaitable[AsyncServerConnection]]:
    """A function that makes the connection to listen on."""
    given = add_session_settings(parse_url(url))
    return lambda: AsyncServerConnection.connect(**given, autocommit=True)


class AsyncServerPipeline(psycopg.AsyncPipeline):
    """A pipeline that says nothing when a call in it was interrupted: its connection is closed, so that the driver
    would log a warning, "error ignored terminating", for each cancelled call."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(self._conn, AsyncServerConnection) and self._conn.interrupted:
            self._exit(error)
        else:
            await super().__aexit__(kind, error, trace)


class ServerPipeline(psycopg.Pipeline):
    """As :class:`AsyncServerPipeline`, for blocking calls."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(self._conn, ServerConnection) and self._conn.interrupted:
            self._exit(error)
        else:
            super().__exit__(kind, error, trace)


class AsyncServerConnection(psycopg.AsyncConnection[TupleRow]):
    """A connection that is closed when a call on it is interrupted (cancelled, or by a time limit of a job): its
    protocol state is unknown from then on.

    The driver would wait until the server confirms the interruption, and a server that does not answer would
    hold up a caller whose time is over.
    """

    interrupted = False
    """A call was interrupted, and the connection is closed because of that."""

    @cached_property
    def _native(self) -> NativeStatements:
        return NativeStatements(self.info.encoding)

    async def run_native(self, step: NativeStep) -> NativeRows:
        """Run a native statement in a transaction of its own."""
        return await self.wait(self._native.run(self.pgconn, step))

    @classmethod
    async def connect(cls, *given: Any, **named: Any) -> Self:
        try:
            return await super().connect(*given, **named)
        except psycopg.OperationalError as error:
            if (own := _interruption_in(error)) is not None:
                raise own from None
            raise

    async def wait(self, gen: PQGen[R], interval: float = 0.1, *more: Any, **named: Any) -> R:
        try:
            return await waiting.wait_async(gen, self.pgconn.socket, interval, *more, **named)
        except psycopg.Error as error:
            if (own := _interruption_in(error)) is None:
                raise
            self._interrupt(gen)
            raise own from None
        except (Exception, asyncio.CancelledError):
            self._interrupt(gen)
            raise

    @asynccontextmanager
    async def pipeline(self) -> AsyncIterator[psycopg.AsyncPipeline]:
        if self._pipeline is None:
            self._pipeline = AsyncServerPipeline(self)
        async with super().pipeline() as pipeline:
            yield pipeline

    def _interrupt(self, gen: PQGen[Any]) -> None:
        self.interrupted = True
        self.drop()
        _end(gen)

    def drop(self) -> None:
        """Close at once, without the event loop."""
        self._closed = True
        self.pgconn.finish()

    def __del__(self, *_: Any) -> None:
        """A program need not close its app: an open connection ends with the program, without the driver's warning."""


class ServerConnection(psycopg.Connection[TupleRow]):
    """A blocking connection: it waits for an answer until the time limit of the call, then it is closed."""

    until: float | None = None
    """The monotonic time at which the call that uses this connection must end."""
    interrupted = False
    """As in :class:`AsyncServerConnection`."""

    @cached_property
    def _native(self) -> NativeStatements:
        return NativeStatements(self.info.encoding)

    def run_native(self, step: NativeStep) -> NativeRows:
        """Run a native statement in a transaction of its own."""
        return self.wait(self._native.run(self.pgconn, step))

    @classmethod
    def _connect_gen(cls, conninfo: str = "", **named: Any) -> PQGenConn[Self]:
        """Connect until the time limit of the call: ``connect_timeout`` counts in whole seconds, two at least."""
        until = blocking_deadline.until
        gen = super()._connect_gen(conninfo, **named)
        try:
            wanted = next(gen)
            while True:
                wanted = gen.send((yield wanted))
                if time.monotonic() >= until:
                    gen.close()
                    raise psycopg.OperationalError("no connection in time")
        except StopIteration as over:
            connection: Self = over.value
            return connection

    def wait(self, gen: PQGen[R], interval: float = 0.1, *more: Any, **named: Any) -> R:
        until = blocking_deadline.after(CALL_LIMIT) if self.until is None else self.until
        limited = self._before(until, gen)
        try:
            return super().wait(limited, interval, *more, **named)
        except psycopg.Error:
            raise
        except BaseException:  # the call was interrupted
            self.interrupted = True
            self.pgconn.finish()
            _end(limited)
            raise

    @contextmanager
    def pipeline(self) -> Iterator[psycopg.Pipeline]:
        if self._pipeline is None:
            self._pipeline = ServerPipeline(self)
        with super().pipeline() as pipeline:
            yield pipeline

    def _before(self, until: float, gen: PQGen[R]) -> PQGen[R]:
        """Run ``gen`` until its time is over: the waiting loop of psycopg resumes it each ``interval``, ready or
        not."""
        try:
            wanted = next(gen)
            while True:
                wanted = gen.send((yield wanted))
                if time.monotonic() >= until:
                    self.pgconn.finish()
                    raise psycopg.OperationalError("no answer in time")
        except StopIteration as over:
            answer: R = over.value
            return answer

    def __del__(self, *_: Any) -> None:
        """As in :class:`AsyncServerConnection`."""


def _interruption_in(error: psycopg.Error) -> OSError | None:
    """The exception that was raised in an async call from outside, if the driver took it for an error of the socket.

    ``SoftTimeout`` and each ``TimeoutError`` are an ``OSError``. An error of the operating system has a number.
    """
    cause = error.__cause__
    return cause if isinstance(cause, OSError) and cause.errno is None else None


def _end(gen: PQGen[Any]) -> None:
    """End the steps of an interrupted call on its closed connection. The end of a pipeline would use the connection
    once more, and Python would report that error as unraisable when it frees the generator."""
    with suppress(psycopg.Error, RuntimeError):  # RuntimeError: the generator wants to wait again
        gen.close()
