"""Follow-up jobs: stored beside their job at its enqueue, inserted in the step in which the job ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from mainspring.jobs.records import FollowUp, NewJob
from mainspring.states import State
from mainspring.stores.shared.follow_ups import check_follow_ups, follow_ups_of_inserted
from mainspring.stores.sqlite.lanes import READY, enter_ready, placement_of
from mainspring.stores.sqlite.queues import add_queue_limits, count_if_limited, seq_in_queue, stored_queues
from mainspring.stores.sqlite.rows import add_marks_and_keeps, job_exists, row_of

if TYPE_CHECKING:
    from mainspring.stores.sqlite.driver.transaction import Tx

EPOCH_BYTES = 2
"""The last bytes of a follow-up job's id, which hold the epoch of the job that it follows."""
EPOCHS = 1 << (8 * EPOCH_BYTES)
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(NewJob).decode


def add_follow_ups(tx: Tx, jobs: Sequence[NewJob]) -> None:
    for job in jobs:
        if job.follows:
            check_follow_ups(job)
            _store(tx, job.id, job.follows)


def _store(tx: Tx, job: bytes, follows: Sequence[FollowUp]) -> None:
    for n, follow in enumerate(follows):
        tx.run("add_follow_up", (job, follow.on, n, _pack(follow.job)))


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
    _store(tx, job.id, follow_ups_of_inserted(job))
    if row[1] is READY:
        enter_ready(tx, job.queue, placement_of(row), row[6])
