"""Enqueue calls that meet on one event loop go together: one script for all of them.

A call that comes alone goes at once, by itself. Those that come while it is on its way share the
next script, which costs the server a third of what it would be one by one. Only plain batches: they
can be refused for no reason that one of them alone brings along, but for a queue that is draining.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from mainspring.errors import EnqueueError, StoreConflict
from mainspring.records import Enqueued
from mainspring.stores.base import Batch
from mainspring.stores.joining import Joiner

from . import enqueue
from .connection import Connection
from .resp import ServerError

MOST = 200
"""Jobs of 8 KB that go together: a script stops the whole server while it runs."""

_PIECE = 8 * 1024


class Enqueuer:
    """The enqueue of a store."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _OfLoop] = WeakKeyDictionary()

    async def enqueue(self, batch: Batch) -> list[Enqueued]:
        if not enqueue.is_plain(batch):
            return await self._alone(batch)
        mine = self._mine()
        if mine.is_sending:
            return await mine.joiner.call(batch)
        mine.is_sending = True
        try:
            return await self._alone(batch)
        finally:
            mine.is_sending = False

    def _mine(self) -> _OfLoop:
        loop = asyncio.get_running_loop()
        mine = self._loops.get(loop)
        if mine is None:
            mine = self._loops[loop] = _OfLoop(
                Joiner(self._alone, self._together, undone=_undone, size=_size, most=MOST)
            )
        return mine

    async def _alone(self, batch: Batch) -> list[Enqueued]:
        name, words = enqueue.arguments(batch)
        return enqueue.enqueued(batch, await self._connection.run(name, *words))

    async def _together(self, batches: Sequence[Batch]) -> list[list[Enqueued]]:
        said = await self._alone(Batch(id=batches[0].id, jobs=tuple(job for batch in batches for job in batch.jobs)))
        replies = iter(said)
        return [[next(replies) for _ in batch.jobs] for batch in batches]


class _OfLoop:
    def __init__(self, joiner: Joiner[Batch, list[Enqueued]]) -> None:
        self.joiner = joiner
        self.is_sending = False


def _size(batch: Batch) -> int:
    return sum(1 + len(job.record) // _PIECE for job in batch.jobs)


def _undone(error: Exception) -> bool:
    """Whether the server, or we before it, refused: nothing stands, or it is found when it is sent again."""
    return isinstance(error, (ServerError, EnqueueError, StoreConflict))
