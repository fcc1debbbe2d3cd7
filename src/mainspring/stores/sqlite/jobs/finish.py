"""The one way into a final state: history, follow-up jobs, children, dependents."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mainspring.states import Reason, State
from mainspring.stores.shared.constants import EDGE_FAIL
from mainspring.stores.sqlite.driver.constants import (
    FLAG_DEPENDENCY,
    FLAG_FOLLOWED_OTHER,
    FLAG_FOLLOWED_SUCCESS,
    FLAG_HAS_CHILDREN,
    FLAG_LIMITED,
)
from mainspring.stores.sqlite.lanes import Placement

from .dependencies import BlockedJob, note_success, unblock
from .follow_ups import insert_follow_ups

if TYPE_CHECKING:
    from mainspring.stores.sqlite.driver.transaction import Tx


class JobEnding(NamedTuple):
    """How a job ends: the fields of its history row that the live row does not have."""

    state: State
    reason: Reason | None
    worker: str | None
    attempt: int
    crashes: int
    result: bytes | None = None
    error: bytes | None = None
    label: str | None = None
    note: str | None = None


def finish(tx: Tx, job: bytes, flags: int, ending: JobEnding) -> None:
    """Move a live job to history, insert its follow-up jobs, and tell its dependents and children."""
    _move(tx, job, flags, ending)
    if flags & FLAG_DEPENDENCY and ending.state is State.SUCCEEDED:
        note_success(tx, job)
    if flags & FLAG_HAS_CHILDREN:
        resolve_children(tx, job, succeeded=ending.state is State.SUCCEEDED)


def finish_waiting(tx: Tx, job: bytes, reason: Reason, note: str | None = None) -> bool:
    """Cancel a waiting job. False if it runs or does not exist any more, for example after its parent's end."""
    found = tx.first("waiting_job", (job,))
    if found is None:
        return False
    worker, attempt, crashes, flags = found
    if flags & FLAG_LIMITED:
        tx.run("open_lane_of_job", (job,))
    finish(tx, job, flags, JobEnding(State.CANCELLED, reason, worker, attempt, crashes, note=note))
    tx.run("drop_edges_of_child", (job,))
    return True


def resolve_children(tx: Tx, parent: bytes, *, succeeded: bool) -> None:
    """A parent has ended or is deleted: unblock each child, or cancel the child and resolve its own children."""
    ended = [(parent, succeeded)]
    while ended:
        parent, succeeded = ended.pop()
        children = tx.all("children", (parent,))
        tx.run("drop_edges_of_parent", (parent,))
        for child, policy, deps, due, queue, flags, *placement in children:
            job = Placement(*placement)
            if policy == EDGE_FAIL and not succeeded:
                _move(tx, child, flags, JobEnding(State.CANCELLED, Reason.PARENT, None, 0, job.crashes))
                tx.run("drop_edges_of_child", (child,))
                ended.append((child, False))
            else:
                unblock(tx, BlockedJob(child, deps, due, queue, job))


def _move(tx: Tx, job: bytes, flags: int, ending: JobEnding) -> None:
    if flags & (FLAG_FOLLOWED_SUCCESS if ending.state is State.SUCCEEDED else FLAG_FOLLOWED_OTHER):
        insert_follow_ups(tx, job, ending.state)
    history = "to_dead" if ending.state is State.DEAD else "to_finished"
    tx.run(history, {"id": job, "now": tx.now, **ending._asdict()})
    tx.run("delete_job", (job,))
