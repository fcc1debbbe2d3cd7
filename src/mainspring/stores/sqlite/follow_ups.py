"""Follow-up jobs: stored beside their job at its enqueue, inserted in the step in which the job ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from mainspring.errors import StoreConflict
from mainspring.jobs.records import NewJob
from mainspring.states import FINAL, State

from .dependencies import mark_of
from .lanes import READY, enter_ready, placement_of
from .queues import add_queue_limits, count_if_limited, seq_in_queue, stored_queues
from .rows import add_marks_and_keeps, job_exists, row_of

if TYPE_CHECKING:
    from .driver.transaction import Tx

LARGEST = 1 << 60
"""The largest number that a follow-up job may have: a moment that is added to it still fits 64 bits."""
EPOCH_BYTES = 2
"""The last bytes of a follow-up job's id, which hold the epoch of the job that it follows."""
EPOCHS = 1 << (8 * EPOCH_BYTES)
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(NewJob).decode


def add_follow_ups(tx: Tx, jobs: Sequence[NewJob]) -> None:
    for job in jobs:
        for n, follow in enumerate(job.follows):
            _check(job, follow.on, follow.job)
            tx.run("add_follow_up", (job.id, follow.on, n, _pack(follow.job)))


def _check(job: NewJob, on: State, follow: NewJob) -> None:
    """Refuse now a follow-up job that could not be inserted later: then it would keep its job from ending."""
    numbers = (follow.priority, follow.delay, follow.run_at or 0, follow.expires_in or 0, follow.crashes)
    wrong = ""
    if on not in FINAL:
        wrong = f"waits for {on}, which is no end"
    elif len(follow.id) != 16 or follow.id[-EPOCH_BYTES:] != bytes(EPOCH_BYTES):
        wrong = "has an id without room for an epoch"
    elif follow.unique or follow.after or follow.buckets or follow.fair or follow.follows:
        wrong = "has a unique key, parents, limits or follow-up jobs of its own"
    elif mark_of(follow.marks):
        wrong = "is of a part"
    elif any(abs(number) > LARGEST for number in (*numbers, follow.keep or 0)):
        wrong = "has a number that is too large"
    if wrong:
        raise StoreConflict(f"job {UUID(bytes=job.id)}: its follow-up job of task {follow.task!r} {wrong}")


def insert_follow_ups(tx: Tx, job: bytes, state: State) -> None:
    """Insert the follow-up jobs of the live job ``job``, which is about to end in ``state``."""
    for data, epoch in tx.all("follow_ups_of", (job, state)):
        made = _unpack(data)
        own = made.id[:-EPOCH_BYTES] + (epoch % EPOCHS).to_bytes(EPOCH_BYTES)
        _insert(tx, msgspec.structs.replace(made, id=own))


def _insert(tx: Tx, job: NewJob) -> None:
    """Insert a job without parents and keys, whatever the mode of its queue, unless it exists or existed."""
    if job_exists(tx, job.id, anywhere=True):
        return
    seq, queue = tx.next_seq(), stored_queues(tx).get(job.queue)
    if queue is not None:
        job, seq = add_queue_limits(job, queue), seq_in_queue(seq, queue)
    row = row_of(job, seq, tx.now)
    tx.sized("enqueue", 1, row)
    if queue is not None:
        count_if_limited(tx, job, queue)
    add_marks_and_keeps(tx, (job,))
    if row[1] is READY:
        enter_ready(tx, job.queue, placement_of(row), row[6])
