"""Unique keys: which job holds a key, how the key passes on, and the modes in which the newest enqueue replaces a job.

Nothing is written about a key when a job ends. Whether the last job that took a key still holds it is found out when
another job asks: the job holds it while it is live, and to the end of its window. So no way to end a job can forget it.

Modes debounce, throttle, keep_last: the newest enqueue replaces the waiting job of its key. A key names the job that
took it last and the job before that was started. Again nothing is written when one of them is claimed or ends: the next
enqueue looks. A job that was claimed once is never changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import msgspec

from mainspring.errors import KeyConflict, KeyTaken
from mainspring.jobs.records import Edge, NewJob, UniqueKey
from mainspring.states import Reason, State
from mainspring.stores.shared.constants import EDGE_IGNORE
from mainspring.stores.sqlite.driver.constants import FLAG_HAS_CHILDREN, FLAG_LIMITED, HOLDER_EXPIRED, KEY_KEEP
from mainspring.stores.sqlite.lanes import READY, enter_ready, placement_of
from mainspring.stores.sqlite.queues import admit
from mainspring.stores.sqlite.rows import COLUMNS, SCHEDULED, add_marks_and_keeps, due_of, job_exists, row_of

from .finish import finish_waiting
from .follow_ups import add_follow_ups

if TYPE_CHECKING:
    from mainspring.stores.sqlite.driver.transaction import Tx
    from mainspring.stores.sqlite.queues import StoredQueue


# ---- keys in the mode once -------------------------------------------------------------------------------


def holder_of(tx: Tx, key: bytes) -> bytes | None:
    """The job that holds the key now. A job that has expired while it waited holds it no more, and ends here."""
    found = tx.first("key_holder", (key, tx.now))
    if found is None:
        return None
    job: bytes
    previous: bytes | None
    job, window_end, live, mode, span, previous = found
    if live == HOLDER_EXPIRED:
        finish_waiting(tx, job, Reason.EXPIRED)
        live = 0
    if live or window_end > tx.now or (mode == KEY_KEEP and tx.first("succeeded_after", (job, tx.now - span))):
        return job
    if mode == "keep_last" and previous is not None and job_exists(tx, previous, anywhere=False):
        return previous
    return None


def take_key(tx: Tx, job: NewJob) -> tuple[bytes | None, bytes | None]:
    """Take the key for a new job. Returns (the holder that answers for the job, the holder that loses the key).

    With an answer the new job is not inserted; without one the key is the new job's now.
    """
    if job.unique is None:
        return None, None
    holder = holder_of(tx, job.unique.hash)
    if holder is not None and job.unique.print:
        _compare_print(tx, job, job.unique, holder)
    if holder is not None and job.unique.conflict == "error":
        raise KeyTaken(job.task, UUID(bytes=holder))
    if holder is not None and job.unique.conflict == "return":
        return holder, None
    tx.run("release_key", (job.unique.hash,))
    if job.unique.keep:
        values = (job.id, job.unique.hash, KEY_KEEP, job.unique.keep, job.unique.print or None, None)
        tx.run("take_key_with_mode", values)
    else:
        tx.run("take_key", (job.id, job.unique.hash, tx.now + job.unique.window if job.unique.window else 0))
    return None, holder


def _compare_print(tx: Tx, job: NewJob, unique: UniqueKey, holder: bytes) -> None:
    """Refuse a different request under the same key."""
    (print_,) = tx.all("print_of_key", (unique.hash,))[0]
    if print_ is not None and print_ != unique.print:
        raise KeyConflict(job.task, UUID(bytes=holder), UUID(bytes=job.id))


def retake_key(tx: Tx, job: bytes) -> bytes | None:
    """Take the key again for a job that is retried by hand. If another job holds it, return that job.

    A window that still runs goes on; the job gets no new one.
    """
    found = tx.first("key_of_job", (job,))
    if found is None:
        return None
    key, mode, holds = found
    holder = holder_of(tx, key)
    if holder == job:
        return None
    if holder is None and not holds:
        tx.run("release_key", (key,))
        tx.run("retake_key", (job, key, "" if mode == KEY_KEEP else mode))
    return holder


def drop_key(tx: Tx, job: bytes) -> None:
    """The job is deleted. The job before it holds the key again, if that job was started under the key."""
    found = tx.first("drop_key", (job,))
    if found is not None and found[0] and found[1] is not None:
        tx.run("restore_key", (found[1],))


# ---- modes in which the newest enqueue replaces the waiting job --------------------------------------------


class LatestJob(NamedTuple):
    """The job that took a key last: the row of the statement ``latest_job``."""

    id: bytes
    previous: bytes | None
    replaced_by: bytes | None
    waits: bool
    """The job is live and was never started."""
    began: bool
    """The job is live and was started."""
    state: str | None
    enqueued: int
    due: int | None
    seq: int
    flags: int
    expired: bool
    queue: str | None


class KeyDecision(NamedTuple):
    """What an enqueue under a key with a mode does."""

    job: NewJob
    """The job to insert; or, if another job answers for it, the replaced job as it is now."""
    answers: bytes | None = None
    moved: bool = False
    """The replaced job went to another queue."""


def take_key_with_mode(tx: Tx, job: NewJob, unique: UniqueKey, seq: int, queue: StoredQueue | None) -> KeyDecision:
    """Replace the waiting job of the key, or take the key for the new job, with the times that its mode adds."""
    found = tx.first("latest_job", (unique.hash, tx.now))
    last = None if found is None else LatestJob(*found)
    if last is not None and last.replaced_by == job.id:
        return KeyDecision(job, last.id)
    if queue is not None:
        job = admit(job, queue)
    if last is not None and last.expired:
        finish_waiting(tx, last.id, Reason.EXPIRED)
        last = last._replace(waits=False, began=False)
    if last is not None and last.waits:
        return KeyDecision(_replace(tx, last, job, unique, seq), last.id, moved=last.queue != job.queue)
    timed, previous = _behind(tx, job, unique, last)
    span = unique.window if unique.mode == "throttle" else 0
    tx.run("release_key", (unique.hash,))
    tx.run("take_key_with_mode", (job.id, unique.hash, unique.mode, span, None, previous))
    return KeyDecision(timed)


def _behind(tx: Tx, job: NewJob, unique: UniqueKey, last: LatestJob | None) -> tuple[NewJob, bytes | None]:
    """A new job with the time or the parent that its mode adds, and the job that it comes after."""
    if unique.mode == "debounce":
        return msgspec.structs.replace(job, run_at=tx.now + unique.window), None
    if last is None:
        return job, None
    if unique.mode == "keep_last":
        previous = last.id if last.began else last.previous
        if previous is None or not job_exists(tx, previous, anywhere=False):
            return job, None
        return msgspec.structs.replace(job, after=(Edge(previous, EDGE_IGNORE),)), previous
    for previous in (last.id, last.previous):
        started = None if previous is None else tx.first("started_at", {"id": previous})
        if started is not None:
            due = min(started[0] or 0, tx.now) + unique.window
            return msgspec.structs.replace(job, run_at=due), previous
    return job, None


def _replace(tx: Tx, last: LatestJob, job: NewJob, unique: UniqueKey, seq: int) -> NewJob:
    """Write everything of the new job into the waiting job, which keeps its id, its enqueue time and its children."""
    if last.flags & FLAG_LIMITED:
        tx.run("open_lane_of_job", (last.id,))
    own = msgspec.structs.replace(job, id=last.id)
    row = dict(zip(COLUMNS, row_of(own, seq, tx.now), strict=True))
    due = _due_again(last, job, unique, tx.now)
    state = SCHEDULED if due is not None and due > tx.now else READY
    if last.state == State.BLOCKED:
        state = last.state
    if last.state == state == READY and last.queue == job.queue:
        row["seq"] = last.seq
    row |= {"state": state, "due": None if state == READY else due, "keep": job.keep}
    row["flags"] |= last.flags & FLAG_HAS_CHILDREN
    tx.run("replace_job", row)
    tx.run("drop_marks", (last.id,))
    tx.run("drop_follow_ups", (last.id,))
    add_marks_and_keeps(tx, (own,))
    add_follow_ups(tx, (own,))
    if state == READY:
        enter_ready(tx, job.queue, placement_of(tuple(row[name] for name in COLUMNS)), row["seq"])
    tx.run("set_replaced_by", (job.id, unique.window if unique.mode == "throttle" else 0, last.id))
    return own


def _due_again(last: LatestJob, job: NewJob, unique: UniqueKey, now: int) -> int | None:
    if unique.mode == "throttle":
        return last.due
    if unique.mode == "keep_last":
        return due_of(job, now)
    due = now + unique.window
    return min(due, last.enqueued + unique.max_wait) if unique.max_wait else due
