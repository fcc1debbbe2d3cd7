"""Beats over a store connection of one's own: the same for a worker, a supervisor and a helper.

A beat has a deadline shorter than the time between two beats, so one that hangs never costs more
than itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from mainspring.common.clock import boottime
from mainspring.errors import StoreConflict, StoreError, StoreFull, StoreUnavailable
from mainspring.stores.connect import StoreAddress, connect_to
from mainspring.stores.door import Door
from mainspring.worker.loop.outage import Outage
from mainspring.worker.loop.retry_log import RetryLog
from mainspring.worker.records import Beat, BeatResult

log = logging.getLogger("mainspring.beats")

PASSING = (StoreUnavailable, StoreConflict, StoreFull)
"""Errors of a store that may be gone by the next try."""
_LONGEST = 5.0  # most seconds to wait for an answer, however long the lease is


class SentHeartbeats(NamedTuple):
    at: float
    """Boottime of the sending: from here the lease counts."""
    replies: list[BeatResult]


class HeartbeatSender:
    """Opens its own connection on first use. Belongs to one event loop; ``outage`` tells its trouble."""

    def __init__(self, address: StoreAddress, lease: float, outage: Outage, *, who: str = "") -> None:
        self.lease = lease
        self.period = lease / 3
        self._address = address
        self._store: Door | None = None
        self._trouble = RetryLog(f"a beat{who}", log, outage, shortest=0.1, longest=min(self.period, 1.0))
        self._pause = 0.0
        self._begun = False

    async def store(self) -> Door:
        """The open store. Raises what opening raises."""
        if self._store is None:
            store = connect_to(self._address, deadline=min(self.period * 0.8, _LONGEST))
            try:
                await store.open()
            except BaseException:
                await _close(store)
                raise
            self._store = store
        return self._store

    async def send(self, beats: Sequence[Beat]) -> SentHeartbeats | None:
        """Beat; None when the store could not be asked. What will not pass (a newer schema) is raised at the first
        beat; later it is trouble like any other, for a worker that stops beating loses its jobs."""
        try:
            store = await self.store()
            at = boottime()
            replies = await store.beat(beats)
        except StoreError as error:
            if not (self._begun or isinstance(error, PASSING)):
                raise
            self._pause = self._trouble.failed(error)
            return None
        self._begun = True
        self._trouble.over()
        return SentHeartbeats(at, replies)

    def retry_in(self) -> float:
        """Seconds until a failed beat is tried again: soon, spread out, and never slower than the beats."""
        return self._pause

    async def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            await _close(store)


async def _close(store: Door) -> None:
    try:
        async with asyncio.timeout(2):
            await store.close()
    except (*PASSING, TimeoutError) as error:
        log.debug("closing the store of the beats: %s", error)
