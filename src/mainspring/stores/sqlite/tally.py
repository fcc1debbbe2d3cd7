"""How many jobs of a query share a value: a queue, a task, or the error that they died of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.jobs.records import TallyRow
from mainspring.states import State

from .where import conditions, parts, tables_of

if TYPE_CHECKING:
    from mainspring.jobs.query import Query
    from mainspring.stores.base import TallyBy

    from .tx import Row, Tx

_COLUMNS = {"queue": "queue", "task": "task", "error": "coalesce(label, reason)"}
_MOMENTS = {"jobs": "enqueued", "finished": "finished", "dead": "finished"}


def tally(tx: Tx, query: Query, by: TallyBy) -> list[TallyRow]:
    found: dict[tuple[str, State], TallyRow] = {}
    for row in _rows(tx, query, by):
        each = TallyRow(row[0], State(row[1]), *row[2:])
        key = each.value, each.state
        found[key] = _sum(found[key], each) if key in found else each
    return [found[key] for key in sorted(found)]


def _rows(tx: Tx, query: Query, by: TallyBy) -> list[Row]:
    rows: list[Row] = []
    for table in () if query.empty else tables_of(query):
        if by == "error" and table != "dead":
            continue
        for part in parts(query):
            where, values = conditions(tx, part, table)
            text = tx.sql["tally"].format(value=_COLUMNS[by], at=_MOMENTS[table], table=table, where=where)
            rows += tx.cursor.execute(text, values).fetchall()
    return rows


def _sum(one: TallyRow, other: TallyRow) -> TallyRow:
    """The same value and state, from two parts of a long list of ids."""
    return TallyRow(
        one.value, one.state, one.count + other.count, min(one.first, other.first), max(one.last, other.last)
    )
