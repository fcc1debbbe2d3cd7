"""Find and count, over the live table and the two of history.

What a page costs: by id, by mark, by type of error and of what is running only the jobs that are meant are looked
at, each by its index. Any other question (a queue, a task, a time) walks the tables from the newest id on, until
the page is full.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from mainspring.errors import InvalidOption
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobRow, JobRows
from mainspring.states import Reason, State

from .places import read_buckets
from .where import CHUNK, by_rarity, conditions, parts, tables_of

if TYPE_CHECKING:
    from .tx import Row, Tx

_ABOVE_ALL = b"\xff" * 17
_STATES = {state.value: state for state in State}
_REASONS = {reason.value: reason for reason in Reason} | {None: None}
_COUNTED_BY = {
    State.BLOCKED: "count_blocked",
    State.SCHEDULED: "count_later",
    State.RETRYING: "count_later",
    State.READY: "count_ready",
    State.RUNNING: "count_running",
    State.SUCCEEDED: "count_finished",
    State.DEAD: "count_dead",
    State.CANCELLED: "count_finished",
}


def find(tx: Tx, query: Query, limit: int, cursor: str | None) -> JobRows:
    before = _before(cursor)
    if query.empty or limit <= 0 or not tables_of(query):
        return JobRows(())
    rows = _way(query)(tx, query, limit + 1, before)
    jobs = tuple(job_of(row) for row in rows[:limit])
    return JobRows(jobs, jobs[-1].id.hex() if len(rows) > limit else None)


def _before(cursor: str | None) -> bytes | None:
    if cursor is None:
        return None
    try:
        return bytes.fromhex(cursor)
    except ValueError:
        raise InvalidOption("cursor", cursor, "is not a cursor that a find has returned") from None


def _way(query: Query) -> Callable[[Tx, Query, int, bytes | None], list[Row]]:
    if query.ids is not None:
        return _by_ids
    return _by_mark if query.marks and query.states != (State.RUNNING,) else _page


def _page(tx: Tx, query: Query, limit: int, before: bytes | None) -> list[Row]:
    rows: list[Row] = []
    for table in tables_of(query):
        where, values = conditions(tx, query, table)
        if before is not None:
            where, values = f"{where} and id < ?", [*values, before]
        key = "+id" if "state = 'running'" in where else "id"  # sort the few that run, do not walk all
        text = _text(tx, table, where, key=key)
        rows += tx.cursor.execute(text, [*values, limit]).fetchall()
    rows.sort(key=lambda row: row[0], reverse=True)
    return rows[:limit]


def _text(tx: Tx, table: str, where: str, *, lead: str = "", key: str = "id") -> str:
    text = tx.sql["find_" + table]
    return text.replace("{lead}", lead).replace("{where}", where).replace("{key}", key)


def _by_ids(tx: Tx, query: Query, limit: int, before: bytes | None) -> list[Row]:
    rows: list[Row] = []
    for part in parts(query):
        rows += _page(tx, part, limit, before)
        if len(rows) >= limit:
            break
    return rows[:limit]


def _by_mark(tx: Tx, query: Query, limit: int, before: bytes | None) -> list[Row]:
    """From the newest job with the mark on, until the page is full."""
    first, *others = by_rarity(query.marks)
    rest = msgspec.structs.replace(query, marks=tuple(others))
    way = _in_one_table if len(tables_of(query)) == 1 else _in_all_tables
    return way(tx, first, rest, limit, before or _ABOVE_ALL)


def _in_one_table(tx: Tx, mark: str, query: Query, limit: int, before: bytes) -> list[Row]:
    """Those with the mark that stand there."""
    (table,) = tables_of(query)
    where, values = conditions(tx, query, table, led=True)
    where = f"mark = ? and job < ? and id = job and {where}"
    text = _text(tx, table, where, lead=f"{tx.sql.prefix}marks cross join ", key="job")
    return tx.cursor.execute(text, [mark, before, *values, limit]).fetchall()


def _in_all_tables(tx: Tx, mark: str, query: Query, limit: int, before: bytes) -> list[Row]:
    """Those with the mark, some at a time, wherever each of them stands."""
    rows: list[Row] = []
    last, size = before, min(limit, CHUNK)
    while len(rows) < limit:
        ids = tuple(job for (job,) in tx.all("marked", (mark, last, size)))
        if ids:
            rows += _page(tx, msgspec.structs.replace(query, ids=ids), limit, None)
            last = ids[-1]
        if len(ids) < size:
            break
        size = CHUNK
    return rows[:limit]


def count(tx: Tx, query: Query) -> dict[State, int]:
    counts = dict.fromkeys(State, 0)
    if query.empty:
        return counts
    bare = query.ids is None and msgspec.structs.replace(query, states=()).bare
    for state, n in (_counts_by_state if bare else _counts)(tx, query):
        if not query.states or state in query.states:
            counts[_STATES[state]] += n
    return counts


def _counts_by_state(tx: Tx, query: Query) -> list[Row]:
    names = {_COUNTED_BY[state] for state in query.states or State}
    return [row for name in names for row in tx.all(name)]


def _counts(tx: Tx, query: Query) -> list[Row]:
    found: list[Row] = []
    for table in tables_of(query):
        for part in parts(query):
            where, values = conditions(tx, part, table)
            text = f"select state, count(*) from {tx.sql.prefix}{table} where {where} group by state"
            found += tx.cursor.execute(text, values).fetchall()
    return found


def job_of(row: Row) -> JobRow:
    (
        job, state, reason, task, queue, lane, priority, attempt, epoch, crashes, crash_limit, early, token, worker,
        seq, enqueued, due, expires, started, finished, deps, ordered, progress, result, error, note, record, buckets,
    ) = row  # fmt: skip
    return JobRow(
        id=job, state=_STATES[state], reason=_REASONS[reason], task=task, queue=queue, lane=lane, priority=priority,
        attempt=attempt, epoch=epoch, crashes=crashes, crash_limit=crash_limit, early=bool(early), token=token,
        worker=worker, seq=seq, enqueued=enqueued, due=due, expires=expires, started=started, finished=finished,
        deps=deps, ordered=bool(ordered), progress=progress, result=result, error=error, note=note, record=record,
        buckets=tuple(sorted(read_buckets(buckets), key=lambda each: each.name)) if buckets else (),
    )  # fmt: skip
