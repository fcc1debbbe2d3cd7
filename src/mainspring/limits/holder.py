"""A guest of the store: places outside of a claim, kept from the background loop for as long as its process lives.

What limiters, breakers and locks have in common.
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
"""Microseconds for which places are kept without a word, where nobody says otherwise."""


class CapacityHolder:
    """One stay: ask for places, keep them, leave. ``whose`` is named in log lines."""

    log = logging.getLogger("mainspring.limits")

    def __init__(
        self, client: Client, whose: object, buckets: Sequence[Bucket], limits: Sequence[Limit] = (), ttl: int = 0
    ) -> None:
        self.guest = new_id().bytes
        self.ttl = ttl or TTL
        self._client = client
        self._whose = whose
        self._buckets = tuple(buckets)
        self._limits = tuple(limits)
        self._keeping: Future[None] | None = None

    async def ask(self, keep: int = 0) -> HoldResult:
        """One try. If nobody knows whether it arrived, what it may have taken is given back. ``keep`` as of a store."""
        await self._client.store()
        taking = asyncio.ensure_future(self._take(keep))
        try:
            return await asyncio.shield(taking)
        except BaseException:
            taking.add_done_callback(self._asked_in_vain)  # not before it has ended: it could arrive after that
            raise

    def keep(self) -> None:
        """Renew the places each third of their time, from now until it leaves."""
        self._keeping = blocking.spawn(self._keep())

    async def leave(self) -> bool:
        """Give the places back. False if there were none any more."""
        self.forget()
        try:
            return await (await self._client.store()).release(self.guest)
        except BaseException:
            self.give_up()
            raise

    def give_up(self) -> None:
        """The same without waiting. What cannot be given back is free when its time is over."""
        self.forget()
        blocking.spawn(self._give())

    def forget(self) -> None:
        """Renew no more."""
        if self._keeping is not None:
            self._keeping.cancel()

    # ---- private ------------------------------------------------------------------------------

    def _asked_in_vain(self, taking: asyncio.Future[HoldResult]) -> None:
        if not taking.cancelled():
            taking.exception()  # whoever asked has heard of it, or has gone
        self.give_up()

    async def _give(self) -> None:
        """Tried until it is known to be done, or until the time of the places is over."""
        end = self._client.now() + self.ttl / 1e6
        while self._client.now() < end:
            try:
                await (await self._client.store()).release(self.guest)
            except StoreError:
                await asyncio.sleep(min(1.0, self.ttl / 3e6))
            else:
                return

    async def _take(self, keep: int = 0) -> HoldResult:
        return await (await self._client.store()).hold(self.guest, self._buckets, self.ttl, self._limits, keep)

    async def _renew(self, ttl: int) -> HoldResult:
        """Renew and nothing else: one that comes late must not take places for a guest that has left."""
        return await (await self._client.store()).hold(self.guest, (), ttl)

    async def _keep(self) -> None:
        """Off the caller's loop: whoever holds the places may block its own."""
        while True:
            await asyncio.sleep(self.ttl / 3e6)
            try:
                said = await self._renew(self.ttl)
                if not said.ok:
                    self.log.warning("%r lost its place: it could not be renewed in time", self._whose)
                    await self._take()
            except StoreError as error:
                self.log.warning("%r cannot renew its place: %s", self._whose, error)
