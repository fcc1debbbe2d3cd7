"""A query as the WHERE of a statement, and the tables in which its jobs can be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mainspring.jobs.query import Query
from mainspring.states import FINAL, LIVE, REASONS, State

TABLES: dict[str, frozenset[State]] = {
    "jobs": LIVE,
    "finished": FINAL - {State.DEAD},
    "dead": frozenset({State.DEAD}),
}


def tables_of(query: Query) -> list[str]:
    """The tables in which jobs of this query can be: live jobs have no reason, no error and no end."""
    states = set() if query.empty else set(query.states or State)
    if query.reasons:
        states &= {state for state, reasons in REASONS.items() if reasons & set(query.reasons)}
    if query.errors:
        states &= TABLES["dead"]
    if query.ended_before is not None:
        states &= FINAL
    return [table for table, possible in TABLES.items() if states & possible]


def conditions(query: Query, table: str) -> str:
    """The WHERE of a query over one of its tables; its values are those of :func:`values`."""
    terms = ["true"]
    states = [state for state in query.states if state in TABLES[table]]
    if states and len(states) < len(TABLES[table]):
        # Written out, for these are our own words: only so are the partial indexes found.
        terms.append("state in (" + ", ".join(f"'{state.value}'" for state in states) + ")")
    if query.ids is not None:
        terms.append("id = any(%(ids)s::bytea[])")
    for name, column in _COLUMNS.items():
        if getattr(query, name):
            terms.append(f"{column} = any(%({name})s::text[])")
    for name, term in _BOUNDS.items():
        if getattr(query, name) is not None:
            terms.append(term)
    terms += [f"id in (select job from {{schema}}.marks where mark = %(mark{n})s)" for n in range(len(query.marks))]
    return " and ".join(terms)


def values(query: Query) -> dict[str, Any]:
    """What :func:`conditions` names."""
    found: dict[str, Any] = {name: list(getattr(query, name)) for name in _COLUMNS}
    found |= {name: getattr(query, name) for name in _BOUNDS}
    found |= {f"mark{n}": mark for n, mark in enumerate(query.marks)}
    return found | {"ids": _ids(query.ids)}


def _ids(ids: Sequence[bytes] | None) -> list[bytes] | None:
    return None if ids is None else sorted(set(ids))


_COLUMNS = {"queues": "queue", "tasks": "task", "reasons": "reason", "errors": "coalesce(label, reason)"}
_BOUNDS = {
    "since": "enqueued >= %(since)s",
    "until": "enqueued < %(until)s",
    "ended_before": "finished < %(ended_before)s",
}
