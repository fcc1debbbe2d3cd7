"""How a connection is made, and how it ends: every wait has a limit, and no connection is used after one was cut short.

What a session must be told is told as it starts, so that a call is one statement and one round trip. Behind a pooler
a session is shared with strangers: there nothing is said to it, and each transaction says it for itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psycopg
from psycopg import waiting
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow

from mainspring.errors import BadUrl

R = TypeVar("R")

CALL_LIMIT = 10.0
"""Seconds: a blocking call ends by then, and the server ends a statement whose client has gone."""

_DEFAULTS: dict[str, Any] = {
    "application_name": "mainspring",
    "connect_timeout": 3,
    # A link that is half open is seen within 10 s, whether we wait for an answer or for one to be taken.
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
    # A server that sends to a client that has vanished or does not read is ended by the socket's time limit alone.
    "tcp_user_timeout": "9s",
    "tcp_keepalives_idle": "30s",
    "tcp_keepalives_interval": "10s",
    "tcp_keepalives_count": "3",
}


def parameters(url: str) -> dict[str, Any]:
    """What a URL says, with our own limits where it says nothing."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError as why:
        raise BadUrl(url, str(why).strip()) from None
    return {**_DEFAULTS, **given}


def session_options(given: dict[str, Any], **more: str) -> dict[str, Any]:
    """The same, with the settings of a session that is ours alone."""
    said = " ".join(f"-c {name}={value}" for name, value in {**_SESSION, **more}.items())
    return {**given, "options": f"{given.get('options') or ''} {said}".strip()}


def listening_at(url: str) -> Callable[[], Awaitable[AsyncLink]]:
    """How to make the connection to listen on."""
    told = session_options(parameters(url))
    return lambda: AsyncLink.connect(**told, autocommit=True)


class AsyncLink(psycopg.AsyncConnection[TupleRow]):
    """A connection that is closed when a call on it is cancelled: what it was saying is unknown from then on.

    The driver would wait for the server to agree to be interrupted, and a server that does not answer would
    hold up a caller whose time is over.
    """

    async def wait(self, gen: PQGen[R], interval: float = 0.1, *more: Any, **named: Any) -> R:
        try:
            return await waiting.wait_async(gen, self.pgconn.socket, interval, *more, **named)
        except asyncio.CancelledError:
            self.drop()
            raise

    def drop(self) -> None:
        """Close, without a word to the event loop."""
        self._closed = True
        self.pgconn.finish()

    def __del__(self, *_: Any) -> None:
        """A program need not close its app: what is open goes with it, without the driver's warning."""


class Link(psycopg.Connection[TupleRow]):
    """A blocking connection: it waits for an answer until the limit of the call, then it is closed."""

    until: float | None = None
    """The monotonic time by which the call that has this connection must end."""

    def wait(self, gen: PQGen[R], interval: float = 0.1, *more: Any, **named: Any) -> R:
        until = time.monotonic() + CALL_LIMIT if self.until is None else self.until
        return super().wait(self._before(until, gen), interval, *more, **named)

    def _before(self, until: float, gen: PQGen[R]) -> PQGen[R]:
        """The same, given up when its time is over: whoever waits asks it each ``interval``, ready or not."""
        try:
            wanted = next(gen)
            while True:
                wanted = gen.send((yield wanted))
                if time.monotonic() >= until:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer in {CALL_LIMIT:g} s")
        except StopIteration as over:
            answer: R = over.value
            return answer

    def __del__(self, *_: Any) -> None:
        """As above."""
