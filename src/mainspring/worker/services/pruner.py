"""Deletes ended jobs after their retention time, in batches."""

from __future__ import annotations

import asyncio

from mainspring.jobs.records import Retention
from mainspring.stores.base import Store
from mainspring.worker.services.base import Service

_BATCH = 1_000
_BREATH = 0.05  # seconds between two batches


class Pruner(Service):
    """Runs every minute, until nothing is left to delete."""

    every = 60.0
    jitter = 0.5
    ticks_first = False

    def __init__(self, store: Store, retention: Retention) -> None:
        super().__init__(store)
        self._retention = retention

    async def tick(self) -> None:
        more = True
        while more:
            more = await self.store.prune(self._retention, _BATCH) >= _BATCH
            await asyncio.sleep(_BREATH)
