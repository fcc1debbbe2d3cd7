"""A holder of capacity outside of a claim: limiters, breaker probes and locks take it, renew it and release it.

The store keeps the capacity for a time (the ttl). While the process lives, the background loop renews it at every third
of the ttl. After a crash it is free when the ttl is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from mainspring.client import blocking
from mainspring.common.ids import new_id
from mainspring.errors import StoreError
from mainspring.limits.records import Bucket, HoldResult, Limit

if TYPE_CHECKING:
    from mainspring.client.client import Client

TTL = 30_000_000
"""Microseconds. The default time for which the store keeps capacity without a renewal."""


class CapacityHolder:
    """Capacity in some buckets, from ``ask`` to ``leave``. ``whose`` is named in log lines."""

    log = logging.getLogger("mainspring.limits")

    def __init__(
        self, client: Client, whose: object, buckets: Sequence[Bucket], limits: Sequence[Limit] = (), ttl: int = 0
    ) -> None:
        self.id = new_id().bytes
        self.ttl = ttl or TTL
        self._client = client
        self._whose = whose
        self._buckets = tuple(buckets)
        self._limits = tuple(limits)
        self._keeping: Future[None] | None = None

    async def ask(self, keep: int = 0) -> HoldResult:
        """Ask the store once for the capacity. ``keep``: see ``Store.hold``.

        If the call fails, it is unknown whether the store gave the capacity. Then it is released in the background.
        """
        await self._client.store()
        taking = asyncio.ensure_future(self._take(keep))
        try:
            return await asyncio.shield(taking)
        except BaseException:
            # Not before the call has ended: a release that arrives before the call would release nothing.
            taking.add_done_callback(self._release_unknown)
            raise

    def keep(self) -> None:
        """Renew the capacity at every third of the ttl, until ``leave``."""
        self._keeping = blocking.spawn(self._keep())

    async def leave(self) -> bool:
        """Release the capacity. Return False if the store did not keep it any more."""
        self.stop_renewing()
        try:
            return await (await self._client.store()).release(self.id)
        except BaseException:
            self.give_up()
            raise

    def give_up(self) -> None:
        """Release the capacity in the background. If that fails, it is free when the ttl is over."""
        self.stop_renewing()
        blocking.spawn(self._release())

    def stop_renewing(self) -> None:
        """Renew no more; the store frees the capacity when the ttl is over."""
        if self._keeping is not None:
            self._keeping.cancel()

    # ---- private ------------------------------------------------------------------------------

    def _release_unknown(self, taking: asyncio.Future[HoldResult]) -> None:
        if not taking.cancelled():
            taking.exception()  # the caller of `ask` has got it; asyncio must not log it again
        self.give_up()

    async def _release(self) -> None:
        """Try until the store confirms the release, or until the ttl is over."""
        end = self._client.now() + self.ttl / 1e6
        while self._client.now() < end:
            try:
                await (await self._client.store()).release(self.id)
            except StoreError:
                await asyncio.sleep(min(1.0, self.ttl / 3e6))
            else:
                return

    async def _take(self, keep: int = 0) -> HoldResult:
        return await (await self._client.store()).hold(self.id, self._buckets, self.ttl, self._limits, keep)

    async def _renew(self, ttl: int) -> HoldResult:
        """Renew only. A late renewal without buckets cannot take capacity again for a holder that has left."""
        return await (await self._client.store()).hold(self.id, (), ttl)

    async def _keep(self) -> None:
        """Runs on the background loop, because the holder of the capacity may block its own loop."""
        while True:
            await asyncio.sleep(self.ttl / 3e6)
            try:
                said = await self._renew(self.ttl)
                if not said.ok:
                    self.log.warning("%r lost its capacity: it was not renewed in time", self._whose)
                    await self._take()
            except StoreError as error:
                self.log.warning("%r cannot renew its capacity: %s", self._whose, error)
