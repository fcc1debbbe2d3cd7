"""Questions about jobs, over the live table and the two of history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from mainspring.errors import InvalidOption
from mainspring.query import Query
from mainspring.records import Found, JobRow
from mainspring.states import FINAL, LIVE, Reason, State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .tx import Row, Tx

TABLES: dict[str, frozenset[State]] = {
    "jobs": LIVE,
    "finished": FINAL - {State.DEAD},
    "dead": frozenset({State.DEAD}),
}
_CHUNK = 500
_STATES = {state.value: state for state in State}
_REASONS = {reason.value: reason for reason in Reason} | {None: None}


def find(tx: Tx, query: Query, limit: int, cursor: str | None) -> Found:
    before = _before(cursor)
    if query.empty or limit <= 0:
        return Found(())
    rows = (_page if query.ids is None else _by_ids)(tx, query, limit + 1, before)
    jobs = tuple(job_of(row) for row in rows[:limit])
    return Found(jobs, jobs[-1].id.hex() if len(rows) > limit else None)


def _before(cursor: str | None) -> bytes | None:
    if cursor is None:
        return None
    try:
        return bytes.fromhex(cursor)
    except ValueError:
        raise InvalidOption("cursor", cursor, "is not a cursor that a find has returned") from None


def _page(tx: Tx, query: Query, limit: int, before: bytes | None) -> list[Row]:
    rows: list[Row] = []
    for table in tables_of(query):
        where, values = conditions(query, table)
        if before is not None:
            where, values = f"{where} and id < ?", [*values, before]
        text = tx.sql["find_" + table].replace("{where}", where)
        if "state = 'running'" in where:
            text = text.replace("order by id", "order by +id")  # sort the few that run, do not walk all
        rows += tx.cursor.execute(text, [*values, limit]).fetchall()
    rows.sort(key=lambda row: row[0], reverse=True)
    return rows[:limit]


def _by_ids(tx: Tx, query: Query, limit: int, before: bytes | None) -> list[Row]:
    rows: list[Row] = []
    for part in parts(query):
        rows += _page(tx, part, limit, before)
        if len(rows) >= limit:
            break
    return rows[:limit]


def count(tx: Tx, query: Query) -> dict[State, int]:
    counts = dict.fromkeys(State, 0)
    if query.empty:
        return counts
    bare = query.ids is None and not query.queues and not query.tasks
    for table in tables_of(query):
        for state, n in _counts_of(tx, query, table, bare):
            if not query.states or state in query.states:
                counts[_STATES[state]] += n
    return counts


def _counts_of(tx: Tx, query: Query, table: str, bare: bool) -> list[Row]:
    if bare:
        return tx.all({"jobs": "count_live", "finished": "count_finished", "dead": "count_dead"}[table])
    found: list[Row] = []
    for part in parts(query):
        where, values = conditions(part, table)
        text = f"select state, count(*) from {tx.sql.prefix}{table} where {where} group by state"
        found += tx.cursor.execute(text, values).fetchall()
    return found


def parts(query: Query) -> Iterator[Query]:
    """The same question in pieces that a statement can hold: a list of ids may be long."""
    if query.ids is None:
        yield query
        return
    ids = sorted(set(query.ids), reverse=True)
    for start in range(0, len(ids), _CHUNK):
        yield msgspec.structs.replace(query, ids=tuple(ids[start : start + _CHUNK]))


def tables_of(query: Query) -> list[str]:
    """The tables in which jobs of these states can be."""
    return [table for table, states in TABLES.items() if not query.states or states & set(query.states)]


def conditions(query: Query, table: str) -> tuple[str, list[object]]:
    """The WHERE of a query and its values."""
    terms, values = ["1"], list[object]()
    states = [state for state in query.states if state in TABLES[table]]
    if states == [State.RUNNING]:
        terms, states = ["state = 'running'"], []  # literal: only so is the partial index found
    for column, wanted in (("id", query.ids), ("state", states), ("queue", query.queues), ("task", query.tasks)):
        if wanted or (column == "id" and wanted is not None):
            terms.append(f"{column} in ({', '.join('?' * len(wanted))})")
            values += wanted
    return " and ".join(terms), values


def job_of(row: Row) -> JobRow:
    (
        job, state, reason, task, queue, lane, priority, attempt, epoch, crashes, crash_limit, early, token, worker,
        seq, enqueued, due, expires, started, finished, deps, ordered, progress, result, error, record,
    ) = row  # fmt: skip
    return JobRow(
        id=job, state=_STATES[state], reason=_REASONS[reason], task=task, queue=queue, lane=lane, priority=priority,
        attempt=attempt, epoch=epoch, crashes=crashes, crash_limit=crash_limit, early=bool(early), token=token,
        worker=worker, seq=seq, enqueued=enqueued, due=due, expires=expires, started=started, finished=finished,
        deps=deps, ordered=bool(ordered), progress=progress, result=result, error=error, record=record,
    )  # fmt: skip
