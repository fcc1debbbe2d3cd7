"""Several enqueue calls as one: one round trip, one statement, one commit for producers that share an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import psycopg

from mainspring.errors import EnqueueError
from mainspring.jobs.records import Batch, Enqueued
from mainspring.stores.postgres.enqueue import may_wait
from mainspring.stores.postgres.session import Step
from mainspring.stores.postgres.statements import fill
from mainspring.stores.shared.joining import Joiner

MOST: Final = 1000
_PIECE = 8 * 1024
_ENTER = "select {schema}.enter_v1(%(batches)b::bytea[])"
_UNKNOWN = ("08", "57", "58", "XX")  # connection lost, stopped by somebody, trouble with files, a bug: who knows


class Producers:
    """The enqueue calls of one event loop. Those that somebody's open transaction can hold up go each by itself,
    so that nobody stands behind them; at most ``places`` at a time, so that connections are left for the others.
    """

    def __init__(self, insert: Callable[..., Awaitable[list[Enqueued]]], schema: str, *, places: int) -> None:
        self._insert = insert
        self._schema = schema
        self._places = asyncio.Semaphore(max(1, places))
        self._joiner = Joiner(insert, self._together, undone=undone, size=size, most=MOST)

    async def enqueue(self, batch: Batch) -> list[Enqueued]:
        if not (batch.retry or may_wait(batch)):
            return await self._joiner.call(batch)
        async with self._places:
            return await self._insert(batch)

    @property
    def crowded(self) -> bool:
        """Whether all places are taken."""
        return self._places.locked()

    async def _together(self, batches: Sequence[Batch]) -> list[list[Enqueued]]:
        said = await self._insert(joined(batches), enter(batches, self._schema))
        return parted(batches, said)


def size(batch: Batch) -> int:
    """In jobs of 8 KB: a thousand of them are what one statement carries."""
    return sum(1 + len(job.record) // _PIECE for job in batch.jobs)


def joined(batches: Sequence[Batch]) -> Batch:
    """All jobs in one batch; the locks that :func:`enter` takes stand for the other batches."""
    return Batch(id=batches[0].id, jobs=tuple(job for batch in batches for job in batch.jobs))


def enter(batches: Sequence[Batch], schema: str) -> Step:
    """The statement that comes first, in the same transaction."""
    return fill(_ENTER, schema), {"batches": [batch.id for batch in batches]}


def parted(batches: Sequence[Batch], said: list[Enqueued]) -> list[list[Enqueued]]:
    """The replies of each call."""
    parts = []
    for batch in batches:
        parts.append(said[: len(batch.jobs)])
        said = said[len(batch.jobs) :]
    return parts


def undone(error: Exception) -> bool:
    """Whether the server itself said that it refused, so that nothing of the joint call stands."""
    if isinstance(error, EnqueueError):
        return True
    return isinstance(error, psycopg.Error) and error.sqlstate is not None and error.sqlstate[:2] not in _UNKNOWN
