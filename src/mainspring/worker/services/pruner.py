"""Deletes ended jobs past their retention, a slice at a time."""

from __future__ import annotations

import asyncio

from mainspring.jobs.records import Retention
from mainspring.stores.base import Store
from mainspring.worker.services.base import Service

_SLICE = 1_000
_BREATH = 0.05


class Pruner(Service):
    """Every minute, while there is something to delete."""

    every = 60.0
    jitter = 0.5

    def __init__(self, store: Store, retention: Retention) -> None:
        super().__init__(store)
        self._retention = retention

    async def tick(self) -> None:
        more = True
        while more:
            more = await self.store.prune(self._retention, _SLICE) >= _SLICE
            await asyncio.sleep(_BREATH)
