"""Follow-up jobs: written beside their job when that is enqueued, inserted in the step in which it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from mainspring.errors import StoreConflict
from mainspring.jobs.records import NewJob
from mainspring.states import FINAL, State

from .inserts import insert_free
from .parts import mark_of

if TYPE_CHECKING:
    from .tx import Tx

LARGEST = 1 << 60
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(NewJob).decode


def add_follows(tx: Tx, jobs: Sequence[NewJob]) -> None:
    for job in jobs:
        for n, follow in enumerate(job.follows):
            _check(job, follow.on, follow.job)
            tx.run("add_follow", (job.id, follow.on, n, _pack(follow.job)))


def _check(job: NewJob, on: State, follow: NewJob) -> None:
    """Refuse now what could not be inserted later: then it would keep its job from ending."""
    numbers = (follow.priority, follow.delay, follow.run_at or 0, follow.expires_in or 0, follow.crashes)
    wrong = ""
    if on not in FINAL:
        wrong = f"waits for {on}, which is no end"
    elif len(follow.id) != 16 or follow.id[14:] != b"\0\0":
        wrong = "has an id without room for an epoch"
    elif follow.unique or follow.after or follow.buckets or follow.fair or follow.follows:
        wrong = "has a unique key, parents, limits or follow-up jobs of its own"
    elif mark_of(follow.marks):
        wrong = "is of a part"
    elif any(abs(number) > LARGEST for number in (*numbers, follow.keep or 0)):
        wrong = "has a number that is too large"
    if wrong:
        raise StoreConflict(f"job {UUID(bytes=job.id)}: its follow-up job of task {follow.task!r} {wrong}")


def insert_follows(tx: Tx, job: bytes, state: State) -> None:
    """The live job ``job`` is about to end in ``state``."""
    for data, epoch in tx.all("follows_of", (job, state)):
        made = _unpack(data)
        own = made.id[:14] + (epoch & 0xFFFF).to_bytes(2)
        insert_free(tx, msgspec.structs.replace(made, id=own))
