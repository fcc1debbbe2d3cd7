"""Where jobs are: find, count, attempts."""

from __future__ import annotations

from typing import Any

from mainspring.errors import InvalidOption
from mainspring.outcomes import Outcome
from mainspring.query import Query
from mainspring.records import AttemptRow, Found, JobRow
from mainspring.states import Reason, State
from mainspring.stores.postgres.session import Params, Rows
from mainspring.stores.postgres.unbuilt import check_query


def filters(query: Query) -> dict[str, Any]:
    """The parameters by which every statement about a query picks its rows."""
    check_query(query)
    return {
        "ids": [] if query.empty else None if query.ids is None else list(query.ids),
        "states": [state.value for state in query.states],
        "queues": list(query.queues),
        "tasks": list(query.tasks),
    }


def find(query: Query, limit: int, cursor: str | None) -> Params:
    # One more than asked for: whether there is a next page.
    return {**filters(query), "before": _from_cursor(cursor), "limit": limit + 1}


def found(rows: Rows, limit: int) -> Found:
    jobs = tuple(job_row(row) for row in rows[:limit])
    return Found(jobs, jobs[-1].id.hex() if jobs and len(rows) > limit else None)


def counted(rows: Rows) -> dict[State, int]:
    return dict.fromkeys(State, 0) | {State(state): number for state, number in rows}


def job_row(row: tuple[Any, ...]) -> JobRow:
    return JobRow(
        id=row[0], state=State(row[1]), reason=None if row[2] is None else Reason(row[2]), task=row[3], queue=row[4],
        lane=row[5], priority=row[6], attempt=row[7], epoch=row[8], crashes=row[9], crash_limit=row[10], early=row[11],
        token=row[12], worker=row[13], seq=row[14], enqueued=row[15], due=row[16], expires=row[17], started=row[18],
        finished=row[19], deps=row[20], ordered=row[21], progress=row[22], result=row[23], error=row[24],
        record=row[25],
    )  # fmt: skip


def attempt_row(row: tuple[Any, ...]) -> AttemptRow:
    return AttemptRow(
        token=row[0], epoch=row[1], attempt=row[2], worker=row[3], started=row[4], ended=row[5],
        outcome=Outcome(row[6]), error=row[7],
    )  # fmt: skip


def _from_cursor(cursor: str | None) -> bytes | None:
    try:
        return None if cursor is None else bytes.fromhex(cursor)
    except ValueError:
        raise InvalidOption("cursor", cursor, "did not come from find()") from None
