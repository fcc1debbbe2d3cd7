"""The one routine into a final state: history, follow-up jobs, dependents, parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mainspring.states import Reason, State

from .follows import insert_follows
from .freeing import Blocked, free
from .parts import note_success
from .places import Standing
from .tx import FOLLOWED_END, FOLLOWED_SUCCESS, HAS_CHILDREN, LIMITED, OF_PART

if TYPE_CHECKING:
    from .tx import Tx


class End(NamedTuple):
    """How a job ended: what its row in history says beside what the live row said."""

    state: State
    reason: Reason | None
    worker: str | None
    attempt: int
    crashes: int
    result: bytes | None = None
    error: bytes | None = None
    label: str | None = None
    note: str | None = None


def finish(tx: Tx, job: bytes, flags: int, end: End) -> None:
    """Move a live job to history and resolve what hung on it."""
    _move(tx, job, flags, end)
    if flags & OF_PART and end.state is State.SUCCEEDED:
        note_success(tx, job)
    if flags & HAS_CHILDREN:
        resolve(tx, job, succeeded=end.state is State.SUCCEEDED)


def finish_waiting(tx: Tx, job: bytes, reason: Reason, note: str | None = None) -> bool:
    """Cancel a job that waits; False if it runs or is gone, say with a parent that ended just before."""
    found = tx.first("waiting_row", (job,))
    if found is None:
        return False
    worker, attempt, crashes, flags = found
    if flags & LIMITED:
        tx.run("open_waiting", (job,))
    finish(tx, job, flags, End(State.CANCELLED, reason, worker, attempt, crashes, note=note))
    tx.run("forget_child", (job,))
    return True


def resolve(tx: Tx, parent: bytes, *, succeeded: bool) -> None:
    """A parent has ended (or is deleted): each child is freed, or cancelled and its own children with it."""
    ended = [(parent, succeeded)]
    while ended:
        parent, succeeded = ended.pop()
        children = tx.all("children", (parent,))
        tx.run("forget_parent", (parent,))
        for child, policy, deps, due, queue, flags, *standing in children:
            job = Standing(*standing)
            if policy == "fail" and not succeeded:
                _move(tx, child, flags, End(State.CANCELLED, Reason.PARENT, None, 0, job.crashes))
                tx.run("forget_child", (child,))
                ended.append((child, False))
            else:
                free(tx, Blocked(child, deps, due, queue, job))


def _move(tx: Tx, job: bytes, flags: int, end: End) -> None:
    if flags & (FOLLOWED_SUCCESS if end.state is State.SUCCEEDED else FOLLOWED_END):
        insert_follows(tx, job, end.state)
    tx.run("to_dead" if end.state is State.DEAD else "to_finished", {"id": job, "now": tx.now, **end._asdict()})
    tx.run("delete_job", (job,))
