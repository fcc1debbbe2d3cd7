"""Keys under which the newest enqueue replaces the job that waits: debounce, throttle, keep_last.

A key names the job that took it last and the one before that was started. Nothing is written when one of them is
claimed or ends: who enqueues looks. A job that was claimed once is never changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mainspring.jobs.records import Edge, NewJob, UniqueKey
from mainspring.states import Reason, State

from .finish import finish_waiting
from .follows import add_follows
from .inserts import READY, SCHEDULED, add_beside, due_of, is_there, row_of, standing_of
from .places import enter_ready
from .settings import admitted
from .tx import HAS_CHILDREN, LIMITED

if TYPE_CHECKING:
    from .settings import Kept
    from .tx import Tx

_COLUMNS = (
    "id", "state", "queue", "lane", "task", "priority", "seq", "due", "expires", "crash_limit", "early", "enqueued",
    "flags", "buckets", "record",
)  # fmt: skip
"""What :func:`row_of` gives."""


class Last(NamedTuple):
    """The job that took a key last."""

    id: bytes
    before: bytes | None
    said: bytes | None
    waits: bool
    """It is live and was not started yet."""
    began: bool
    """It is live and was."""
    state: str | None
    enqueued: int
    due: int | None
    seq: int
    flags: int
    late: bool
    queue: str | None


class Turn(NamedTuple):
    """What becomes of a new job by its key."""

    job: NewJob
    """To insert; or, if another speaks for it, as it stands now."""
    answers: bytes | None = None
    moved: bool = False
    """It is that of another queue than before."""


def take_turn(tx: Tx, job: NewJob, unique: UniqueKey, seq: int, queue: Kept | None) -> Turn:
    """The job to insert, with what its key adds; or, if there is none, the one that speaks for it."""
    found = tx.first("latest", (unique.hash, tx.now))
    last = None if found is None else Last(*found)
    if last is not None and last.said == job.id:
        return Turn(job, last.id)
    if queue is not None:
        job = admitted(job, queue)
    if last is not None and last.late:
        finish_waiting(tx, last.id, Reason.EXPIRED)
        last = last._replace(waits=False, began=False)
    if last is not None and last.waits:
        return Turn(_replace(tx, last, job, unique, seq), last.id, moved=last.queue != job.queue)
    placed, before = _behind(tx, job, unique, last)
    span = unique.window if unique.mode == "throttle" else 0
    tx.run("lose_key", (unique.hash,))
    tx.run("take_latest", (job.id, unique.hash, unique.mode, span, None, before))
    return Turn(placed)


def _behind(tx: Tx, job: NewJob, unique: UniqueKey, last: Last | None) -> tuple[NewJob, bytes | None]:
    """A new job as its key wants it, and the job that it comes after."""
    if unique.mode == "debounce":
        return msgspec.structs.replace(job, run_at=tx.now + unique.window), None
    if last is None:
        return job, None
    if unique.mode == "keep_last":
        before = last.id if last.began else last.before
        if before is None or not is_there(tx, before, anywhere=False):
            return job, None
        return msgspec.structs.replace(job, after=(Edge(before, "ignore"),)), before
    for before in (last.id, last.before):
        started = None if before is None else tx.first("started_at", {"id": before})
        if started is not None:
            due = min(started[0] or 0, tx.now) + unique.window
            return msgspec.structs.replace(job, run_at=due), before
    return job, None


def _replace(tx: Tx, last: Last, job: NewJob, unique: UniqueKey, seq: int) -> NewJob:
    """All that is said of the job that waits is said anew; it stays who it is."""
    if last.flags & LIMITED:
        tx.run("open_waiting", (last.id,))
    own = msgspec.structs.replace(job, id=last.id)
    row = dict(zip(_COLUMNS, row_of(own, seq, tx.now), strict=True))
    due = _due_again(last, job, unique, tx.now)
    state = SCHEDULED if due is not None and due > tx.now else READY
    if last.state == State.BLOCKED:
        state = last.state
    if last.state == state == READY and last.queue == job.queue:
        row["seq"] = last.seq
    row |= {"state": state, "due": None if state == READY else due, "keep": job.keep}
    row["flags"] |= last.flags & HAS_CHILDREN
    tx.run("replace_job", row)
    tx.run("drop_marks", (last.id,))
    tx.run("drop_follows", (last.id,))
    add_beside(tx, (own,))
    add_follows(tx, (own,))
    if state == READY:
        enter_ready(tx, job.queue, standing_of(tuple(row[name] for name in _COLUMNS)), row["seq"])
    tx.run("said_last", (job.id, unique.window if unique.mode == "throttle" else 0, last.id))
    return own


def _due_again(last: Last, job: NewJob, unique: UniqueKey, now: int) -> int | None:
    if unique.mode == "throttle":
        return last.due
    if unique.mode == "keep_last":
        return due_of(job, now)
    due = now + unique.window
    return min(due, last.enqueued + unique.max_wait) if unique.max_wait else due
