"""Find, count and tally over the live table and the two tables of history, in one snapshot; a query as WHERE.

What a page costs: a query by id, by mark, by type of error or for running jobs looks only at the jobs that it means,
each by its index. Any other query (a queue, a task, a time) walks the tables from the newest id on, until the page is
full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mainspring.errors import InvalidOption
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobRows, TallyRow
from mainspring.states import FINAL, REASONS, State
from mainspring.stores.base import TallyBy
from mainspring.stores.postgres.driver.database import Database
from mainspring.stores.postgres.driver.session import Step
from mainspring.stores.postgres.driver.statements import fill_schema
from mainspring.stores.postgres.jobs.finish import TABLES
from mainspring.stores.postgres.rows import JOB_COLUMNS, job_row

_PROGRESS = "(select p.data from {schema}.progress p where p.job = id)"
_DEPS = (
    f"case when state || '' = '{State.BLOCKED.value}' then deps"
    " - (select count(*)::integer from {schema}.edges e where e.parent = id and e.child = id) else deps end"
)
"""Without the edge of an open join to itself."""
_LIVE_VALUES = {
    "deps": _DEPS, "reason": "null::text", "finished": "null::bigint", "ran": "null::bigint",
    "ordered": "ordered is not null",
    "progress": _PROGRESS, "result": "null::bytea", "error": "null::bytea", "note": "null::text",
}  # fmt: skip
_ENDED_VALUES = {
    "due": "null::bigint",
    "deps": "0",
    "ordered": "false",
    "progress": _PROGRESS,
}


def _columns(values: dict[str, str]) -> str:
    """The columns of :func:`job_row`; ``values`` has the expressions for columns that a table does not have."""
    return ", ".join(f"{values[name]} as {name}" if name in values else name for name in JOB_COLUMNS)


_COLUMNS = {table: _columns(_LIVE_VALUES if table == "jobs" else _ENDED_VALUES) for table in TABLES}
_VALUES = {"queue": "queue", "task": "task", "error": "coalesce(label, reason)"}
_MOMENTS = {"jobs": "enqueued", "finished": "finished", "dead": "finished"}
_BLOCKED = f"select '{State.BLOCKED.value}', count(distinct child) from {{schema}}.edges"
"""A blocked job has a parent."""
_COUNT_BY_STATE = {
    state: f"select '{state.value}', count(*) from {{schema}}.{table} where state = '{state.value}'"
    for table, states in TABLES.items()
    for state in states
} | {State.BLOCKED: _BLOCKED, State.DEAD: f"select '{State.DEAD.value}', count(*) from {{schema}}.dead"}
"""The statement that counts all jobs of a state, by the state's own partial index."""


async def find(db: Database, query: Query, limit: int, cursor: str | None) -> JobRows:
    rows = await db.query(_find_call(query, limit, cursor, db.schema))
    jobs = tuple(job_row(row) for row in rows[:limit])
    return JobRows(jobs, jobs[-1].id.hex() if jobs and len(rows) > limit else None)


async def count(db: Database, query: Query) -> dict[State, int]:
    rows = await db.query(_count_call(query, db.schema))
    return dict.fromkeys(State, 0) | {State(state): number for state, number in rows}


async def tally(db: Database, query: Query, by: TallyBy) -> list[TallyRow]:
    rows = await db.query(_tally_call(query, by, db.schema))
    found = [TallyRow(value, State(state), *more) for value, state, *more in rows]
    return sorted(found, key=lambda each: (each.value, each.state))


def _find_call(query: Query, limit: int, cursor: str | None, schema: str) -> Step | None:
    """The statement that finds a page; None when no job can match."""
    before = _parse_cursor(cursor)
    tables = tables_of(query)
    if limit <= 0 or not tables:
        return None
    below = "" if before is None else " and id < %(before)s"
    parts = [
        f"(select {_COLUMNS[table]} from {{schema}}.{table} where {conditions(query, table)}{below}"
        " order by id desc limit %(limit)s)"
        for table in tables
    ]
    text = "select * from (" + " union all ".join(parts) + ") as found order by id desc limit %(limit)s"
    # One row more than the page: it tells whether there is a next page.
    return fill_schema(text, schema), {**values(query), "before": before, "limit": limit + 1}


