"""Warns of queues with ready jobs that no live worker serves, for example after a typing error in ``queue=``.

The leader of the fleet looks: so a fleet warns once. A queue is reported if two looks, a lease apart, both find it:
between them the workers of a deployment have started again.

The look counts ready jobs, which takes long if there are millions. The inspector then looks less often: it spends at
most 1 % of its time on looks.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mainspring.jobs.query import Query
from mainspring.jobs.why import describe_unserved
from mainspring.states import State
from mainspring.stores.base import Store
from mainspring.worker.services.base import Service

_PAUSE_PER_LOOK = 99
_WARN_AGAIN = 3600.0  # seconds, for each queue


class Inspector(Service):
    """Looks once a minute. ``lease`` is in seconds."""

    every = 60.0
    ticks_first = False

    def __init__(self, store: Store, *, lease: float, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(store)
        self._lease = lease
        self._now = now
        self._suspects: frozenset[str] = frozenset()
        self._warned: dict[str, float] = {}

    async def tick(self) -> float:
        began = self._now()
        found = await self._find_unserved()
        now = self._now()
        self._warned = {queue: at for queue, at in self._warned.items() if now - at < _WARN_AGAIN}
        fresh = {queue: said for queue, said in found.items() if queue not in self._warned}
        for queue in sorted(self._suspects.intersection(fresh)):
            self._warned[queue] = now
            self.log.warning(fresh.pop(queue))
        self._suspects = frozenset(fresh)
        return max(self._lease if fresh else self.every, (now - began) * _PAUSE_PER_LOOK)

    async def _find_unserved(self) -> dict[str, str]:
        """The unserved queues, each with a sentence."""
        now = await self.store.now()
        live = [row for row in await self.store.workers() if not row.is_silent(now)]
        served = {queue for row in live for queue in row.queues}
        tallies = await self.store.tally(Query(states=(State.READY,)), "queue")
        ready = {tally.value: tally.count for tally in tallies if tally.value not in served}
        closed = {row.name for row in await self.store.queues() if row.closed} if ready else set()
        return {queue: describe_unserved(queue, served, count) for queue, count in ready.items() if queue not in closed}
