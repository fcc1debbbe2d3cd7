"""A process that reads the store now and then, from outside."""

from __future__ import annotations

import contextlib
import json
import threading
import time

from mainspring.client.blocking import run as blocking
from mainspring.errors import StoreError
from mainspring.jobs.query import Query
from mainspring.limits.records import Bucket
from mainspring.stores.base import Store
from mainspring.stores.connect import connect
from mainspring.testing.history import Opening, Snapshot


class Witness(threading.Thread):
    """Reads the store now and then: the workers, the counts of jobs, the open breakers."""

    def __init__(self, url: str) -> None:
        super().__init__(name="witness")
        self.workers: dict[str, int] = {}
        """The process of each worker that was seen."""
        self.snapshots: list[Snapshot] = []
        self.openings: dict[tuple[str, float], Opening] = {}
        """By breaker and moment: each is seen several times."""
        self._url = url
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(0.3):
            with contextlib.suppress(StoreError):
                blocking("witness", self._look())

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    async def _look(self) -> None:
        store = connect(self._url, deadline=5.0)
        try:
            await store.open()
            for row in await store.workers():
                self.workers[row.id] = int(json.loads(row.info).get("pid", 0))
            asked, counts = time.time(), await store.count(Query.everything())
            self.snapshots.append(Snapshot(asked=asked, at=time.time(), counts=counts))
            await self._look_at_breakers(store)
        finally:
            await store.close()

    async def _look_at_breakers(self, store: Store) -> None:
        breakers = [Bucket(row.limit.name) for row in await store.limits() if row.limit.kind == "breaker"]
        for row in await store.buckets(breakers):
            found = row.breaker
            if found is not None and found.opened is not None and found.until is not None:
                began, until = found.opened / 1e6, found.until / 1e6
                opening = Opening(breaker=row.name, began=began, until=until, probes=row.size)
                self.openings[row.name, began] = opening
