"""Breakers. Their rows are in ``lua/_breakers.lua``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mainspring.breakers.records import BreakerSwap, StoredBreaker

from .driver.client import RedisClient

_pack = msgspec.msgpack.Encoder().encode


async def swap_breakers(client: RedisClient, swaps: Sequence[BreakerSwap]) -> list[StoredBreaker]:
    name = "swap_breakers" if any(swap.rev for swap in swaps) else "read_breakers"
    return [stored_breaker(row) for row in await client.run(name, _pack(swap_words(swaps)))]


def swap_words(swaps: Sequence[BreakerSwap]) -> list[tuple[Any, ...]]:
    """Swaps as scripts read them: a missing value is False."""
    return [
        (each.name, each.expected, each.rev, False if each.open_for is None else each.open_for, each.doc)
        for each in swaps
    ]


def stored_breaker(row: list[Any]) -> StoredBreaker:
    """From ``describe_breaker`` in ``lua/_breakers.lua``."""
    now, name, size, per, burst, share, span, rev, until, opened, doc = row
    return StoredBreaker(now, name.decode(), size, per, burst, share, span, rev, until, opened, doc.decode())
