"""Sends heartbeats over a separate store connection: for a worker, a supervisor or a heartbeat process.

A heartbeat has a deadline that is shorter than the time between two heartbeats, so a heartbeat that hangs does not
delay the next one.
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
from mainspring.worker.records import Beat, BeatResult
from mainspring.worker.retry_log import Outage, RetryLog

log = logging.getLogger("mainspring.heartbeats")

TEMPORARY = (StoreUnavailable, StoreConflict, StoreFull)
"""Errors of a store after which the next try may succeed."""
BACKUP = 1.1
"""Periods after the last confirmed heartbeat of a worker, after which its supervisor or heartbeat process sends one for
it. A worker sends its own each period."""
_MAX_DEADLINE = 5.0  # most seconds to wait for an answer, however long the lease is


class SentHeartbeats(NamedTuple):
    """Heartbeats that the store has answered."""

    at: float
    """When they were sent, in boottime seconds: the lease starts here."""
    replies: list[BeatResult]


class HeartbeatSender:
    """Opens its own connection on first use. Belongs to one event loop. ``purpose`` appears in log lines."""

    def __init__(self, address: StoreAddress, lease: float, outage: Outage, *, purpose: str = "") -> None:
        self.lease = lease
        self.period = lease / 3
        self._address = address
        self._store: Door | None = None
        self._retry_log = RetryLog(
            f"sending a heartbeat{purpose}", log, outage, first_pause=0.1, max_pause=min(self.period, 1.0)
        )
        self._pause = 0.0
        self._succeeded = False

    async def store(self) -> Door:
        """The open store. Raises the errors of ``open``."""
        if self._store is None:
            store = connect_to(self._address, deadline=min(self.period * 0.8, _MAX_DEADLINE))
            try:
                await store.open()
            except BaseException:
                await _close(store)
                raise
            self._store = store
        return self._store

    async def send(self, beats: Sequence[Beat]) -> SentHeartbeats | None:
        """Send heartbeats; None if the store could not be reached.

        A permanent error, such as a newer schema, is raised only before the first success. Later it is retried like any
        other error, because a worker without heartbeats loses its jobs.
        """
        try:
            store = await self.store()
            at = boottime()
            replies = await store.beat(beats)
        except StoreError as error:
            if not (self._succeeded or isinstance(error, TEMPORARY)):
                raise
            self._pause = self._retry_log.record_failure(error)
            return None
        self._succeeded = True
        self._retry_log.record_success()
        return SentHeartbeats(at, replies)

    def record_answer(self) -> None:
        """The store has answered heartbeats of another process: if ours failed before, this trouble is over."""
        self._retry_log.record_success()

    def retry_in(self) -> float:
        """Seconds until a failed heartbeat is sent again: jittered, at most the time between two heartbeats."""
        return self._pause

    def backup_due(self, lease_end: float) -> float:
        """When another process must send the heartbeat that the worker has not sent: shortly after it was due.

        ``lease_end`` is the confirmed end of the lease in the shared state. The first heartbeat of this sender is
        always due, so that its connection is open when it is needed.
        """
        return lease_end - self.lease + BACKUP * self.period if self._succeeded else 0.0

    async def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            await _close(store)


async def _close(store: Door) -> None:
    try:
        async with asyncio.timeout(2):
            await store.close()
    except (*TEMPORARY, TimeoutError) as error:
        log.debug("the connection for heartbeats could not be closed: %s", error)
