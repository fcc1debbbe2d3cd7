"""Actions on many jobs: in slices, on each job at most once, no faster than the given rate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from mainspring.errors import InvalidOption, WrongState
from mainspring.flows.members import find_flow_mark, find_refused, has_open_flows, warn_of_refused
from mainspring.jobs.job import Job
from mainspring.jobs.known_names import check_names
from mainspring.jobs.query import FLOW_MARK, MOMENTS, Query
from mainspring.jobs.records import ActResult, JobRow
from mainspring.states import Action

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.client.client import Client
    from mainspring.stores.base import Store

Which = Query | Job[Any] | UUID | str
"""The jobs of a call: a query, or one job by its handle or its id."""

SLICE = 100
"""The number of jobs that are read at once, with their payloads."""
MAX_IDS = 1_000
"""The number of ids that one query to a store may name."""
FASTEST = 1_000_000
RELATIVE = (str, int, float, timedelta)
"""Types of a duration, which a condition counts back from now."""


def to_query(which: Which) -> Query:
    """Return the query of a query, a job or an id."""
    if isinstance(which, Query):
        return which.checked()
    if isinstance(which, (Job, UUID, str)):
        return Query.of(which.id if isinstance(which, Job) else which)
    raise InvalidOption("query", which, "is not a query", hint="Pass a Query, a Job or the id of a job.")


async def query_to_change(app: Mainspring, verb: str, which: Which | None, conditions: Mapping[str, Any]) -> Query:
    """Return the query of a call that changes jobs. An empty query is refused, and so is an unknown task or queue."""
    query = await _select(app.client, verb, which, conditions)
    if query is None or query.empty:
        raise InvalidOption("query", query, "is empty", hint="To act on every job, pass Query.everything().")
    await check_names(app, query)
    return query


async def query_to_read(app: Mainspring, verb: str, which: Which | None, conditions: Mapping[str, Any]) -> Query:
    """Return the query of a call that only reads jobs. No query and no condition means every job."""
    query = await _select(app.client, verb, which, conditions)
    return Query.everything() if query is None else query


def check_conditions(verb: str, which: Which | None, conditions: Mapping[str, Any]) -> Query | None:
    """Check the jobs of a call that reads the store later; durations count back from the clock of this machine."""
    if not conditions:
        return None if which is None else to_query(which)
    if which is not None:
        hint = f"Put the conditions into one place: {verb}(state=...), or {verb}(Query.where(state=...))."
        raise InvalidOption("query", which, "cannot be given together with conditions", subject=verb, hint=hint)
    built = Query.build(verb, conditions, time.time_ns() // 1000)
    return None if built.empty else built


async def _select(client: Client, verb: str, which: Which | None, conditions: Mapping[str, Any]) -> Query | None:
    """The jobs of a call. A duration counts back from the time of the store, which may be that of a test."""
    query = check_conditions(verb, which, conditions)
    if query is not None and any(isinstance(conditions.get(name), RELATIVE) for name in MOMENTS):
        query = Query.build(verb, conditions, await (await client.store()).now())
    if query is not None and any(mark.startswith(FLOW_MARK) for mark in query.marks):
        store = await client.store()
        return msgspec.structs.replace(query, marks=tuple([await find_flow_mark(store, mark) for mark in query.marks]))
    return query


async def pages(store: Store, query: Query, size: int = SLICE) -> AsyncGenerator[tuple[JobRow, ...]]:
    """Read the jobs of a query, newest first, in slices. A job that matches the whole time is returned exactly once."""
    cursor = None
    while True:
        found = await store.find(query, limit=size, cursor=cursor)
        if found.jobs:
            yield found.jobs
        cursor = found.cursor
        if cursor is None:
            return


async def act(
    store: Store, action: Action, query: Query, *, reason: str = "", priority: int = 0, purge: bool = False
) -> int:
    """Act on every job of the query whose state allows it. Return the number of jobs that were changed.

    Use it for an action after which a job no longer matches the query. If a job can match again, use
    :func:`act_once`. A delete leaves out jobs that their flow still needs, unless it is a ``purge``.
    """
    if action is Action.DELETE and not purge and await has_open_flows(store):
        return await act_once(store, action, query)
    done = 0
    for part in _split_ids(query):
        acted = ActResult(more=True)
        while acted.more:
            acted = await store.act(action, part, reason=reason, priority=priority, cursor=acted.cursor)
            done += len(acted.done)
    return done


async def act_once(store: Store, action: Action, query: Query, *, rate: float | None = None) -> int:
    """Act on each job of the query once, also if the job matches again soon; at most ``rate`` jobs per second.

    Jobs that their flow still needs are left out, with a warning; ``WrongState`` if the query names one such job.
    """
    size = SLICE if rate is None else max(1, min(SLICE, int(rate / 10)))
    done = 0
    refused: list[WrongState] = []
    for part in _split_ids(query):
        async for rows in pages(store, part, size):
            if done and rate is not None:
                await asyncio.sleep(size / rate)
            errors = await find_refused(store, action, rows)
            if errors and query.ids is not None and len(query.ids) == 1:
                raise errors[query.ids[0]]
            refused += errors.values()
            if ids := tuple(row.id for row in rows if row.id not in errors):
                done += len((await store.act(action, msgspec.structs.replace(query, ids=ids))).done)
    warn_of_refused(action, refused)
    return done


def check_rate(rate: float | None) -> None:
    """Refuse a rate of zero or less, and a rate that no store reaches."""
    number = isinstance(rate, (int, float)) and not isinstance(rate, bool)
    if rate is not None and not (number and 0 < rate <= FASTEST):
        why = f"must be a number of jobs per second, greater than 0 and at most {FASTEST:,}"
        raise InvalidOption("rate", rate, why, hint="rate=None sets no limit.")


def _split_ids(query: Query) -> list[Query]:
    """Split a query with many ids into queries that a store accepts."""
    if query.ids is None:
        return [query]
    return [
        msgspec.structs.replace(query, ids=query.ids[start : start + MAX_IDS])
        for start in range(0, len(query.ids), MAX_IDS)
    ]
