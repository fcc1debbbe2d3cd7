"""Doing something to many jobs: in slices, each job at most once, no faster than asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from mainspring.errors import InvalidOption
from mainspring.jobs.job import Job
from mainspring.jobs.query import Query
from mainspring.jobs.records import ActResult, JobRow
from mainspring.states import Action

if TYPE_CHECKING:
    from mainspring.stores.base import Store

Which = Query | Job[Any] | UUID | str
"""Which jobs are meant: a query, or one job by its handle or id."""

SLICE = 100
"""Jobs that are read at once, with their payloads."""
MOST_IDS = 1_000
FASTEST = 1_000_000


def query_of(which: Which) -> Query:
    """The query that is meant."""
    if isinstance(which, Query):
        return which.checked()
    if isinstance(which, (Job, UUID, str)):
        return Query.of(which.id if isinstance(which, Job) else which)
    raise InvalidOption("query", which, "is not a query", hint="Give a Query, a Job or the id of a job.")


def named(which: Which) -> Query:
    """The query of something that changes jobs: one that says nothing is refused."""
    query = query_of(which)
    if query.empty:
        raise InvalidOption("query", query, "is empty", hint="To mean every job, say Query.everything().")
    return query


def asked(which: Which | None) -> Query:
    """The query of something that only looks: None asks for everything."""
    return Query.everything() if which is None else query_of(which)


async def pages(store: Store, query: Query, size: int = SLICE) -> AsyncGenerator[tuple[JobRow, ...]]:
    """The jobs of a query, newest first, slice by slice. One that fits all the while is seen once, whatever moves."""
    cursor = None
    while True:
        found = await store.find(query, limit=size, cursor=cursor)
        if found.jobs:
            yield found.jobs
        cursor = found.cursor
        if cursor is None:
            return


async def act(store: Store, action: Action, query: Query, *, reason: str = "", priority: int = 0) -> int:
    """Do it to every job of the query that is in a state for it; how many there were.

    For what takes a job out of the query: what could come back into it needs :func:`act_once`.
    """
    done = 0
    for part in _parts(query):
        acted = ActResult(more=True)
        while acted.more:
            acted = await store.act(action, part, reason=reason, priority=priority, cursor=acted.cursor)
            done += len(acted.done)
    return done


async def act_once(store: Store, action: Action, query: Query, *, rate: float | None = None) -> int:
    """Do it to every job of the query, to each once even if it fits again soon; at most ``rate`` jobs a second."""
    size = SLICE if rate is None else max(1, min(SLICE, int(rate / 10)))
    done = 0
    for part in _parts(query):
        async for rows in pages(store, part, size):
            if done and rate is not None:
                await asyncio.sleep(size / rate)
            slice_ = msgspec.structs.replace(query, ids=tuple(row.id for row in rows))
            done += len((await store.act(action, slice_)).done)
    return done


def check_rate(rate: float | None) -> None:
    """Refuse a rate that lets nothing through, and one that no store can keep up with."""
    number = isinstance(rate, (int, float)) and not isinstance(rate, bool)
    if rate is not None and not (number and 0 < rate <= FASTEST):
        why = f"is jobs per second, above 0 and at most {FASTEST:,}"
        raise InvalidOption("rate", rate, why, hint="rate=None goes as fast as the store.")


async def store_now(store: Store) -> int:
    """The store's time: a promotion of no job tells it."""
    return (await store.promote(0)).now


def _parts(query: Query) -> list[Query]:
    """The same query in pieces whose ids fit into one slice of the store."""
    if query.ids is None:
        return [query]
    return [
        msgspec.structs.replace(query, ids=query.ids[start : start + MOST_IDS])
        for start in range(0, len(query.ids), MOST_IDS)
    ]
