"""Queries: find, count and tally jobs, and a query as ``lua/_query.lua`` reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

import msgspec

from mainspring.errors import InvalidOption
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobRows, TallyRow
from mainspring.states import State
from mainspring.stores.base import TallyBy
from mainspring.stores.redis import rows
from mainspring.stores.redis.driver.client import RedisClient
from mainspring.stores.redis.driver.constants import CODES, ID_BYTES, STATES

IDS_SLICE: Final = 5_000
"""Ids that one script is asked for."""
TALLY_SLICE: Final = 5_000
"""Jobs that one script looks at for exact numbers in one snapshot; this takes a few milliseconds."""
PAGE: Final = 1_000
"""Jobs that one script returns."""
TIME_LIMIT: Final = 3.0
"""Seconds after which a walk through the jobs stops and returns a cursor: less than the deadline of a call."""

_Groups = dict[tuple[str, State], TallyRow]
_pack = msgspec.msgpack.Encoder().encode

# ---- a query as the scripts read it -------------------------------------------------------------


def pack_query(query: Query) -> bytes:
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


class QueryWalk:
    """The way of one call through the jobs of a query, script by script, for ``TIME_LIMIT`` at most.

    ``left`` is the argument of the next script, None at the end; ``cursor`` is where another call can go on.
    """

    def __init__(self, query: Query, cursor: str | None, size: int = IDS_SLICE) -> None:
        self._query = query
        self._arguments = _arguments(query, _read_cursor(cursor), size)
        self._until = asyncio.get_running_loop().time() + TIME_LIMIT
        self._went_to: bytes | None = None
        self.left = next(self._arguments, None)

    @property
    def is_late(self) -> bool:
        return self.left is not None and asyncio.get_running_loop().time() > self._until

    @property
    def cursor(self) -> str | None:
        return None if self.left is None or self._went_to is None else str(UUID(bytes=self._went_to))

    def went(self, argument: bytes, to: bytes | None) -> None:
        """A script went through the argument up to the id ``to``; None: to its end."""
        self.left = _rest(self._query, argument, to)
        self._went_to = to or argument[-ID_BYTES:]
        if self.left is None:
            self.left = next(self._arguments, None)


def _arguments(query: Query, after: bytes, size: int) -> Iterator[bytes]:
    """The ids of a query, in slices; or the id after which the scripts go through all jobs."""
    if query.ids is None:
        yield after
        return
    ids = sorted({job for job in query.ids if not after or job < after}, reverse=True)
    for start in range(0, len(ids), size):
        yield b"".join(ids[start : start + size])


def _rest(query: Query, argument: bytes, went_to: bytes | None) -> bytes | None:
    """The rest of an argument after the id ``went_to``; None at its end."""
    if went_to is None or query.ids is None:
        return went_to
    at = 0
    while argument[at : at + ID_BYTES] != went_to:
        at += ID_BYTES
    return argument[at + ID_BYTES :] or None


def _read_cursor(cursor: str | None) -> bytes:
    if cursor is None:
        return b""
    try:
        return UUID(cursor).bytes
    except ValueError:
        raise InvalidOption(
            "cursor", cursor, "is not a cursor that find() gave", hint="Hand back Found.cursor."
        ) from None


# ---- calls --------------------------------------------------------------------------------------


async def find(client: RedisClient, query: Query, limit: int, cursor: str | None) -> JobRows:
    """Page through the ids, newest first. Each slice is one atomic step, so no job is met twice or in two states."""
    walk = QueryWalk(query, cursor)
    if query.empty or limit <= 0:
        return JobRows(())
    found: list[list[Any]] = []
    wanted = limit + 1  # one more than asked shows whether there is a next page
    while walk.left is not None and len(found) < wanted and not walk.is_late:
        size = min(wanted - len(found), PAGE)
        some, went_to = await client.run("find", pack_query(query), walk.left, size)
        found += some
        walk.went(walk.left, went_to)
    jobs = tuple(rows.job_row(row) for row in found[:limit])
    return JobRows(jobs, str(UUID(bytes=jobs[-1].id)) if len(found) > limit else walk.cursor)


async def count(client: RedisClient, query: Query) -> dict[State, int]:
    """From the hash ``counts``, in one step, where that has the numbers; else by looking at the jobs."""
    totals = dict.fromkeys(State, 0)
    if query.empty:
        return totals
    if _is_counted(query):
        for state, _, _, _, number in await _counted(client, query):
            totals[state] += number
        return totals
    for (_, state), group in (await _walk(client, query, ""))[0].items():
        totals[state] += group.count
    return totals


async def tally(client: RedisClient, query: Query, by: TallyBy) -> list[TallyRow]:
    """Look at the jobs for their moments, the oldest ids first, for ``TIME_LIMIT`` at most. If they are more than one
    script looks at, the numbers come from the hash ``counts``, which is one snapshot."""
    if query.empty:
        return []
    asked = query
    if by == "error":
        if query.states and State.DEAD not in query.states:
            return []
        asked = msgspec.structs.replace(query, states=(State.DEAD,))
    counted = _is_counted(asked)
    found, now, at_once = await _walk(client, asked, by, in_time=counted)
    if counted and not at_once:
        found = _with_numbers(found, await _counted(client, asked), by, now)
    return [found[key] for key in sorted(found)]


async def _walk(client: RedisClient, query: Query, by: str, *, in_time: bool = False) -> tuple[_Groups, int, bool]:
    """Numbers and moments by value and state, the store's time, and whether one script was enough."""
    found: _Groups = {}
    now, steps, walk = 0, 0, QueryWalk(query, None)
    while walk.left is not None and not (in_time and walk.is_late):
        now, groups, went_to = await client.run("tally", pack_query(query), walk.left, by, TALLY_SLICE)
        walk.went(walk.left, went_to)
        steps += 1
        for value, state, number, first, last in groups:
            each = TallyRow(value.decode(), STATES[state - 1], number, first, last)
            key = each.value, each.state
            found[key] = _sum(found[key], each) if key in found else each
    return found, now, steps <= 1


