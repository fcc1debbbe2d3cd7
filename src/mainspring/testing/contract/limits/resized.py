"""A limit is changed while many jobs wait for it: all of them are rechecked, some at a time."""

from __future__ import annotations

import pytest

from mainspring.limits.records import Limit
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import Hand, bucket, job, put_in

__all__ = ["TestResizedLimits"]

KEYS = 1200
CALL = 400


async def waiting(store: Store) -> Hand:
    """Many keys with a capacity of one: one job of each key runs, another waits."""
    for first in range(0, KEYS, CALL):
        own = [bucket("tenant", 1, key=str(n)) for n in range(first, first + CALL)]
        await put_in(store, *(job(buckets=[each]) for each in own for _ in range(2)))
    hand = await Hand(store).join()
    assert await taken(hand) == KEYS
    return hand


async def taken(hand: Hand) -> int:
    """How many there are to be claimed."""
    n, empty = 0, 0
    while empty < 5:  # a turn that parks many lanes may end with less than there is
        got = len(await hand.take(200))
        n, empty = n + got, 0 if got else empty + 1
    return n


@pytest.mark.asyncio
class TestResizedLimits:
    @pytest.mark.parametrize("how", ["declare", "set_size", "forget"])
    async def test_all_waiting_jobs_start_after_the_size_grew(
        self, store: Store, second_store: Store, how: str
    ) -> None:
        hand = await waiting(store)
        if how == "declare":
            await second_store.declare_limits([Limit(name="tenant", size=2)])
        elif how == "set_size":
            await second_store.set_limit_size("tenant", 2)
        else:
            await second_store.forget_limit("tenant")
        assert await taken(hand) == KEYS

    async def test_a_declaration_without_a_change_moves_no_job(self, store: Store, second_store: Store) -> None:
        hand = await waiting(store)
        await second_store.declare_limits([Limit(name="tenant", size=1)])
        await second_store.set_limit_size("tenant", None)
        assert await taken(hand) == 0
        await second_store.set_limit_size("tenant", 2)
        assert await taken(hand) == KEYS
