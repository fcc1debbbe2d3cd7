"""Unique keys: who holds one, and how it passes on.

No door out of a job's life lets a key go. Whether the last job that took it still holds it is read off when
somebody asks: it does while it is live, and to the end of its window. So no end can be forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from mainspring.errors import KeyConflict, KeyTaken
from mainspring.jobs.records import NewJob, UniqueKey
from mainspring.states import Reason

from .finish import finish_waiting
from .inserts import is_there

if TYPE_CHECKING:
    from .tx import Tx

_EXPIRED = 2


def holder_of(tx: Tx, key: bytes) -> bytes | None:
    """The job that holds the key now. One that has expired while it waited holds it no more: it ends here."""
    found = tx.first("last_holder", (key, tx.now))
    if found is None:
        return None
    job: bytes
    before: bytes | None
    job, until, live, mode, span, before = found
    if live == _EXPIRED:
        finish_waiting(tx, job, Reason.EXPIRED)
        live = 0
    if live or until > tx.now or (mode == "keep" and tx.first("is_kept", (job, tx.now - span))):
        return job
    return before if mode == "keep_last" and before is not None and is_there(tx, before, anywhere=False) else None


def claim_key(tx: Tx, job: NewJob) -> tuple[bytes | None, bytes | None]:
    """What stands in a new job's way: the holder that answers for it, and the one that it takes the key from.

    With neither, the key was free; unless there is an answer, the key is the new job's now.
    """
    if job.unique is None:
        return None, None
    holder = holder_of(tx, job.unique.hash)
    if holder is not None and job.unique.print:
        _compare(tx, job, job.unique, holder)
    if holder is not None and job.unique.conflict == "error":
        raise KeyTaken(job.task, UUID(bytes=holder))
    if holder is not None and job.unique.conflict == "return":
        return holder, None
    tx.run("lose_key", (job.unique.hash,))
    if job.unique.keep:
        tx.run("take_latest", (job.id, job.unique.hash, "keep", job.unique.keep, job.unique.print or None, None))
    else:
        tx.run("take_key", (job.id, job.unique.hash, tx.now + job.unique.window if job.unique.window else 0))
    return None, holder


def _compare(tx: Tx, job: NewJob, unique: UniqueKey, holder: bytes) -> None:
    """Refuse another request under the same key."""
    (print_,) = tx.all("print_of", (unique.hash,))[0]
    if print_ is not None and print_ != unique.print:
        raise KeyConflict(job.task, UUID(bytes=holder), UUID(bytes=job.id))


def retake_key(tx: Tx, job: bytes) -> bytes | None:
    """Take the key again for a job that begins anew; if another holds it, that one, and nothing is changed.

    A window that still runs goes on; there is no new one.
    """
    found = tx.first("key_of", (job,))
    if found is None:
        return None
    key, mode, holds = found
    holder = holder_of(tx, key)
    if holder == job:
        return None
    if holder is None and not holds:
        tx.run("lose_key", (key,))
        tx.run("retake_key", (job, key, "" if mode == "keep" else mode))
    return holder


def drop_key(tx: Tx, job: bytes) -> None:
    """The job is gone; the key is that of the one before it again, if that was started under it."""
    found = tx.first("drop_key", (job,))
    if found is not None and found[0] and found[1] is not None:
        tx.run("hold_again", (found[1],))
