"""What operators do to jobs: cancel, retry, run now, reprioritise, delete."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.errors import InvalidOption
from mainspring.jobs.query import Query
from mainspring.jobs.records import ActResult
from mainspring.states import Action, State, sources
from mainspring.stores.postgres.driver.constants import IS_JOIN
from mainspring.stores.postgres.driver.database import Database
from mainspring.stores.postgres.driver.session import Rows, Step
from mainspring.stores.postgres.driver.statements import fill_schema
from mainspring.stores.postgres.jobs.query import conditions, tables_of, values

SLICE = 100
"""How many jobs one step changes: it holds their locks."""

BY_HAND = (Action.CANCEL, Action.RETRY, Action.RUN_NOW, Action.REPRIORITISE, Action.DELETE)

_ACT = """
select kind, id, note, holder from {schema}.act_v1(
    %(action)s::text, %(jobs)b::bytea[], %(sources)b::text[], %(reason)s::text, %(priority)s::integer, %(now)s::bigint,
    %(states)b::text[], %(queues)b::text[], %(tasks)b::text[], %(marks)b::text[], %(reasons)b::text[],
    %(errors)b::text[], %(since)s::bigint, %(until)s::bigint, %(ended_before)s::bigint
)
"""
_KEY_IS_FREE = """not exists (
    select 1 from {schema}.keys k
    where k.hash = key and (
        k.job <> id and (
            k.until > {schema}.now_v1(%(now)s::bigint) or exists (select 1 from {schema}.jobs j where j.id = k.job)
        )
        or k.mode <> '' and {schema}.find_later_holder_v1(k, {schema}.now_v1(%(now)s::bigint)) <> id
    )
)"""
_STILL_TO_DO = {
    Action.CANCEL: "ordered is null", Action.REPRIORITISE: "priority <> %(priority)s",
    Action.RETRY: f"followed & {IS_JOIN} = 0 and {_KEY_IS_FREE}",
}  # fmt: skip
"""Conditions that keep a repeated call from finding the same jobs, which stay in a state that the action accepts."""


async def act(db: Database, action: Action, query: Query, *, limit: int, reason: str, priority: int) -> ActResult:
    """List the jobs, then change them in slices. Gives no cursor: a repeated call finds what is left by its state."""
    _check(action, query)
    listed = await db.query(list_call(action, query, limit, priority=priority, schema=db.schema, now=db.now()))
    jobs = [job for (job,) in listed]
    done = ActResult(more=len(jobs) > limit)
    for start in range(0, min(len(jobs), limit), SLICE):
        part = jobs[start : min(start + SLICE, limit)]
        call = act_call(action, query, part, reason=reason, priority=priority, schema=db.schema, now=db.now())
        more, woken = act_reply(await db.run(call), by_id=query.ids is not None)
        done = _add(done, more)
        await db.wake(woken)
    return done


def _check(action: Action, query: Query) -> None:
    if action not in BY_HAND:
        raise InvalidOption("action", action, f"is not done by hand; use one of {', '.join(sorted(BY_HAND))}")
    if query.empty:
        raise InvalidOption("query", query, "is empty", hint="To mean every job, say Query.everything().")


def list_call(action: Action, query: Query, limit: int, *, priority: int, schema: str, now: int | None) -> Step | None:
    """The statement that lists the jobs to look at: the named ones, or those that the action changes."""
    to_do = ""
    if query.ids is None:
        able = sources(action) & set(query.states or State)
        if not able or limit <= 0:
            return None
        query = msgspec.structs.replace(query, states=tuple(able), all=True)
        to_do = " and " + _STILL_TO_DO[action] if action in _STILL_TO_DO else ""
    parts = [
        f"(select id from {{schema}}.{table} where {conditions(query, table)}{to_do if _applies(action, table) else ''}"
        " limit %(limit)s)"
        for table in tables_of(query)
    ]
    text = "select * from (" + " union all ".join(parts) + ") as found limit %(limit)s"
    given = {**values(query), "limit": max(limit, 0) + 1, "priority": priority, "now": now}
    return (fill_schema(text, schema), given) if parts else None


def _applies(action: Action, table: str) -> bool:
    """Whether a table has the columns of the condition: orders and priorities change for live jobs only."""
    return action is Action.RETRY or table == "jobs"


def act_call(
    action: Action, query: Query, jobs: Sequence[bytes], *, reason: str, priority: int, schema: str, now: int | None
) -> Step:
    """The statement that does the action to those of ``jobs`` that still match the query."""
    return fill_schema(_ACT, schema), {
        "action": action.value, "jobs": list(jobs), "sources": list(sources(action)), "reason": reason,
        "priority": priority, "now": now, "states": list(query.states), "queues": list(query.queues),
        "tasks": list(query.tasks), "marks": list(query.marks), "reasons": list(query.reasons),
        "errors": list(query.errors), "since": query.since, "until": query.until, "ended_before": query.ended_before,
    }  # fmt: skip


def act_reply(rows: Rows, *, by_id: bool) -> tuple[ActResult, list[str]]:
    """The result of a slice, and the queues in which a job became ready. Only a query by id reports refused jobs."""
    done = tuple(job for kind, job, _, _ in rows if kind == "done")
    refused = tuple((job, State(state)) for kind, job, state, _ in rows if kind == "refused" and by_id)
    held = tuple((job, holder) for kind, job, _, holder in rows if kind == "held")
    return ActResult(done, refused, held=held), [queue for kind, _, queue, _ in rows if kind == "woken"]


def _add(one: ActResult, other: ActResult) -> ActResult:
    return ActResult(one.done + other.done, one.refused + other.refused, one.more, one.held + other.held)