def _count_call(query: Query, schema: str) -> Step | None:
    tables = tables_of(query)
    if not tables:
        return None
    if msgspec.structs.replace(query, states=(), all=True) == Query.everything():
        parts = [_COUNT_BY_STATE[state] for state in query.states or State]
    else:
        parts = [
            f"select state, count(*) from {{schema}}.{table} where {conditions(query, table)} group by 1"
            for table in tables
        ]
    return fill_schema(" union all ".join(parts), schema), values(query)


def _tally_call(query: Query, by: TallyBy, schema: str) -> Step | None:
    tables = [table for table in tables_of(query) if by != "error" or table == "dead"]
    parts = [
        f"select {_VALUES[by]}, state, count(*), min({_MOMENTS[table]}), max({_MOMENTS[table]})"
        f" from {{schema}}.{table} where {conditions(query, table)} group by 1, 2"
        for table in tables
    ]
    return (fill_schema(" union all ".join(parts), schema), values(query)) if parts else None


def _parse_cursor(cursor: str | None) -> bytes | None:
    try:
        return None if cursor is None else bytes.fromhex(cursor)
    except ValueError:
        raise InvalidOption("cursor", cursor, "is not a cursor that a find has returned") from None


# ---- a query as WHERE ---------------------------------------------------------------------------------

_LISTS = {"queues": "queue", "tasks": "task", "reasons": "reason", "errors": "coalesce(label, reason)"}
_BOUNDS = {
    "since": "enqueued >= %(since)s",
    "until": "enqueued < %(until)s",
    "ended_before": "finished < %(ended_before)s",
}


def tables_of(query: Query) -> list[str]:
    """The tables that can hold jobs of this query: live jobs have no reason, no error and no end."""
    states = set() if query.empty else set(query.states or State)
    if query.reasons:
        states &= {state for state, reasons in REASONS.items() if reasons & set(query.reasons)}
    if query.errors:
        states &= TABLES["dead"]
    if query.ended_before is not None:
        states &= FINAL
    return [table for table, possible in TABLES.items() if states & possible]


def conditions(query: Query, table: str) -> str:
    """The WHERE of a query over one of its tables; :func:`values` has its parameters."""
    terms = ["true"]
    states = [state for state in query.states if state in TABLES[table]]
    if states and len(states) < len(TABLES[table]):
        # As literals, for the texts are ours: the planner matches partial indexes with literals only.
        terms.append("state in (" + ", ".join(f"'{state.value}'" for state in states) + ")")
    if query.ids is not None:
        terms.append("id = any(%(ids)s::bytea[])")
    for name, column in _LISTS.items():
        if getattr(query, name):
            terms.append(f"{column} = any(%({name})s::text[])")
    for name, term in _BOUNDS.items():
        if getattr(query, name) is not None:
            terms.append(term)
    terms += [f"id in (select job from {{schema}}.marks where mark = %(mark{n})s)" for n in range(len(query.marks))]
    return " and ".join(terms)


def values(query: Query) -> dict[str, Any]:
    """The parameters that :func:`conditions` names."""
    found: dict[str, Any] = {name: list(getattr(query, name)) for name in _LISTS}
    found |= {name: getattr(query, name) for name in _BOUNDS}
    found |= {f"mark{n}": mark for n, mark in enumerate(query.marks)}
    return found | {"ids": _distinct_ids(query.ids)}


def _distinct_ids(ids: Sequence[bytes] | None) -> list[bytes] | None:
    return None if ids is None else sorted(set(ids))
