"""What people do to jobs by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import LiteralString

import msgspec

from mainspring.errors import InvalidOption
from mainspring.jobs.query import Query
from mainspring.jobs.records import ActResult
from mainspring.states import Action, State, sources
from mainspring.stores.postgres.session import Params, Rows
from mainspring.stores.postgres.statements import fill
from mainspring.stores.postgres.where import conditions, tables_of, values

SLICE = 100
"""How many jobs one step changes: it holds their locks."""

BY_HAND = (Action.CANCEL, Action.RETRY, Action.RUN_NOW, Action.REPRIORITISE, Action.DELETE)

_CALL = """
select * from {schema}.act_v1(
    %(action)s::text, %(jobs)b::bytea[], %(sources)b::text[], %(reason)s::text, %(priority)s::integer, %(now)s::bigint,
    %(states)b::text[], %(queues)b::text[], %(tasks)b::text[], %(marks)b::text[], %(reasons)b::text[],
    %(errors)b::text[], %(since)s::bigint, %(until)s::bigint, %(ended_before)s::bigint
)
"""
_UNHELD = """not exists (
    select 1 from {schema}.keys k
    where k.hash = key and (
        k.job <> id and (
            k.until > {schema}.now_v1(%(now)s::bigint) or exists (select 1 from {schema}.jobs j where j.id = k.job)
        )
        or k.mode <> '' and {schema}.held_after_v1(k, {schema}.now_v1(%(now)s::bigint)) <> id
    )
)"""
_UNTOUCHED = {
    Action.CANCEL: "ordered is null", Action.REPRIORITISE: "priority <> %(priority)s", Action.RETRY: _UNHELD,
}  # fmt: skip
"""What keeps a repeated call from finding the same jobs: they stay in a state that the action accepts."""


def check(action: Action, query: Query) -> None:
    """Refuse what nobody can have meant."""
    if action not in BY_HAND:
        raise InvalidOption("action", action, f"is not done by hand; use one of {', '.join(sorted(BY_HAND))}")
    if query.empty:
        raise InvalidOption("query", query, "is empty", hint="To mean every job, say Query.everything().")


def candidates(
    action: Action, query: Query, limit: int, *, priority: int, schema: str, now: int | None
) -> tuple[LiteralString, Params] | None:
    """The statement that lists the jobs to look at: those that are named, or that the action changes."""
    untouched = ""
    if query.ids is None:
        able = sources(action) & set(query.states or State)
        if not able or limit <= 0:
            return None
        query = msgspec.structs.replace(query, states=tuple(able), all=True)
        untouched = " and " + _UNTOUCHED[action] if action in _UNTOUCHED else ""
    parts = [
        f"(select id from {{schema}}.{table} where {conditions(query, table)}{untouched if _has(action, table) else ''}"
        " limit %(limit)s)"
        for table in tables_of(query)
    ]
    text = "select * from (" + " union all ".join(parts) + ") as found limit %(limit)s"
    given = {**values(query), "limit": max(limit, 0) + 1, "priority": priority, "now": now}
    return (fill(text, schema), given) if parts else None


def _has(action: Action, table: str) -> bool:
    """Whether the rows of a table have the column that tells: an order and a new priority are for live jobs."""
    return action is Action.RETRY or table == "jobs"


def call(
    action: Action, query: Query, jobs: Sequence[bytes], *, reason: str, priority: int, schema: str, now: int | None
) -> tuple[LiteralString, Params]:
    """The statement that does it to those of ``jobs`` that are still what the query asks for."""
    return fill(_CALL, schema), {
        "action": action.value, "jobs": list(jobs), "sources": list(sources(action)), "reason": reason,
        "priority": priority, "now": now, "states": list(query.states), "queues": list(query.queues),
        "tasks": list(query.tasks), "marks": list(query.marks), "reasons": list(query.reasons),
        "errors": list(query.errors), "since": query.since, "until": query.until, "ended_before": query.ended_before,
    }  # fmt: skip


def acted(rows: Rows, *, named: bool) -> tuple[ActResult, list[str]]:
    """What became of a slice, and the queues in which a job became ready; only a job that was named is refused."""
    done = tuple(job for kind, job, _, _ in rows if kind == "done")
    refused = tuple((job, State(state)) for kind, job, state, _ in rows if kind == "refused" and named)
    held = tuple((job, holder) for kind, job, _, holder in rows if kind == "held")
    return ActResult(done, refused, held=held), [queue for kind, _, queue, _ in rows if kind == "woken"]


def together(one: ActResult, other: ActResult) -> ActResult:
    return ActResult(one.done + other.done, one.refused + other.refused, one.more, one.held + other.held)
