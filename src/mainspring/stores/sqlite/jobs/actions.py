"""Actions of a user on jobs: cancel, retry, run now, reprioritise, delete."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mainspring.errors import InvalidOption
from mainspring.jobs.query import Query
from mainspring.jobs.records import ActResult
from mainspring.states import FINAL, WAITING, Action, Reason, State, sources
from mainspring.stores.sqlite.driver.constants import FLAG_HAS_CHILDREN, FLAG_JOIN
from mainspring.stores.sqlite.lanes import Placement, add_lane, enter_ready, flags_of_limits, home_of, read_buckets
from mainspring.stores.sqlite.queues import is_counted
from mainspring.stores.sqlite.rows import flags_of_follow_ups

from .finish import EndedParent, finish_waiting, resolve, sweep_flow
from .keys import drop_key, retake_key
from .query import TABLES, conditions, in_chunks, tables_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.stores.sqlite.driver.database import SqliteDatabase
    from mainspring.stores.sqlite.driver.transaction import Tx

SLICE_SECONDS = 0.002
"""Seconds of work in one transaction, after which other writers get the lock."""
JobState = tuple[bytes, State]

_BESIDE = ("drop_attempts", "drop_logs", "drop_progress", "drop_items", "drop_marks", "drop_follow_ups")
"""The statements that delete what is kept beside a job."""


async def act(
    database: SqliteDatabase, action: Action, query: Query, limit: int, reason: str, priority: int
) -> ActResult:
    """List the jobs, then change them in short transactions. Returns no cursor: jobs that are left have their state."""
    _check(action, query)
    listed, more = await database.read(lambda tx: find_candidates(tx, action, query, limit, priority))
    left = [id for id, _ in listed]
    result = ActResult(more=more)
    while left:
        looked, part = await database.write(
            partial(_act_slice, action=action, query=query, jobs=left, reason=reason, priority=priority)
        )
        result = ActResult(result.done + part.done, result.refused + part.refused, more, result.held + part.held)
        left = left[looked:]
    return result


def _check(action: Action, query: Query) -> None:
    if action not in _ACTIONS:
        raise InvalidOption("action", action, f"is not an action of a user; use one of {', '.join(sorted(_ACTIONS))}")
    if query.empty:
        raise InvalidOption("query", query, "is empty", hint="To select every job, pass Query.everything().")


# ---- list the jobs -----------------------------------------------------------------------------------------


def find_candidates(tx: Tx, action: Action, query: Query, limit: int, priority: int) -> tuple[list[JobState], bool]:
    """The jobs that the query names by id, or those that the action can change; and whether there may be more."""
    if query.ids is not None:
        named: list[JobState] = []
        for part in in_chunks(query):
            named += _find(tx, part, limit + 1)
        return named[:limit], len(named) > limit
    able = sources(action)
    states = able & set(query.states) if query.states else able
    extra, values = _unchanged(tx, action, priority)
    narrowed = msgspec.structs.replace(query, states=tuple(states))
    found = _find(tx, narrowed, limit + 1, extra, values) if states else []
    return found[:limit], len(found) > limit


def _unchanged(tx: Tx, action: Action, priority: int) -> tuple[str, list[int]]:
    """A condition that a repeated call needs to find other jobs: after these actions the state may be the same."""
    match action:
        case Action.CANCEL:
            return "cancel_order is null", []
        case Action.REPRIORITISE:
            return "priority <> ?", [priority]
        case Action.RETRY:
            return f"{tx.sql['key_is_free']} and {tx.sql['is_no_join']}", [tx.now, tx.now]
    return "1", []


def _find(tx: Tx, query: Query, limit: int, extra: str = "1", values: Sequence[int] = ()) -> list[JobState]:
    found: list[JobState] = []
    for table in tables_of(query):
        where, asked = conditions(tx, query, table)
        text = f"select id, state from {tx.sql.prefix}{table} where {where} and {extra} limit ?"
        rows = tx.cursor.execute(text, [*asked, *values, limit - len(found)]).fetchall()
        found += [(job, State(state)) for job, state in rows]
    return found


# ---- change them -------------------------------------------------------------------------------------------


def _act_slice(
    tx: Tx, action: Action, query: Query, jobs: Sequence[bytes], reason: str, priority: int
) -> tuple[int, ActResult]:
    """Change the first of ``jobs``, for about 2 ms. Returns how many were looked at, and the result for these.

    The jobs were listed in a step before this one: a job that the query does not match any more is left alone.
    """
    check = _QueryCheck(tx, query)
    until = time.perf_counter() + SLICE_SECONDS
    done: list[bytes] = []
    refused: list[JobState] = []
    held: list[tuple[bytes, bytes]] = []
    looked = 0
    for job in jobs:
        found = table_and_state(tx, job)
        looked += 1
        if found is None or not check.matches(job, found[0]):
            continue  # deleted or changed since it was listed
        table, state = found
        if state not in sources(action) or (action is Action.RETRY and is_join(tx, job)):
            refused.append((job, state))
            continue
        holder = _ACTIONS[action](tx, ActionTarget(job, table, state, reason, priority))
        if holder is None:
            done.append(job)
        else:
            held.append((job, holder))
        if time.perf_counter() > until:
            break
    return looked, ActResult(tuple(done), tuple(refused), held=tuple(held))


class _QueryCheck:
    """Whether a job still matches a query; ids are not checked again."""

    def __init__(self, tx: Tx, query: Query) -> None:
        self._tx = tx
        rest = msgspec.structs.replace(query, ids=None)
        self._where = None if rest.bare else {t: conditions(tx, rest, t, led=True) for t in tables_of(rest)}

    def matches(self, job: bytes, table: str) -> bool:
        if self._where is None:
            return True
        if table not in self._where:
            return False
        where, values = self._where[table]
        text = f"select 1 from {self._tx.sql.prefix}{table} where {where} and id = ?"
        return bool(self._tx.cursor.execute(text, [*values, job]).fetchall())


def table_and_state(tx: Tx, job: bytes) -> tuple[str, State] | None:
    for table in TABLES:
        found = tx.cursor.execute(f"select state from {tx.sql.prefix}{table} where id = ?", (job,)).fetchall()
        if found:
            return table, State(found[0][0])
    return None


class ActionTarget(NamedTuple):
    """One job that an action changes, and the arguments of the action."""

    job: bytes
    table: str
    state: State
    reason: str
    priority: int


def _cancel(tx: Tx, target: ActionTarget) -> None:
    if target.state is State.RUNNING:
        tx.run("order_cancel", (target.reason, target.job))
    else:
        finish_waiting(tx, target.job, Reason.BY_USER, target.reason or None)


def _run_now(tx: Tx, target: ActionTarget) -> None:
    queue, *placement = tx.all("due_job", (target.job,))[0]
    seq = tx.next_seq()
    tx.run("promote", (seq, target.job))
    enter_ready(tx, queue, Placement(*placement), seq)


def _reprioritise(tx: Tx, target: ActionTarget) -> None:
    is_ready, seq, *placement = tx.all("reprioritise", (target.priority, target.job))[0]
    if is_ready:
        tx.run("open_lane_of_job", (target.job,))
        add_lane(tx, Placement(*placement), seq)


def _retry(tx: Tx, target: ActionTarget) -> bytes | None:
    """Start a new epoch. Returns the job that holds the unique key, if another job does."""
    holder = retake_key(tx, target.job)
    if holder is None:
        enter_ready(tx, *revive(tx, target.job, target.table))
    return holder


def revive(tx: Tx, job: bytes, table: str, flags: int = 0) -> tuple[str, Placement, int]:
    """Make an ended job ready, in a new epoch and its home lane. The token goes on and the last owner stays readable.

    Returns its queue, its placement and its seq.
    """
    queue, lane, task, priority, buckets = tx.all("ended_job_" + table, (job,))[0]
    lane, seq = home_of(lane, buckets), tx.next_seq()
    values = {
        "id": job, "lane": lane, "seq": seq, "flags": flags | _flags_of_retry(tx, job, buckets),
        "counted": is_counted(tx, queue) and not flags & FLAG_JOIN,
    }  # fmt: skip
    tx.run("revive_" + table, values)
    tx.run("drop_" + table, (job,))
    tx.run("drop_progress", (job,))
    tx.run("drop_items", (job,))
    return queue, Placement(lane, task, priority, 0, buckets), seq


def _flags_of_retry(tx: Tx, job: bytes, buckets: str | None) -> int:
    """The flags of its limits, of its follow-up jobs, and of children that still wait for a dead parent."""
    flags = flags_of_limits(read_buckets(buckets)) | (FLAG_HAS_CHILDREN if tx.all("has_children", (job,)) else 0)
    return flags | flags_of_follow_ups([state for (state,) in tx.all("followed_states", (job,))])


def is_join(tx: Tx, job: bytes) -> bool:
    return bool(tx.all("join_died", (job,)))


def _delete(tx: Tx, target: ActionTarget) -> None:
    if target.state in WAITING:
        _delete_waiting(tx, target.job)
    else:
        delete_ended(tx, target.job, target.table)


_ACTIONS: dict[Action, Callable[[Tx, ActionTarget], bytes | None]] = {
    Action.CANCEL: _cancel,
    Action.RUN_NOW: _run_now,
    Action.REPRIORITISE: _reprioritise,
    Action.RETRY: _retry,
    Action.DELETE: _delete,
}


def _delete_waiting(tx: Tx, job: bytes) -> None:
    """Delete a live job. For its children it is a parent that did not succeed."""
    flags = tx.all("waiting_job", (job,))[0][3]
    parent = EndedParent.of(tx, job, flags, State.CANCELLED, None)
    tx.run("open_lane_of_job", (job,))
    tx.run("delete_job", (job,))
    tx.run("drop_edges_of_child", (job,))
    if flags & FLAG_HAS_CHILDREN:
        resolve(tx, [parent])
    _delete_beside(tx, job)
    if flags & FLAG_JOIN:
        _delete_join(tx, job)


def delete_ended(tx: Tx, job: bytes, table: str) -> None:
    """Delete an ended job and everything that is kept beside it. Children wait for no retry of a dead job any more."""
    tx.run("drop_" + table, (job,))
    _delete_beside(tx, job)
    if table == "dead":
        resolve(tx, [EndedParent(job, State.CANCELLED)])
    else:
        _delete_join(tx, job)


def delete_if_ended(tx: Tx, job: bytes) -> bool:
    """Delete a job of a flow. False if it is live."""
    found = table_and_state(tx, job)
    if found is None:
        tx.run("drop_marks", (job,))
    elif found[1] not in FINAL:
        return False
    else:
        delete_ended(tx, job, found[0])
    return True


def _delete_join(tx: Tx, job: bytes) -> None:
    """Delete what is kept of a join, and let a promotion delete its flow. Nothing if the job is no join."""
    if tx.run("drop_join", (job,)):
        sweep_flow(tx, job, deleted=True)


def _delete_beside(tx: Tx, job: bytes) -> None:
    for name in _BESIDE:
        tx.run(name, (job,))
    drop_key(tx, job)
