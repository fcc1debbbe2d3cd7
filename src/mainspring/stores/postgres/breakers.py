"""Breakers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.breakers.records import BreakerSwap, StoredBreaker
from mainspring.stores.postgres.driver.database import Database
from mainspring.stores.postgres.rows import stored_breaker

_SWAP = "select breakers, woken from {schema}.swap_breakers_v1(%(swaps)s::jsonb, %(now)s::bigint)"


async def swap_breakers(db: Database, swaps: Sequence[BreakerSwap]) -> list[StoredBreaker]:
    ((breakers, woken),) = await db.rows(_SWAP, {"swaps": swaps_json(swaps), "now": db.now()})
    await db.wake(woken)
    return [stored_breaker(each) for each in breakers]


def swaps_json(swaps: Sequence[BreakerSwap]) -> str:
    """Swaps as statements take them."""
    return msgspec.json.encode(swaps).decode()
