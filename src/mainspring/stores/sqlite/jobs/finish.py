"""The one way into a final state: history, follow-up jobs, children.

*Children.* The ends of parents are resolved in rounds. A round reads the edges of all parents that have ended, groups
them by child, and moves each child once. The children that end are the parents of the next round. So a turn with many
members of one join writes the row of the join once, and a join that ends is a parent like any other job.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from mainspring.states import Reason, State
from mainspring.stores.base import CHILDREN_AT_ONCE
from mainspring.stores.sqlite.driver.constants import (
    EDGE_MEMBER,
    FLAG_FOLLOWED_OTHER,
    FLAG_FOLLOWED_SUCCESS,
    FLAG_HAS_CHILDREN,
    FLAG_JOIN,
    FLAG_LIMITED,
    FLOW_MARK,
)
from mainspring.stores.sqlite.driver.statements import sizes
from mainspring.stores.sqlite.lanes import Placement, enter_ready

from .follow_ups import insert_follow_ups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.stores.sqlite.driver.transaction import Tx


class JobEnding(NamedTuple):
    """How a job ends: the fields of its history row that the live row does not have."""

    state: State
    reason: Reason | None
    worker: str | None
    attempt: int
    crashes: int
    ran: int | None = None
    result: bytes | None = None
    error: bytes | None = None
    label: str | None = None
    note: str | None = None


def finish(tx: Tx, job: bytes, flags: int, ending: JobEnding, later: list[EndedParent] | None = None) -> None:
    """Move a live job to history, insert its follow-up jobs, and resolve its children.

    With ``later``, a job with children is added to this list. The caller resolves all of them together.
    """
    _move(tx, job, flags, ending)
    if flags & FLAG_HAS_CHILDREN:
        ended = EndedParent.of(tx, job, flags, ending.state, ending.reason)
        if later is None:
            resolve(tx, [ended])
        else:
            later.append(ended)


def finish_waiting(tx: Tx, job: bytes, reason: Reason, note: str | None = None) -> bool:
    """Cancel a waiting job. False if it runs or does not exist any more, for example after its parent's end."""
    found = tx.first("waiting_job", (job,))
    if found is None:
        return False
    worker, attempt, crashes, flags = found
    if flags & FLAG_LIMITED:
        tx.run("open_lane_of_job", (job,))
    if flags & FLAG_JOIN:
        _leave_flow(tx, job)
    finish(tx, job, flags, JobEnding(State.CANCELLED, reason, worker, attempt, crashes, note=note))
    tx.run("drop_edges_of_child", (job,))
    return True


def _move(tx: Tx, job: bytes, flags: int, ending: JobEnding) -> None:
    if flags & (FLAG_FOLLOWED_SUCCESS if ending.state is State.SUCCEEDED else FLAG_FOLLOWED_OTHER):
        insert_follow_ups(tx, job, ending.state)
    history = "to_dead" if ending.state is State.DEAD else "to_finished"
    tx.run(history, {"id": job, "now": tx.now, **ending._asdict()})
    tx.run("delete_job", (job,))


# ---- parents -----------------------------------------------------------------------------------------------


class EndedParent(NamedTuple):
    """A job that has ended, as its children see it. A deleted job is one that was cancelled."""

    id: bytes
    state: State
    reason: Reason | None = None
    died: bool = False
    """The job is dead, or it is a join with a dead member."""
    is_join: bool = False
    is_live: bool = False
    """A join that has not ended: only its children with the policy ``dead`` are resolved."""

    @classmethod
    def of(cls, tx: Tx, job: bytes, flags: int, state: State, reason: Reason | None) -> EndedParent:
        is_join = bool(flags & FLAG_JOIN)
        died = state is State.DEAD or (is_join and bool(tx.all("join_died", (job,))[0][0]))
        return cls(job, state, reason, died, is_join)

    @property
    def ended_well(self) -> bool:
        return self.state is State.SUCCEEDED or self.reason is Reason.BYPASSED

    @property
    def counts_as(self) -> str:
        """The column of ``joins`` in which its joins count it."""
        if self.ended_well:
            return "bypassed" if self.reason is Reason.BYPASSED else "succeeded"
        return "dead" if self.died else "cancelled"


