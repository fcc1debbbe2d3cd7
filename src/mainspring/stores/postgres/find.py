"""Find, count and tally over the live table and the two of history, in one snapshot.

What a page costs: by id, by mark, by type of error and of what is running the jobs that are meant are looked at, each
by its index. Any other question (a queue, a task, a time) walks the tables from the newest id on, until the page
is full.
"""

from __future__ import annotations

from typing import Any, LiteralString

import msgspec

from mainspring.errors import InvalidOption
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobRow, JobRows, TallyRow
from mainspring.states import Reason, State
from mainspring.stores.base import TallyBy
from mainspring.stores.postgres.limits import named
from mainspring.stores.postgres.session import Params, Rows
from mainspring.stores.postgres.statements import fill
from mainspring.stores.postgres.where import conditions, tables_of, values

Call = tuple[LiteralString, Params]

_SAME = (
    "id, state, {reason}, task, queue, lane, priority, attempt, epoch, crashes, crash_limit, early, token, worker, seq,"
)
_PROGRESS = "(select p.data from {schema}.progress p where p.job = id) as progress,"
_LIVE = (
    _SAME.replace("{reason}", "null::text as reason")
    + "enqueued, due, expires, started, null::bigint as finished,"
    + "deps, ordered is not null as ordered,"
    + _PROGRESS
    + "null::bytea as result, null::bytea as error, null::text as note, buckets, costs, record"
)
_ENDED = (
    _SAME.replace("{reason}", "reason")
    + "enqueued, null::bigint as due, expires, started, finished, 0 as deps, false as ordered,"
    + _PROGRESS
    + "result, error, note, null::text[] as buckets, null::bigint[] as costs, record"
)
_COLUMNS = {"jobs": _LIVE, "finished": _ENDED, "dead": _ENDED}
_VALUES = {"queue": "queue", "task": "task", "error": "coalesce(label, reason)"}
_MOMENTS = {"jobs": "enqueued", "finished": "finished", "dead": "finished"}
_COUNTED_BY = {
    # Each state by its own partial index where nothing else is asked. A blocked job waits for somebody.
    State.BLOCKED: """select 'blocked', (select count(distinct child) from {schema}.edges) + (
        select count(*) from {schema}.jobs j where j.held is not null
        and not exists (select 1 from {schema}.edges e where e.child = j.id)
    )""",
    State.SCHEDULED: "select 'scheduled', count(*) from {schema}.jobs where state = 'scheduled'",
    State.RETRYING: "select 'retrying', count(*) from {schema}.jobs where state = 'retrying'",
    State.READY: "select 'ready', count(*) from {schema}.jobs where state = 'ready'",
    State.RUNNING: "select 'running', count(*) from {schema}.jobs where state = 'running'",
    State.SUCCEEDED: "select 'succeeded', count(*) from {schema}.finished where state = 'succeeded'",
    State.CANCELLED: "select 'cancelled', count(*) from {schema}.finished where state = 'cancelled'",
    State.DEAD: "select 'dead', count(*) from {schema}.dead",
}


def find(query: Query, limit: int, cursor: str | None, schema: str) -> Call | None:
    """The statement that finds a page; None when there can be none."""
    before = _before(cursor)
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
    # One more than asked for: whether there is a next page.
    return fill(text, schema), {**values(query), "before": before, "limit": limit + 1}


def found(rows: Rows, limit: int) -> JobRows:
    jobs = tuple(job_row(row) for row in rows[:limit])
    return JobRows(jobs, jobs[-1].id.hex() if jobs and len(rows) > limit else None)


def count(query: Query, schema: str) -> Call | None:
    tables = tables_of(query)
    if not tables:
        return None
    if msgspec.structs.replace(query, states=(), all=True) == Query.everything():
        parts = [_COUNTED_BY[state] for state in query.states or State]
    else:
        parts = [
            f"select state, count(*) from {{schema}}.{table} where {conditions(query, table)} group by 1"
            for table in tables
        ]
    return fill(" union all ".join(parts), schema), values(query)


def counted(rows: Rows) -> dict[State, int]:
    return dict.fromkeys(State, 0) | {State(state): number for state, number in rows}


def tally(query: Query, by: TallyBy, schema: str) -> Call | None:
    tables = [table for table in tables_of(query) if by != "error" or table == "dead"]
    parts = [
        f"select {_VALUES[by]}, state, count(*), min({_MOMENTS[table]}), max({_MOMENTS[table]})"
        f" from {{schema}}.{table} where {conditions(query, table)} group by 1, 2"
        for table in tables
    ]
    return (fill(" union all ".join(parts), schema), values(query)) if parts else None


def tallied(rows: Rows) -> list[TallyRow]:
    found = [TallyRow(row[0], State(row[1]), *row[2:]) for row in rows]
    return sorted(found, key=lambda each: (each.value, each.state))


def job_row(row: tuple[Any, ...]) -> JobRow:
    return JobRow(
        id=row[0], state=State(row[1]), reason=None if row[2] is None else Reason(row[2]), task=row[3], queue=row[4],
        lane=row[5], priority=row[6], attempt=row[7], epoch=row[8], crashes=row[9], crash_limit=row[10], early=row[11],
        token=row[12], worker=row[13], seq=row[14], enqueued=row[15], due=row[16], expires=row[17], started=row[18],
        finished=row[19], deps=row[20], ordered=row[21], progress=row[22], result=row[23], error=row[24],
        note=row[25], buckets=named(row[26], row[27]), record=row[28],
    )  # fmt: skip


def _before(cursor: str | None) -> bytes | None:
    try:
        return None if cursor is None else bytes.fromhex(cursor)
    except ValueError:
        raise InvalidOption("cursor", cursor, "is not a cursor that a find has returned") from None
