"""Questions about jobs: find, count and tally."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from mainspring.jobs.query import Query
from mainspring.jobs.records import JobRows, TallyRow
from mainspring.states import State
from mainspring.stores.base import TallyBy

from . import rows, where
from .connection import Connection
from .heads import STATES

ONE_LOOK = 5_000
"""Jobs that one script looks at for exact numbers in one snapshot; it takes a few milliseconds."""

PAGE = 1_000
"""Jobs that one script hands out."""

_Groups = dict[tuple[str, State], TallyRow]


async def find(connection: Connection, query: Query, limit: int, cursor: str | None) -> JobRows:
    """Page through the ids, newest first. Each slice is one atomic step, so no job is met twice or in two states."""
    walk = where.Walk(query, cursor)
    if query.empty or limit <= 0:
        return JobRows(())
    found: list[list[Any]] = []
    wanted = limit + 1  # one more than asked tells whether there is a next page
    while walk.left is not None and len(found) < wanted and not walk.is_late:
        size = min(wanted - len(found), PAGE)
        some, went_to = await connection.run("find", where.packed(query), walk.left, size)
        found += some
        walk.went(walk.left, went_to)
    jobs = tuple(rows.job_row(row) for row in found[:limit])
    return JobRows(jobs, str(UUID(bytes=jobs[-1].id)) if len(found) > limit else walk.cursor)


async def count(connection: Connection, query: Query, counts_key: str) -> dict[State, int]:
    """From the numbers that every move keeps, in one step, if they can answer; else by looking at the jobs."""
    totals = dict.fromkeys(State, 0)
    if query.empty:
        return totals
    if _is_counted(query):
        groups = await _counted(connection, query, counts_key)
        for state, _, _, _, number in groups:
            totals[state] += number
        return totals
    for (_, state), group in (await _walk(connection, query, ""))[0].items():
        totals[state] += group.count
    return totals


async def tally(connection: Connection, query: Query, by: TallyBy, counts_key: str) -> list[TallyRow]:
    """The jobs are looked at for their moments, the oldest ids first and as long as there is time. Of many, the numbers
    are those that every move keeps: one snapshot."""
    if query.empty:
        return []
    asked = query
    if by == "error":
        if query.states and State.DEAD not in query.states:
            return []
        asked = msgspec.structs.replace(query, states=(State.DEAD,))
    counted = _is_counted(asked)
    found, now, at_once = await _walk(connection, asked, by, in_time=counted)
    if counted and not at_once:
        found = _with_numbers(found, await _counted(connection, asked, counts_key), by, now)
    return [found[key] for key in sorted(found)]


async def _walk(connection: Connection, query: Query, by: str, *, in_time: bool = False) -> tuple[_Groups, int, bool]:
    """Numbers and moments by value and state, the store's time, and whether it was one step."""
    found: _Groups = {}
    now, steps, walk = 0, 0, where.Walk(query, None)
    while walk.left is not None and not (in_time and walk.is_late):
        now, groups, went_to = await connection.run("tally", where.packed(query), walk.left, by, ONE_LOOK)
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
    """Whether the kept numbers tell enough."""
    return query.ids is None and not query.marks and query.since is query.until is query.ended_before is None


async def _counted(connection: Connection, query: Query, counts_key: str) -> list[tuple[State, str, str, str, int]]:
    """State, queue, task, error and number of what the query means."""
    fields: dict[bytes, bytes] = await connection.command("HGETALL", counts_key)
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
    """The counted numbers with the moments found. What came while we looked has no other moment than now."""
    exact: _Groups = {}
    for state, queue, task, error, number in groups:
        value = {"queue": queue, "task": task, "error": error}[by]
        key = value, state
        seen = found.get(key)
        first, last = (seen.first, seen.last) if seen else (now, now)
        each = TallyRow(value, state, number, first, last)
        exact[key] = _sum(exact[key], each) if key in exact else each
    return exact