class Verdict(Enum):
    """What the end of a parent does to its child."""

    RELEASE = "release"
    """The child waits for one parent less."""
    KEEP = "keep"
    """The edge stays."""
    CANCEL = Reason.PARENT
    BYPASS = Reason.BYPASSED

    @classmethod
    def of(cls, policy: str, parent: EndedParent) -> Verdict:
        """By the policy of the edge: see :class:`mainspring.jobs.records.Edge`."""
        if policy == "dead":
            return cls.RELEASE if parent.died else cls.BYPASS
        if policy == "failed":
            return cls.BYPASS if parent.ended_well else cls.RELEASE
        if parent.ended_well or policy == "ignore":
            return cls.RELEASE
        if policy == "skip":
            return cls.BYPASS
        return cls.KEEP if policy == "wait" and parent.state is State.DEAD else cls.CANCEL


# ---- children ----------------------------------------------------------------------------------------------


class _ChildEdge(NamedTuple):
    """The row of the statement ``children``: an edge with the blocked child."""

    parent: bytes
    child: bytes
    policy: str
    deps: int
    due: int | None
    queue: str
    flags: int
    lane: str
    task: str
    priority: int
    crashes: int
    buckets: str | None

    @property
    def placement(self) -> Placement:
        return Placement(self.lane, self.task, self.priority, self.crashes, self.buckets)


def resolve(tx: Tx, ended: Sequence[EndedParent]) -> None:
    """Parents have ended or are deleted: resolve their edges, then those of each child that ends by that."""
    while ended:
        ended = _resolve_round(tx, ended, _take_edges(tx, ended))


def resolve_slice(tx: Tx, parent: EndedParent, limit: int) -> int:
    """Resolve ``limit`` children of a join that ended with many. Returns how many there were."""
    rows = _take_first_edges(tx, parent, limit)
    resolve(tx, _resolve_round(tx, [parent], rows))
    return len(rows)


def _resolve_round(tx: Tx, ended: Sequence[EndedParent], rows: Sequence[_ChildEdge]) -> list[EndedParent]:
    """Move the children of these edges, in the order of their ids. Returns the children that ended and have children.

    Also returned are joins that wait, and whose first member has died.
    """
    parents = {parent.id: parent for parent in ended}
    children: dict[bytes, list[_ChildEdge]] = {}
    for row in rows:
        children.setdefault(row.child, []).append(row)
    moved = [_resolve_child(tx, edges, parents) for _, edges in sorted(children.items())]
    return [child for child in moved if child is not None]


def _resolve_child(tx: Tx, edges: Sequence[_ChildEdge], parents: dict[bytes, EndedParent]) -> EndedParent | None:
    """An edge that cancels the child decides, then an edge that bypasses it; else the child waits for fewer parents.

    The end of a member never ends its join at once. Returns the child if it has children to resolve.
    """
    child = edges[0]
    members = [parents[edge.parent] for edge in edges if edge.policy == EDGE_MEMBER]
    has_first_death = bool(members) and _count_members(tx, child.child, members)
    released, reasons = len(members), set[Reason]()
    for edge in edges:
        if edge.policy == EDGE_MEMBER:
            continue
        verdict = Verdict.of(edge.policy, parents[edge.parent])
        if verdict is Verdict.RELEASE:
            released += 1
        elif verdict is not Verdict.KEEP:
            reasons.add(Reason(verdict.value))
    if reasons:
        return _end_child(tx, child, Reason.PARENT if Reason.PARENT in reasons else Reason.BYPASSED)
    if child.flags & FLAG_JOIN:
        return _wait_or_end(tx, child, released, has_first_death=has_first_death)
    if released:
        _unblock(tx, child, released)
    return None


def _end_child(tx: Tx, child: _ChildEdge, reason: Reason) -> EndedParent | None:
    """End the child because of a parent. Returns it if it has children."""
    if child.flags & FLAG_JOIN:
        _leave_flow(tx, child.child)
    ended = EndedParent.of(tx, child.child, child.flags, State.CANCELLED, reason)
    _move(tx, child.child, child.flags, JobEnding(State.CANCELLED, reason, None, 0, child.crashes))
    tx.run("drop_edges_of_child", (child.child,))
    return ended if child.flags & FLAG_HAS_CHILDREN else None


def _unblock(tx: Tx, job: _ChildEdge, released: int) -> None:
    """The job waits for fewer parents. If none is left it becomes ready, or scheduled if it is due later."""
    if job.deps > released:
        tx.run("wait_for_fewer", (released, job.child))
        return
    seq = tx.next_seq()
    if job.due is not None and job.due > tx.now:
        tx.run("unblock", (State.SCHEDULED, job.due, seq, job.child))
    else:
        tx.run("unblock", (State.READY, None, seq, job.child))
        enter_ready(tx, job.queue, job.placement, seq)


