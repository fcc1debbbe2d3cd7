"""What people do to jobs by hand."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mainspring.errors import InvalidOption
from mainspring.jobs.query import Query
from mainspring.jobs.records import ActResult
from mainspring.states import WAITING, Action, Reason, State, sources

from .finish import finish_waiting, resolve
from .inserts import flags_of
from .places import Standing, enter_ready, home, limited_flags, line_up, read_buckets
from .settings import is_bound
from .tx import HAS_CHILDREN, OF_PART
from .uniq import drop_key, retake_key
from .where import TABLES, conditions, parts, tables_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .tx import Tx

SLICE = 0.002
Named = tuple[bytes, State]

_BESIDE = (
    "drop_attempts", "drop_logs", "drop_progress", "drop_items", "drop_marks", "drop_follows",
)  # fmt: skip

_UNHELD = """not exists (
    select 1
    from {t}uniq as own
    cross join {t}uniq as held
    where own.job = id and held.hash = own.hash and held.holds = 1 and (
        held.job <> own.job and (
            held.until > ?
            or exists (select 1 from {t}jobs as live where live.id = held.job)
            or held.mode = 'keep' and exists (
                select 1 from {t}finished as good
                where good.id = held.job and good.state = 'succeeded' and good.finished + held.span > ?
            )
        )
        or held.mode = 'keep_last' and held.before <> own.job
            and exists (select 1 from {t}jobs as live where live.id = held.before)
    )
)"""
_UNTOUCHED = {Action.CANCEL: "ordered is null", Action.REPRIORITISE: "priority <> ?", Action.RETRY: _UNHELD}
"""What keeps a repeated call from finding the same jobs: they stay in a state that the action accepts."""


def check(action: Action, query: Query) -> None:
    """Refuse what nobody can have meant."""
    if action not in _ACTIONS:
        raise InvalidOption("action", action, f"is not done by hand; use one of {', '.join(sorted(_ACTIONS))}")
    if query.empty:
        raise InvalidOption("query", query, "is empty", hint="To mean every job, say Query.everything().")


def candidates(tx: Tx, action: Action, query: Query, limit: int, priority: int) -> tuple[list[Named], bool]:
    """The jobs to look at, and whether there may be more: those that are named, or that the action changes."""
    able = sources(action)
    if query.ids is not None:
        named: list[Named] = []
        for part in parts(query):
            named += _named(tx, part, limit + 1)
        return named[:limit], len(named) > limit
    open_states = able & set(query.states) if query.states else able
    extra = {Action.REPRIORITISE: [priority], Action.RETRY: [tx.now, tx.now]}.get(action, [])
    untouched = _UNTOUCHED.get(action, "1").replace("{t}", tx.sql.prefix)
    found = _named(tx, _within(query, open_states), limit + 1, untouched, extra) if open_states else []
    return found[:limit], len(found) > limit


def _within(query: Query, states: frozenset[State] | set[State]) -> Query:
    return msgspec.structs.replace(query, states=tuple(states))


def _named(tx: Tx, query: Query, limit: int, extra: str = "1", values: Sequence[int] = ()) -> list[Named]:
    named: list[Named] = []
    for table in tables_of(query):
        where, asked = conditions(tx, query, table)
        text = f"select id, state from {tx.sql.prefix}{table} where {where} and {extra} limit ?"
        rows = tx.cursor.execute(text, [*asked, *values, limit - len(named)]).fetchall()
        named += [(job, State(state)) for job, state in rows]
    return named


def act(
    tx: Tx, action: Action, query: Query, jobs: Sequence[bytes], reason: str, priority: int
) -> tuple[int, ActResult]:
    """Do it to the first of ``jobs``, for about 2 ms: how many were looked at, and what became of those.

    They were listed in a step before this one: one that is no longer what the query asks for is left alone.
    """
    still = _Still(tx, query)
    until = time.perf_counter() + SLICE
    done: list[bytes] = []
    refused: list[Named] = []
    held: list[tuple[bytes, bytes]] = []
    looked = 0
    for job in jobs:
        found = _state(tx, job)
        looked += 1
        if found is None or not still.asked_for(job, found[0]):
            continue  # deleted or changed since it was listed
        table, state = found
        if state not in sources(action):
            refused.append((job, state))
            continue
        holder = _ACTIONS[action](tx, Target(job, table, state, reason, priority))
        if holder is None:
            done.append(job)
        else:
            held.append((job, holder))
        if time.perf_counter() > until:
            break
    return looked, ActResult(tuple(done), tuple(refused), held=tuple(held))


class _Still:
    """Whether a job is (still) one of a query; ids are taken as said."""

    def __init__(self, tx: Tx, query: Query) -> None:
        self._tx = tx
        rest = msgspec.structs.replace(query, ids=None)
        self._where = None if rest.bare else {t: conditions(tx, rest, t, led=True) for t in tables_of(rest)}

    def asked_for(self, job: bytes, table: str) -> bool:
        if self._where is None:
            return True
        if table not in self._where:
            return False
        where, values = self._where[table]
        text = f"select 1 from {self._tx.sql.prefix}{table} where {where} and id = ?"
        return bool(self._tx.cursor.execute(text, [*values, job]).fetchall())


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
    queue, *standing = tx.all("due_row", (target.job,))[0]
    seq = tx.next_seq()
    tx.run("promote", (seq, target.job))
    enter_ready(tx, queue, Standing(*standing), seq)


def _reprioritise(tx: Tx, target: Target) -> None:
    ready, seq, *standing = tx.all("reprioritise", (target.priority, target.job))[0]
    if ready:
        tx.run("open_waiting", (target.job,))
        line_up(tx, Standing(*standing), seq)


def _retry(tx: Tx, target: Target) -> bytes | None:
    """A new epoch, in the lane of a job without blame; the token goes on and the last owner stays readable.

    Returns the job that holds its key, if another does.
    """
    job, table = target.job, target.table
    holder = retake_key(tx, job)
    if holder is not None:
        return holder
    queue, lane, task, priority, buckets = tx.all("ended_row_" + table, (job,))[0]
    lane, seq = home(lane, buckets), tx.next_seq()
    flags = limited_flags(read_buckets(buckets)) | flags_of([state for (state,) in tx.all("followed", (job,))])
    flags |= OF_PART if tx.all("is_of_part", (job,))[0][0] else 0
    values = {"id": job, "lane": lane, "seq": seq, "flags": flags, "now": tx.now, "bound": is_bound(tx, queue)}
    tx.run("revive_" + table, values)
    tx.run("drop_" + table, (job,))
    tx.run("drop_progress", (job,))
    tx.run("drop_items", (job,))
    enter_ready(tx, queue, Standing(lane, task, priority, 0, buckets), seq)
    return None


def _delete(tx: Tx, target: Target) -> None:
    if target.state in WAITING:
        _delete_waiting(tx, target.job)
    else:
        forget(tx, target.job, target.table)


_ACTIONS: dict[Action, Callable[[Tx, Target], bytes | None]] = {
    Action.CANCEL: _cancel,
    Action.RUN_NOW: _run_now,
    Action.REPRIORITISE: _reprioritise,
    Action.RETRY: _retry,
    Action.DELETE: _delete,
}


def _delete_waiting(tx: Tx, job: bytes) -> None:
    """Dependents are not forgotten: to them it is a parent that did not succeed."""
    flags = tx.all("waiting_row", (job,))[0][3]
    tx.run("open_waiting", (job,))
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
    for name in _BESIDE:
        tx.run(name, (job,))
    drop_key(tx, job)
