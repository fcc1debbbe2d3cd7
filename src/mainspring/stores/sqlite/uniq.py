"""Unique keys: who holds one, and how it passes on.

No door out of a job's life lets a key go. Whether the last job that took it still holds it is read off when
somebody asks: it does while it is live, and to the end of its window. So no end can be forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from mainspring.errors import KeyTaken
from mainspring.records import NewJob
from mainspring.states import Reason

from .finish import finish_waiting

if TYPE_CHECKING:
    from .tx import Tx

_EXPIRED = 2


def holder_of(tx: Tx, key: bytes) -> bytes | None:
    """The job that holds the key now. One that has expired while it waited holds it no more: it ends here."""
    found = tx.first("last_holder", (key, tx.now))
    if found is None:
        return None
    job, until, live = found
    if live == _EXPIRED:
        finish_waiting(tx, job, Reason.EXPIRED)
        live = 0
    return job if live or until > tx.now else None


def claim_key(tx: Tx, job: NewJob) -> tuple[bytes | None, bytes | None]:
    """What stands in a new job's way: the holder that answers for it, and the one that it takes the key from.

    With neither, the key was free; unless there is an answer, the key is the new job's now.
    """
    if job.unique is None:
        return None, None
    holder = holder_of(tx, job.unique.hash)
    if holder is not None and job.unique.conflict == "error":
        raise KeyTaken(job.task, UUID(bytes=holder))
    if holder is not None and job.unique.conflict == "return":
        return holder, None
    tx.run("lose_key", (job.unique.hash,))
    tx.run("take_key", (job.id, job.unique.hash, tx.now + job.unique.window if job.unique.window else 0))
    return None, holder


def retake_key(tx: Tx, job: bytes) -> bytes | None:
    """Take the key again for a job that begins anew; if another holds it, that one, and nothing is changed.

    A window that still runs goes on; there is no new one.
    """
    found = tx.first("key_of", (job,))
    if found is None:
        return None
    (key,) = found
    holder = holder_of(tx, key)
    if holder == job:
        return None
    if holder is None:
        tx.run("lose_key", (key,))
        tx.run("take_key", (job, key, 0))
    return holder