def _take_edges(tx: Tx, ended: Sequence[EndedParent]) -> list[_ChildEdge]:
    """Read the edges of these parents, and delete those that are resolved now."""
    rows: list[_ChildEdge] = []
    ordinary = [parent.id for parent in ended if not parent.is_join and parent.state is not State.DEAD]
    for start, end in sizes(len(ordinary)):
        part = ordinary[start:end]
        rows += map(_ChildEdge._make, tx.sized("children", len(part), part))
        tx.sized("drop_edges_of_parents", len(part), part)
    for parent in ended:
        if parent.is_live:
            rows += map(_ChildEdge._make, tx.all("children_of_death", (parent.id,)))
            tx.run("drop_edges_of_death", (parent.id,))
        elif parent.is_join:
            rows += _take_first_edges(tx, parent, CHILDREN_AT_ONCE)
        elif parent.state is State.DEAD:
            rows += map(_ChildEdge._make, tx.sized("children", 1, (parent.id,)))
            tx.run("drop_edges_of_dead_parent", (parent.id,))
    return rows


def _take_first_edges(tx: Tx, parent: EndedParent, limit: int) -> list[_ChildEdge]:
    """Read and delete the first edges of a join that has ended. A promotion resolves those that are left."""
    found = [_ChildEdge._make(row) for row in tx.all("first_children", (parent.id, limit + 1))]
    rows = found[:limit]
    if rows:
        tx.run("drop_first_edges", (parent.id, rows[-1].child))
    if len(found) > len(rows):
        tx.run("release_children", (parent.id, parent.state, parent.reason, parent.died))
    else:
        tx.run("all_released", (parent.id,))
    return rows


# ---- joins -------------------------------------------------------------------------------------------------


def _count_members(tx: Tx, join: bytes, members: Sequence[EndedParent]) -> bool:
    """Count the ends of members of a join. Whether one of them is the first that is dead."""
    counts = dict.fromkeys(("succeeded", "dead", "cancelled", "bypassed"), 0)
    counts.update(Counter(member.counts_as for member in members))
    return bool(tx.all("count_members", {"job": join, **counts})[0][0])


def _wait_or_end(tx: Tx, join: _ChildEdge, released: int, *, has_first_death: bool) -> EndedParent | None:
    """The join waits for fewer jobs, and ends after the last one. Returns it if it has children to resolve."""
    tx.run("wait_for_fewer", (released, join.child))
    ended = end_join(tx, join.child) if join.deps == released else None
    if ended is None and has_first_death and join.flags & FLAG_HAS_CHILDREN:
        return EndedParent(join.child, State.BLOCKED, died=True, is_join=True, is_live=True)
    return ended


def end_join(tx: Tx, join: bytes) -> EndedParent | None:
    """End a join that is closed and waits for nothing. Returns it if its children have to be resolved."""
    found = tx.first("join_to_end", (join,))
    if found is None:
        return None
    flags, crashes, died, is_bad = found
    state, reason = (State.CANCELLED, Reason.PARENT) if is_bad else (State.SUCCEEDED, None)
    _move(tx, join, flags, JobEnding(state, reason, None, 0, crashes))
    return EndedParent(join, state, reason, bool(died), is_join=True) if flags & FLAG_HAS_CHILDREN else None


def settle_join(tx: Tx, join: bytes) -> None:
    """End a join if it is closed and waits for nothing."""
    ended = end_join(tx, join)
    if ended is not None:
        resolve(tx, [ended])


def _leave_flow(tx: Tx, join: bytes) -> None:
    """A join ends other than by its members: it takes no more of them, and the jobs of its flow end with it."""
    tx.run("close_join", (join,))
    sweep_flow(tx, join, deleted=False)


def flow_mark(root: bytes) -> str:
    """The mark of the jobs of a flow."""
    return FLOW_MARK + root.hex()


def sweep_flow(tx: Tx, root: bytes, *, deleted: bool) -> None:
    """Let a promotion cancel the jobs of a flow, or delete them, if the join is the root of one."""
    tx.run("sweep_flow", {"root": root, "deleted": deleted, "now": tx.now, "mark": flow_mark(root)})
