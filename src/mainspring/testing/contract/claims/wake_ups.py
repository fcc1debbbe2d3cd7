"""Wake-ups: a listener is woken by work of another client. Wake-ups may be lost, so the time limits are generous."""

from __future__ import annotations

import asyncio

import pytest

from mainspring.common.clock import MovableClock
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import SECOND, job, one

__all__ = ["TestWakeUps"]

LONG = 30.0


@pytest.mark.asyncio
class TestWakeUps:
    async def test_an_enqueue_elsewhere_wakes(self, store: Store, second_store: Store) -> None:
        listener = await store.listen("w", ["q"])
        waiting = asyncio.create_task(listener.wait(LONG))
        await one(second_store)
        assert await waiting
        listener.close()

    async def test_a_wake_up_that_came_before_the_wait_counts(self, store: Store, second_store: Store) -> None:
        listener = await store.listen("w", ["q"])
        await one(second_store)
        assert await listener.wait(LONG)
        listener.close()

    async def test_an_enqueue_of_the_same_client_wakes(self, store: Store) -> None:
        listener = await store.listen("w", ["q"])
        await one(store)
        assert await listener.wait(LONG)
        listener.close()

    async def test_a_promotion_wakes(self, store: Store, second_store: Store, clock: MovableClock) -> None:
        await one(store, job(delay=SECOND))
        listener = await store.listen("w", ["q"])
        while await listener.wait(0.05):
            pass  # whatever the enqueue left behind
        clock.advance("1s")
        await second_store.promote()
        assert await listener.wait(LONG)
        listener.close()

    async def test_notify_wakes(self, store: Store, second_store: Store) -> None:
        listener = await store.listen("w", ["other", "q"])
        await second_store.notify(["q"])
        assert await listener.wait(LONG)
        listener.close()

    async def test_every_listener_of_the_queue_wakes(self, store: Store, second_store: Store) -> None:
        first, second = await store.listen("w1", ["q"]), await second_store.listen("w2", ["q"])
        await one(store)
        assert await first.wait(LONG)
        assert await second.wait(LONG)
        first.close()
        second.close()

    async def test_a_listener_says_whether_all_that_makes_jobs_ready_wakes_it(self, store: Store) -> None:
        """SQLite wakes nobody at the commit of a caller's own transaction."""
        listener = await store.listen("w", ["q"])
        assert listener.is_always_woken is (store.engine != "sqlite")
        listener.close()

    async def test_a_wait_without_a_wake_up_ends(self, store: Store) -> None:
        listener = await store.listen("w", ["q"])
        assert not await listener.wait(0.01)
        listener.close()
