"""A blocked job waits for one less: for a parent, or for the parts that its own part waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mainspring.states import State

from .places import Standing, enter_ready

if TYPE_CHECKING:
    from .tx import Tx


class Blocked(NamedTuple):
    """A job that waits for others."""

    id: bytes
    deps: int
    due: int | None
    queue: str
    standing: Standing


def free(tx: Tx, job: Blocked, place: int | None = None) -> None:
    """Once it waits for nobody it is ready, or scheduled if due later; behind all others unless it has a place."""
    if job.deps > 1:
        tx.run("one_less", (job.id,))
        return
    seq = tx.next_seq() if place is None else place
    if job.due is not None and job.due > tx.now:
        tx.run("unblock", (State.SCHEDULED, job.due, seq, job.id))
    else:
        tx.run("unblock", (State.READY, None, seq, job.id))
        enter_ready(tx, job.queue, job.standing, seq)
