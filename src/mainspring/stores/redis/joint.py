"""Enqueue calls that meet on one event loop go together: one script for all of them.

A call that comes alone goes at once, by itself. Those that come while it is on its way share a script, which costs the
server a fifth of what it would be one by one. Two scripts may be on their way at once: the server writes the jobs of
some callers while others make their next. They go over one connection, so that jobs are made in the order in which they
were asked for. Only plain batches: they can be refused for no reason that one of them alone brings along, but for a
queue that is draining.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from mainspring.errors import EnqueueError, StoreConflict
from mainspring.jobs.records import Batch, Enqueued
from mainspring.stores.shared.joining import Joiner

from . import enqueue
from .connection import Connection
from .refusals import Special
from .resp import ServerError

MOST = 200
"""Jobs of 8 KB that go together: a script stops the whole server while it runs."""

FLIGHTS = 2
_PIECE = 8 * 1024


class Enqueuer:
    """The enqueue of a store."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._special: set[str] = set()
        """Queues of which something is stored: their jobs go the longer way at once."""
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, Joiner[Batch, list[Enqueued]]] = WeakKeyDictionary()

    async def enqueue(self, batch: Batch) -> list[Enqueued]:
        if not enqueue.is_plain(batch, self._special):
            return await self._alone(batch)
        return await self._mine().call(batch)

    def enqueue_now(self, batch: Batch) -> list[Enqueued]:
        """The same, blocking, by itself."""
        while True:
            name, words = enqueue.arguments(batch, self._special)
            try:
                return enqueue.enqueued(batch.jobs, self._connection.run_now(name, *words))
            except Special as found:
                self._special.add(found.queue)

    def _mine(self) -> Joiner[Batch, list[Enqueued]]:
        loop = asyncio.get_running_loop()
        mine = self._loops.get(loop)
        if mine is None:
            mine = self._loops[loop] = Joiner(
                self._alone, self._together, undone=_undone, size=_size, most=MOST, flights=FLIGHTS
            )
        return mine

    async def _alone(self, batch: Batch) -> list[Enqueued]:
        while True:
            name, words = enqueue.arguments(batch, self._special)
            try:
                return enqueue.enqueued(batch.jobs, await self._connection.run(name, *words))
            except Special as found:
                self._special.add(found.queue)

    async def _together(self, batches: Sequence[Batch]) -> list[list[Enqueued]]:
        name, words = enqueue.joint_arguments(batches)
        reply = await self._connection.run(name, *words)
        if reply == 1:
            return [[Enqueued(job.id, True) for job in batch.jobs] for batch in batches]
        jobs = [job for batch in batches for job in batch.jobs]
        replies = iter(enqueue.enqueued(jobs, reply))
        return [[next(replies) for _ in batch.jobs] for batch in batches]


def _size(batch: Batch) -> int:
    return sum([1 + len(job.record) // _PIECE for job in batch.jobs])


def _undone(error: Exception) -> bool:
    """Whether the server, or we before it, refused: nothing stands, or it is found when it is sent again."""
    return isinstance(error, (ServerError, EnqueueError, StoreConflict, Special))