def _sum(one: TallyRow, other: TallyRow) -> TallyRow:
    return TallyRow(
        one.value, one.state, one.count + other.count, min(one.first, other.first), max(one.last, other.last)
    )


def _is_counted(query: Query) -> bool:
    """Whether the hash ``counts`` has the numbers of this query."""
    return query.ids is None and not query.marks and query.since is query.until is query.ended_before is None


async def _counted(client: RedisClient, query: Query) -> list[tuple[State, str, str, str, int]]:
    """State, queue, task, error and number of the jobs of the query."""
    fields: dict[bytes, bytes] = await client.command("HGETALL", client.key("counts"))
    groups = []
    for field, number in fields.items():
        state = STATES[field[0] - 1]
        queue, task, reason, label = (*field[1:].decode().split("\0"), "", "")[:4]
        if (
            (not query.states or state in query.states)
            and (not query.queues or queue in query.queues)
            and (not query.tasks or task in query.tasks)
            and (not query.reasons or reason in query.reasons)
            and (not query.errors or (state is State.DEAD and (label or reason) in query.errors))
        ):
            groups.append((state, queue, task, label or reason, int(number)))
    return groups


def _with_numbers(found: _Groups, groups: list[tuple[State, str, str, str, int]], by: TallyBy, now: int) -> _Groups:
    """The counted numbers with the moments found. Jobs that came meanwhile have the moment ``now``."""
    exact: _Groups = {}
    for state, queue, task, error, number in groups:
        value = {"queue": queue, "task": task, "error": error}[by]
        key = value, state
        seen = found.get(key)
        first, last = (seen.first, seen.last) if seen else (now, now)
        each = TallyRow(value, state, number, first, last)
        exact[key] = _sum(exact[key], each) if key in exact else each
    return exact
