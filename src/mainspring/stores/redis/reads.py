"""Questions about jobs: ``find.lua``, ``cancel.lua`` and the counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from mainspring.errors import InvalidOption
from mainspring.query import Query
from mainspring.records import Acted, Found
from mainspring.states import State

from . import rows
from .connection import Connection
from .unbuilt import check_query

_pack = msgspec.msgpack.Encoder().encode


async def find(connection: Connection, query: Query, limit: int, cursor: str | None) -> Found:
    """Page through the ids, newest first. Each slice is one atomic step, so no job is met twice or in two states."""
    after = _read_cursor(cursor)
    found: list[list[Any]] = []
    wanted = limit + 1  # one more than asked tells whether there is a next page
    while len(found) < wanted:
        argument = after if query.ids is None else _ids(query.ids, after)
        rows_, went_to = await connection.run("find", _query(query), argument, wanted - len(found))
        found += rows_
        if not went_to:
            break
        after = went_to
    jobs = tuple(rows.job_row(row) for row in found[:limit])
    return Found(jobs, str(UUID(bytes=jobs[-1].id)) if jobs and len(found) > limit else None)


async def cancel(connection: Connection, query: Query, limit: int, reason: str) -> Acted:
    """Cancel in slices until ``limit`` are done or the query is exhausted."""
    done: list[bytes] = []
    refused: list[tuple[bytes, State]] = []
    after = b""
    while True:
        argument = after if query.ids is None else _ids(query.ids, after)
        some, others, went_to = await connection.run("cancel", _query(query), argument, limit - len(done), reason)
        done += some
        refused += ((job, State(state.decode())) for job, state in others)
        if not went_to or len(done) >= limit:
            return Acted(tuple(done), tuple(refused), bool(went_to))
        after = went_to


async def count(connection: Connection, query: Query, counts_key: str) -> dict[State, int]:
    """One command or one script, so one snapshot."""
    check_query(query)
    totals = dict.fromkeys(State, 0)
    if query.ids is not None:
        some, _ = await connection.run("find", _query(query), _ids(query.ids, b""), 2**31)
        for row in some:
            totals[rows.job_row(row).state] += 1
        return totals
    fields: dict[bytes, bytes] = await connection.command("HGETALL", counts_key)
    for field, number in fields.items():
        state, queue, task = field.decode().split("\0")
        if _means(query, state, queue, task):
            totals[State(state)] += int(number)
    return totals


def _means(query: Query, state: str, queue: str, task: str) -> bool:
    return (
        not query.empty
        and (not query.states or state in query.states)
        and (not query.queues or queue in query.queues)
        and (not query.tasks or task in query.tasks)
    )


def _query(query: Query) -> bytes:
    check_query(query)
    return _pack((query.ids is not None, query.states, query.queues, query.tasks))


def _ids(ids: Sequence[bytes], after: bytes) -> bytes:
    return b"".join(sorted({job for job in ids if not after or job < after}, reverse=True))


def _read_cursor(cursor: str | None) -> bytes:
    if cursor is None:
        return b""
    try:
        return UUID(cursor).bytes
    except ValueError:
        raise InvalidOption(
            "cursor", cursor, "is not a cursor that find() gave", hint="Hand back Found.cursor."
        ) from None
