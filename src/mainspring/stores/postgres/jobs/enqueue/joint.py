"""Several enqueue calls as one: one round trip, one statement, one commit for producers that share an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import psycopg

from mainspring.errors import EnqueueError
from mainspring.jobs.records import Enqueued, JobBatch
from mainspring.stores.postgres.driver.database import Database
from mainspring.stores.postgres.driver.session import Rows, Step
from mainspring.stores.postgres.driver.statements import fill_schema
from mainspring.stores.postgres.driver.wakeups import SETTLE, NotifyingEnqueue
from mainspring.stores.postgres.jobs.enqueue.statement import (
    decode_rows,
    enqueue_call,
    enqueue_reply,
    enqueue_short,
    freed_queues,
    may_wait,
)
from mainspring.stores.shared.joining import Joiner

MOST: Final = 1000
"""Jobs of 8 KB that one joint call carries."""
_PIECE = 8 * 1024
_LOCK_BATCHES = "select {schema}.lock_batches_v1(%(batches)b::bytea[])"
_UNKNOWN = ("08", "57", "58", "XX")
"""SQLSTATE classes after which the outcome is unknown: connection lost, stopped by an operator, I/O error, bug."""


class JointProducers:
    """The enqueue calls of one event loop.

    A batch that an open transaction of another program can hold up is sent by itself, so that no other batch waits
    behind it. At most ``places`` of them are sent at a time, so that connections are left for the others.
    """

    def __init__(self, db: Database, *, places: int) -> None:
        self._db = db
        self._places = asyncio.Semaphore(max(1, places))
        self._joiner = Joiner(self._insert, self._insert_together, undone=is_undone, size=batch_size, most=MOST)

    async def enqueue(self, batch: JobBatch) -> list[Enqueued]:
        if not (batch.retry or may_wait(batch)):
            return await self._joiner.call(batch)
        async with self._places:
            return await self._insert(batch)

    @property
    def crowded(self) -> bool:
        """Whether all places are taken."""
        return self._places.locked()

    async def _insert_together(self, batches: Sequence[JobBatch]) -> list[list[Enqueued]]:
        return part_replies(batches, await self._insert(join_batches(batches), lock_batches(batches, self._db.schema)))

    async def _insert(self, batch: JobBatch, *first: Step) -> list[Enqueued]:
        db = self._db
        notifying = NotifyingEnqueue(db.notifier, batch)
        rows = notifying.own_rows(await self._run(batch, notifying, first))
        if notifying.unsettled and db.sessions.waits_for_disk:
            await db.sessions.rows(*SETTLE)
        await db.send_notifications(notifying.take_due(freed_queues(rows)))
        return enqueue_reply(batch, rows)

    async def _run(self, batch: JobBatch, notifying: NotifyingEnqueue, first: Sequence[Step]) -> Rows:
        db = self._db
        short = enqueue_short(batch, db.schema, db.now()) if db.sessions.takes_native and not first else None
        if short is not None:
            return decode_rows(await db.sessions.native_rows(notifying.native_step(short)))
        return await db.sessions.rows(*notifying.step(enqueue_call(batch, db.schema, db.now())), first=first)


def batch_size(batch: JobBatch) -> int:
    """The size of a batch in jobs of 8 KB."""
    return sum(1 + len(job.record) // _PIECE for job in batch.jobs)


def join_batches(batches: Sequence[JobBatch]) -> JobBatch:
    """All jobs in one batch; :func:`lock_batches` locks the ids of the other batches."""
    return JobBatch(id=batches[0].id, jobs=tuple(job for batch in batches for job in batch.jobs))


def lock_batches(batches: Sequence[JobBatch], schema: str) -> Step:
    """The statement that comes first, in the same transaction."""
    return fill_schema(_LOCK_BATCHES, schema), {"batches": [batch.id for batch in batches]}


def part_replies(batches: Sequence[JobBatch], replies: list[Enqueued]) -> list[list[Enqueued]]:
    """The replies of each call."""
    parts = []
    for batch in batches:
        parts.append(replies[: len(batch.jobs)])
        replies = replies[len(batch.jobs) :]
    return parts


def is_undone(error: Exception) -> bool:
    """Whether the server itself refused the joint call, so that nothing of it was stored."""
    if isinstance(error, EnqueueError):
        return True
    return isinstance(error, psycopg.Error) and error.sqlstate is not None and error.sqlstate[:2] not in _UNKNOWN
