"""A query as the WHERE of a statement, and the tables in which its jobs can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from mainspring.jobs.query import Query
from mainspring.states import FINAL, LIVE, REASONS, State

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .tx import Tx

TABLES: dict[str, frozenset[State]] = {
    "jobs": LIVE,
    "finished": FINAL - {State.DEAD},
    "dead": frozenset({State.DEAD}),
}
CHUNK = 500


def parts(query: Query) -> Iterator[Query]:
    """The same question in pieces that a statement can hold: a list of ids may be long."""
    if query.ids is None:
        yield query
        return
    ids = sorted(set(query.ids), reverse=True)
    for start in range(0, len(ids), CHUNK):
        yield msgspec.structs.replace(query, ids=tuple(ids[start : start + CHUNK]))


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


def conditions(tx: Tx, query: Query, table: str, *, led: bool = False) -> tuple[str, list[object]]:
    """The WHERE of a query over one of its tables, and the values in it; ``led`` if something else finds the jobs."""
    where = Where()
    states = [state for state in query.states if state in TABLES[table]]
    if states == [State.RUNNING]:
        where.add("state = 'running'")  # literal: only so is the partial index found
    else:
        where.one_of("state", states)
    if query.ids is not None:
        where.one_of("id", query.ids or (None,))
    where.one_of("queue", query.queues)
    where.one_of("task", query.tasks)
    where.one_of("reason", query.reasons)
    where.one_of("coalesce(label, reason)", query.errors)
    where.bound("enqueued >= ?", query.since)
    where.bound("enqueued < ?", query.until)
    where.bound("finished < ?", query.ended_before)
    led = led or query.ids is not None or states == [State.RUNNING]
    for at, mark in enumerate(by_rarity(query.marks)):
        where.add(_mark(tx.sql.prefix, leading=at == 0 and not led), mark)
    return where.text, where.values


def _mark(prefix: str, *, leading: bool) -> str:
    """One term leads to the jobs with its mark, any other looks at each job that is found."""
    if leading:
        return f"id in (select job from {prefix}marks where mark = ?)"
    return f"exists (select 1 from {prefix}marks where mark = ? and job = id)"


def by_rarity(marks: Sequence[str]) -> list[str]:
    """The marks, those first that fewer jobs are likely to have: the children of one parent."""
    return sorted(marks, key=lambda mark: not mark.startswith("^"))


class Where:
    """Terms that all hold."""

    def __init__(self) -> None:
        self.terms = ["1"]
        self.values: list[object] = []

    @property
    def text(self) -> str:
        return " and ".join(self.terms)

    def add(self, term: str, *values: object) -> None:
        self.terms.append(term)
        self.values += values

    def one_of(self, column: str, values: Sequence[object]) -> None:
        if values:
            self.add(f"{column} in ({', '.join('?' * len(values))})", *values)

    def bound(self, term: str, value: int | None) -> None:
        if value is not None:
            self.add(term, value)
