"""What people do to jobs by hand."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from mainspring.errors import InvalidOption
from mainspring.query import Query
from mainspring.states import WAITING, Action, Reason, State, sources

from .find import TABLES, conditions, parts, tables_of
from .finish import finish_waiting, resolve
from .places import Standing, enter_ready, home
from .tx import HAS_CHILDREN, LIMITED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .tx import Tx

SLICE = 0.002
Named = tuple[bytes, State]

_UNTOUCHED = {Action.CANCEL: "ordered is null", Action.REPRIORITISE: "priority <> ?"}
"""What keeps a repeated call from finding the same jobs: they stay in a state that the action accepts."""


def check(action: Action, query: Query) -> None:
    """Refuse what nobody can have meant."""
    if action not in _ACTIONS:
        raise InvalidOption("action", action, f"is not done by hand; use one of {', '.join(sorted(_ACTIONS))}")
    if query.empty:
        raise InvalidOption("query", query, "is empty", hint="To mean every job, say Query.everything().")


def candidates(tx: Tx, action: Action, query: Query, limit: int, priority: int) -> tuple[list[Named], bool]:
    """The jobs to look at, and whether there may be more: first what the action changes, then the rest."""
    able = sources(action)
    if query.ids is not None:
        named: list[Named] = []
        for part in parts(query):
            named += _named(tx, part, limit + 1)
        return named[:limit], len(named) > limit
    extra = _UNTOUCHED.get(action, "1")
    open_states = able & set(query.states) if query.states else able
    found = _named(tx, _within(query, open_states), limit + 1, extra, priority) if open_states else []
    if len(found) > limit:
        return found[:limit], True
    seen = {job for job, _ in found}
    rest = [each for each in _named(tx, query, limit) if each[0] not in seen]
    return (found + rest)[:limit], False


def _within(query: Query, states: frozenset[State] | set[State]) -> Query:
    return Query(states=tuple(states), queues=query.queues, tasks=query.tasks)


def _named(tx: Tx, query: Query, limit: int, extra: str = "1", priority: int = 0) -> list[Named]:
    named: list[Named] = []
    for table in tables_of(query):
        where, values = conditions(query, table)
        if table == "jobs":
            where, values = f"{where} and {extra}", values + ([priority] if "?" in extra else [])
        text = f"select id, state from {tx.sql.prefix}{table} where {where} limit ?"
        rows = tx.cursor.execute(text, [*values, limit - len(named)]).fetchall()
        named += [(job, State(state)) for job, state in rows]
    return named


def act(
    tx: Tx, action: Action, jobs: Sequence[bytes], reason: str, priority: int
) -> tuple[int, list[bytes], list[Named]]:
    """Do it to the first of ``jobs``, for about 2 ms: how many were looked at, which changed, which refused."""
    until = time.perf_counter() + SLICE
    done: list[bytes] = []
    refused: list[Named] = []
    looked = 0
    for job in jobs:
        found = _state(tx, job)
        looked += 1
        if found is None:
            continue  # deleted since it was listed
        table, state = found
        if state not in sources(action):
            refused.append((job, state))
            continue
        _ACTIONS[action](tx, Target(job, table, state, reason, priority))
        done.append(job)
        if time.perf_counter() > until:
            break
    return looked, done, refused


def _state(tx: Tx, job: bytes) -> tuple[str, State] | None:
    for table in TABLES:
        found = tx.cursor.execute(f"select state from {tx.sql.prefix}{table} where id = ?", (job,)).fetchall()
        if found:
            return table, State(found[0][0])
    return None


class Target(NamedTuple):
    """One job that something is done to, and with what."""

    job: bytes
    table: str
    state: State
    reason: str
    priority: int


def _cancel(tx: Tx, target: Target) -> None:
    if target.state is State.RUNNING:
        tx.run("order_cancel", (target.reason, target.job))
    else:
        finish_waiting(tx, target.job, Reason.BY_USER, target.reason or None)


def _run_now(tx: Tx, target: Target) -> None:
    queue, lane, task, crashes, buckets = tx.all("due_row", (target.job,))[0]
    tx.run("promote", (tx.next_seq(), target.job))
    enter_ready(tx, queue, Standing(lane, task, crashes, buckets))


def _reprioritise(tx: Tx, target: Target) -> None:
    tx.run("reprioritise", (target.priority, target.job))


def _retry(tx: Tx, target: Target) -> None:
    """A new epoch, in the lane of a job without blame; the token goes on and the last owner stays readable."""
    job, table = target.job, target.table
    queue, lane, task, buckets = tx.all("ended_row_" + table, (job,))[0]
    lane = home(lane, buckets)
    flags = LIMITED if buckets else 0
    tx.run("revive_" + table, {"id": job, "lane": lane, "seq": tx.next_seq(), "flags": flags, "now": tx.now})
    tx.run("drop_" + table, (job,))
    tx.run("drop_progress", (job,))
    enter_ready(tx, queue, Standing(lane, task, 0, buckets))


def _delete(tx: Tx, target: Target) -> None:
    if target.state in WAITING:
        _delete_waiting(tx, target.job)
    else:
        forget(tx, target.job, target.table)


_ACTIONS = {
    Action.CANCEL: _cancel,
    Action.RUN_NOW: _run_now,
    Action.REPRIORITISE: _reprioritise,
    Action.RETRY: _retry,
    Action.DELETE: _delete,
}


def _delete_waiting(tx: Tx, job: bytes) -> None:
    """Dependents are not forgotten: to them it is a parent that did not succeed."""
    flags = tx.all("waiting_row", (job,))[0][3]
    tx.run("delete_job", (job,))
    tx.run("forget_child", (job,))
    if flags & HAS_CHILDREN:
        resolve(tx, job, succeeded=False)
    _drop_beside(tx, job)


def forget(tx: Tx, job: bytes, table: str) -> None:
    """Remove an ended job and all that stands beside it."""
    tx.run("drop_" + table, (job,))
    _drop_beside(tx, job)


def _drop_beside(tx: Tx, job: bytes) -> None:
    for name in ("drop_attempts", "drop_logs", "drop_progress"):
        tx.run(name, (job,))
