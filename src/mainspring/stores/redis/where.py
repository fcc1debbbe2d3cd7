"""A query as ``_select.lua`` reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from uuid import UUID

import msgspec

from mainspring.errors import InvalidOption
from mainspring.jobs.query import Query

from .heads import CODES

CHUNK = 5_000
"""Ids that one script is asked for."""
WIDTH = 16
"""Bytes of an id."""
PATIENCE = 3.0
"""Seconds after which a walk through the jobs says how far it came: less than the deadline of a call."""

_pack = msgspec.msgpack.Encoder().encode


def packed(query: Query) -> bytes:
    """A missing time is False: nil would end an array in Lua."""
    times = (False if at is None else at for at in (query.since, query.until, query.ended_before))
    return _pack(
        (
            query.ids is not None,
            [CODES[state] for state in query.states],
            query.queues,
            query.tasks,
            sorted(query.marks, key=lambda mark: not mark.startswith("^")),  # the children of one parent are few
            query.reasons,
            query.errors,
            *times,
        )
    )


def arguments(query: Query, after: bytes, size: int = CHUNK) -> Iterator[bytes]:
    """What the query goes through: its ids, some at a time; or all jobs behind ``after``."""
    if query.ids is None:
        yield after
        return
    ids = sorted({job for job in query.ids if not after or job < after}, reverse=True)
    for start in range(0, len(ids), size):
        yield b"".join(ids[start : start + size])


def rest(query: Query, argument: bytes, went_to: bytes | None) -> bytes | None:
    """What to go on with after a script went through an argument as far as ``went_to``; None when that was all."""
    if went_to is None or query.ids is None:
        return went_to
    at = 0
    while argument[at : at + WIDTH] != went_to:
        at += WIDTH
    return argument[at + WIDTH :] or None


class Walk:
    """The way of one call through the jobs of a query, script by script, as far as the time allows.

    ``left`` is the argument of the next script, None at the end; ``cursor`` is where another call can go on.
    """

    def __init__(self, query: Query, cursor: str | None, size: int = CHUNK) -> None:
        self._query = query
        self._arguments = arguments(query, read_cursor(cursor), size)
        self._until = asyncio.get_running_loop().time() + PATIENCE
        self._went_to: bytes | None = None
        self.left = next(self._arguments, None)

    @property
    def is_late(self) -> bool:
        return self.left is not None and asyncio.get_running_loop().time() > self._until

    @property
    def cursor(self) -> str | None:
        return None if self.left is None or self._went_to is None else str(UUID(bytes=self._went_to))

    def went(self, argument: bytes, to: bytes | None) -> None:
        """A script went through the argument as far as ``to``; None: all of it."""
        self.left = rest(self._query, argument, to)
        self._went_to = to or argument[-WIDTH:]
        if self.left is None:
            self.left = next(self._arguments, None)


def read_cursor(cursor: str | None) -> bytes:
    if cursor is None:
        return b""
    try:
        return UUID(cursor).bytes
    except ValueError:
        raise InvalidOption(
            "cursor", cursor, "is not a cursor that find() gave", hint="Hand back Found.cursor."
        ) from None
