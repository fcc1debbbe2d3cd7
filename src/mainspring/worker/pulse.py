"""Beats over a store connection of one's own: the same for a worker, a supervisor and a helper.

A beat has a deadline shorter than the time between two beats, so one that hangs never costs more
than itself. Trouble is said once when it begins and once when it is over.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import NamedTuple

from mainspring.clock import boottime
from mainspring.errors import StoreConflict, StoreFull, StoreUnavailable
from mainspring.records import Beat, Beaten
from mainspring.stores.connect import connect
from mainspring.stores.door import Door
from mainspring.worker.parts import StoreAddress

log = logging.getLogger("mainspring.beats")

PASSING = (StoreUnavailable, StoreConflict, StoreFull)
"""Errors of a store that may be gone by the next try."""


class Sent(NamedTuple):
    at: float
    """Boottime of the sending: from here the lease counts."""
    replies: list[Beaten]


class Pulse:
    """Opens its own connection on first use, and again after trouble. Belongs to one event loop."""

    def __init__(self, address: StoreAddress, lease: float, *, who: str = "") -> None:
        self.lease = lease
        self.period = lease / 3
        self._address = address
        self._who = who
        self._store: Door | None = None
        self._failures = 0

    async def store(self) -> Door:
        """The open store. Raises what opening raises."""
        if self._store is None:
            store = connect(
                self._address.url,
                namespace=self._address.namespace,
                durability=self._address.durability,
                deadline=self.period * 0.8,
            )
            await store.open()
            self._store = store
        return self._store

    async def send(self, beats: Sequence[Beat]) -> Sent | None:
        """Beat; None when the store could not be asked. What will not pass (a newer schema) is raised."""
        try:
            store = await self.store()
            at = boottime()
            replies = await store.beat(beats)
        except PASSING as error:
            self._trouble(error)
            return None
        self._recovered()
        return Sent(at, replies)

    def retry_in(self) -> float:
        """Seconds until a failed beat is tried again: soon, spread out, and never slower than the beats."""
        return float(min(self.period, 0.1 * 2 ** min(self._failures, 4)) * random.uniform(0.5, 1.0))

    async def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            try:
                async with asyncio.timeout(2):
                    await store.close()
            except (*PASSING, TimeoutError) as error:
                log.debug("closing the store of the beats: %s", error)

    def _trouble(self, error: Exception) -> None:
        self._failures += 1
        if self._failures == 1:
            log.warning("beat%s failed, trying again: %s", self._who, error)

    def _recovered(self) -> None:
        if self._failures:
            log.warning("beat%s works again after %d failures", self._who, self._failures)
        self._failures = 0
