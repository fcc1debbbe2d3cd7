"""Find, count and tally, over the table of live jobs and the two tables of ended jobs.

The cost of a page: by id, by mark, by type of error and of running jobs only, SQLite reads just the jobs of the query,
each by an index. Any other query (a queue, a task, a time) walks the tables from the newest id on, until the page is
full.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from mainspring.errors import InvalidOption
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobRows, TallyRow
from mainspring.states import FINAL, LIVE, REASONS, State
from mainspring.stores.sqlite.rows import job_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mainspring.stores.base import TallyBy
    from mainspring.stores.sqlite.driver.transaction import Row, Tx

TABLES: dict[str, frozenset[State]] = {
    "jobs": LIVE,
    "finished": FINAL - {State.DEAD},
    "dead": frozenset({State.DEAD}),
}
"""The tables of jobs, with the states of the jobs in each."""
CHUNK = 500
"""Ids in one statement."""
_RUNNING = f"state = '{State.RUNNING}'"
_ABOVE_ALL_IDS = b"\xff" * 17
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
"""The statement that counts a state by its own index."""
_TALLIED = {"queue": "queue", "task": "task", "error": "coalesce(label, reason)"}
_MOMENTS = {"jobs": "enqueued", "finished": "finished", "dead": "finished"}


# ---- a query as WHERE --------------------------------------------------------------------------------------


class WhereClause:
    """Terms that are joined by ``and``, and their values."""

    def __init__(self) -> None:
        self.terms = ["1"]
        self.values: list[object] = []

    @property
    def text(self) -> str:
        return " and ".join(self.terms)

    def add(self, term: str, *values: object) -> None:
        self.terms.append(term)
        self.values += values

    def add_one_of(self, column: str, values: Sequence[object]) -> None:
        if values:
            self.add(f"{column} in ({', '.join('?' * len(values))})", *values)

    def add_bound(self, term: str, value: int | None) -> None:
        if value is not None:
            self.add(term, value)


def conditions(tx: Tx, query: Query, table: str, *, led: bool = False) -> tuple[str, list[object]]:
    """The WHERE of a query over one of its tables, and its values. ``led``: another term finds the jobs by an index."""
    where = WhereClause()
    states = [state for state in query.states if state in TABLES[table]]
    if states == [State.RUNNING]:
        where.add(_RUNNING)  # a literal, not a parameter: only then SQLite uses the partial index
    else:
        where.add_one_of("state", states)
    if query.ids is not None:
        where.add_one_of("id", query.ids or (None,))
    where.add_one_of("queue", query.queues)
    where.add_one_of("task", query.tasks)
    where.add_one_of("reason", query.reasons)
    where.add_one_of("coalesce(label, reason)", query.errors)
    where.add_bound("enqueued >= ?", query.since)
    where.add_bound("enqueued < ?", query.until)
    where.add_bound("finished < ?", query.ended_before)
    led = led or query.ids is not None or states == [State.RUNNING]
    for at, mark in enumerate(_by_rarity(query.marks)):
        where.add(_mark_term(tx.sql.prefix, leading=at == 0 and not led), mark)
    return where.text, where.values


def _mark_term(prefix: str, *, leading: bool) -> str:
    """The leading term finds the jobs with its mark; any other term checks each job that was found."""
    if leading:
        return f"id in (select job from {prefix}marks where mark = ?)"
    return f"exists (select 1 from {prefix}marks where mark = ? and job = id)"


def _by_rarity(marks: Sequence[str]) -> list[str]:
    """The marks, with marks that fewer jobs are likely to have first: ``^`` marks the children of one parent."""
    return sorted(marks, key=lambda mark: not mark.startswith("^"))


def tables_of(query: Query) -> list[str]:
    """The tables in which jobs of this query can be: live jobs have no reason, no error and no end."""
    states = set(query.states or State)
    if query.reasons:
        states &= {state for state, reasons in REASONS.items() if reasons & set(query.reasons)}
    if query.errors:
        states &= TABLES["dead"]
    if query.ended_before is not None:
        states &= FINAL
    return [table for table, possible in TABLES.items() if states & possible]


def in_chunks(query: Query) -> Iterator[Query]:
    """The query in pieces of 500 ids, because a statement takes a limited number of parameters."""
    if query.ids is None:
        yield query
        return
    ids = sorted(set(query.ids), reverse=True)
    for start in range(0, len(ids), CHUNK):
        yield msgspec.structs.replace(query, ids=tuple(ids[start : start + CHUNK]))


# ---- find --------------------------------------------------------------------------------------------------


def find(tx: Tx, query: Query, limit: int, cursor: str | None) -> JobRows:
    before = _read_cursor(cursor)
    if query.empty or limit <= 0 or not tables_of(query):
        return JobRows(())
    rows = _choose_way(query)(tx, query, limit + 1, before)
    jobs = tuple(job_of(row) for row in rows[:limit])
    return JobRows(jobs, jobs[-1].id.hex() if len(rows) > limit else None)


def _read_cursor(cursor: str | None) -> bytes | None:
    if cursor is None:
        return None
    try:
        return bytes.fromhex(cursor)
    except ValueError:
        raise InvalidOption("cursor", cursor, "is not a cursor that find returned") from None


def _choose_way(query: Query) -> Callable[[Tx, Query, int, bytes | None], list[Row]]:
    if query.ids is not None:
        return _find_by_ids
    return _find_by_mark if query.marks and query.states != (State.RUNNING,) else _find_page


def _find_page(tx: Tx, query: Query, limit: int, before: bytes | None) -> list[Row]:
    rows: list[Row] = []
    for table in tables_of(query):
        where, values = conditions(tx, query, table)
        if before is not None:
            where, values = f"{where} and id < ?", [*values, before]
        key = "+id" if _RUNNING in where else "id"  # "+": sort the few running jobs, do not walk all jobs by id
        text = _fill(tx, table, where, key=key)
        rows += tx.cursor.execute(text, [*values, limit]).fetchall()
    rows.sort(key=lambda row: row[0], reverse=True)
    return rows[:limit]


def _fill(tx: Tx, table: str, where: str, *, lead: str = "", key: str = "id") -> str:
    text = tx.sql["find_" + table]
    return text.replace("{lead}", lead).replace("{where}", where).replace("{key}", key)


def _find_by_ids(tx: Tx, query: Query, limit: int, before: bytes | None) -> list[Row]:
    rows: list[Row] = []
    for part in in_chunks(query):
        rows += _find_page(tx, part, limit, before)
        if len(rows) >= limit:
            break
    return rows[:limit]


def _find_by_mark(tx: Tx, query: Query, limit: int, before: bytes | None) -> list[Row]:
    """Walk the jobs with the rarest mark from the newest on, until the page is full."""
    first, *others = _by_rarity(query.marks)
    rest = msgspec.structs.replace(query, marks=tuple(others))
    find = _find_in_one_table if len(tables_of(query)) == 1 else _find_in_all_tables
    return find(tx, first, rest, limit, before or _ABOVE_ALL_IDS)


def _find_in_one_table(tx: Tx, mark: str, query: Query, limit: int, before: bytes) -> list[Row]:
    (table,) = tables_of(query)
    where, values = conditions(tx, query, table, led=True)
    where = f"mark = ? and job < ? and id = job and {where}"
    text = _fill(tx, table, where, lead=f"{tx.sql.prefix}marks cross join ", key="job")
    return tx.cursor.execute(text, [mark, before, *values, limit]).fetchall()


def _find_in_all_tables(tx: Tx, mark: str, query: Query, limit: int, before: bytes) -> list[Row]:
    """Read the ids with the mark some at a time, then look for these ids in every table."""
    rows: list[Row] = []
    last, size = before, min(limit, CHUNK)
    while len(rows) < limit:
        ids = tuple(job for (job,) in tx.all("jobs_with_mark", (mark, last, size)))
        if ids:
            rows += _find_page(tx, msgspec.structs.replace(query, ids=ids), limit, None)
            last = ids[-1]
        if len(ids) < size:
            break
        size = CHUNK
    return rows[:limit]


# ---- count -------------------------------------------------------------------------------------------------


def count(tx: Tx, query: Query) -> dict[State, int]:
    counts = dict.fromkeys(State, 0)
    if query.empty:
        return counts
    has_states_only = query.ids is None and msgspec.structs.replace(query, states=()).bare
    for state, n in (_count_states if has_states_only else _count_rows)(tx, query):
        if not query.states or state in query.states:
            counts[State(state)] += n
    return counts


def _count_states(tx: Tx, query: Query) -> list[Row]:
    names = {_COUNTED_BY[state] for state in query.states or State}
    return [row for name in names for row in tx.all(name)]


def _count_rows(tx: Tx, query: Query) -> list[Row]:
    found: list[Row] = []
    for table in tables_of(query):
        for part in in_chunks(query):
            where, values = conditions(tx, part, table)
            text = f"select state, count(*) from {tx.sql.prefix}{table} where {where} group by state"
            found += tx.cursor.execute(text, values).fetchall()
    return found


# ---- tally -------------------------------------------------------------------------------------------------


def tally(tx: Tx, query: Query, by: TallyBy) -> list[TallyRow]:
    found: dict[tuple[str, State], TallyRow] = {}
    for row in _tally_rows(tx, query, by):
        each = TallyRow(row[0], State(row[1]), *row[2:])
        key = each.value, each.state
        found[key] = _add(found[key], each) if key in found else each
    return [found[key] for key in sorted(found)]


def _tally_rows(tx: Tx, query: Query, by: TallyBy) -> list[Row]:
    rows: list[Row] = []
    for table in () if query.empty else tables_of(query):
        if by == "error" and table != "dead":
            continue
        for part in in_chunks(query):
            where, values = conditions(tx, part, table)
            text = tx.sql["tally"].format(value=_TALLIED[by], at=_MOMENTS[table], table=table, where=where)
            rows += tx.cursor.execute(text, values).fetchall()
    return rows


def _add(one: TallyRow, other: TallyRow) -> TallyRow:
    """Two rows of the same value and state, from two chunks of a long list of ids."""
    return TallyRow(
        one.value, one.state, one.count + other.count, min(one.first, other.first), max(one.last, other.last)
    )
