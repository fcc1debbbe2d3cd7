"""The ``keep`` of a job and the window of its unique key decide when the job is pruned."""

from __future__ import annotations

import pytest

from mainspring.common.clock import MovableClock
from mainspring.jobs.outcomes import Ack
from mainspring.jobs.query import Query
from mainspring.jobs.records import UniqueKey
from mainspring.states import Action, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import HOUR, Hand, gone, job, lease, one, put_in, running, state

from .pruning import RULES, died, finished

__all__ = ["TestKeep"]


@pytest.mark.asyncio
class TestKeep:
    @pytest.mark.parametrize("end", ["succeeded", "cancelled"])
    async def test_keep_deletes_a_job_earlier_than_retention(self, store: Store, clock: MovableClock, end: str) -> None:
        """By its own ``keep`` alone, even if it is young."""
        hand, claim = await running(store, job(keep=HOUR // 2))
        await hand.turn(Ack.cancelled(lease(claim)) if end == "cancelled" else Ack.succeeded(lease(claim)))
        clock.advance("29m")
        assert await store.prune(RULES) == 0
        clock.advance("1m")
        assert await store.prune(RULES) == 1
        assert await gone(store, claim)

    async def test_a_keep_of_zero_deletes_at_once(self, store: Store) -> None:
        await finished(store, keep=0)
        assert await store.prune(RULES) == 1

    async def test_keep_keeps_a_job_longer_than_retention(self, store: Store, clock: MovableClock) -> None:
        (long,) = await finished(store, keep=50 * HOUR)
        clock.advance("49h")
        await finished(store, 4)
        clock.advance("59m")
        assert await store.prune(RULES) == 0
        assert await state(store, long) == State.SUCCEEDED
        clock.advance("1m")
        assert await store.prune(RULES) == 1
        assert await gone(store, long)

    async def test_a_job_with_a_keep_is_not_counted(self, store: Store, clock: MovableClock) -> None:
        plain = await finished(store, 3)
        clock.advance("1m")
        await finished(store, 5, keep=50 * HOUR)
        clock.advance("2h")
        assert await store.prune(RULES) == 0
        assert [await gone(store, each) for each in plain] == [False] * 3

    async def test_keep_does_not_apply_to_dead_jobs(self, store: Store, clock: MovableClock) -> None:
        dead = await died(store, keep=0)
        clock.advance("19h")
        assert await store.prune(RULES) == 0
        assert await state(store, dead) == State.DEAD

    async def test_a_retried_job_is_kept_from_its_last_end(self, store: Store, clock: MovableClock) -> None:
        (claim,) = await finished(store, keep=HOUR)
        clock.advance("59m")
        await store.act(Action.RETRY, Query(ids=(claim.id,)))
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one("own/any"))
        clock.advance("59m")
        assert await store.prune(RULES) == 0
        clock.advance("1m")
        assert await store.prune(RULES) == 1

    @pytest.mark.parametrize("keep", [None, 0])
    async def test_a_job_with_a_running_window_is_kept(
        self, store: Store, clock: MovableClock, keep: int | None
    ) -> None:
        """So a second enqueue gets a job that can be read."""
        key = UniqueKey(b"k" * 16, window=50 * HOUR)
        (claim,) = await finished(store, unique=key, keep=keep)
        clock.advance("49h")
        assert await store.prune(RULES) == 0
        assert (await put_in(store, job(unique=key)))[0].id == claim.id
        clock.advance("1h")
        assert await store.prune(RULES) == 1
        assert (await put_in(store, job(unique=key)))[0].created

    async def test_a_dead_job_with_a_running_window_is_not_pruned(self, store: Store, clock: MovableClock) -> None:
        dead = await died(store, unique=UniqueKey(b"k" * 16, window=50 * HOUR))
        clock.advance("49h")
        assert await store.prune(RULES) == 0
        clock.advance("1h")
        assert await store.prune(RULES) == 1
        assert await gone(store, dead)

    async def test_a_running_window_does_not_stop_pruning_of_other_jobs(
        self, store: Store, clock: MovableClock
    ) -> None:
        """The oldest jobs are kept and later jobs are deleted, also in slices."""
        for n in range(3):
            await finished(store, unique=UniqueKey(bytes([n]) * 16, window=50 * HOUR))
        clock.advance("1m")
        await finished(store, 3)
        clock.advance("11h")
        assert [await store.prune(RULES, limit=2) for _ in range(3)] == [2, 1, 0]

    async def test_a_key_that_was_taken_over_does_not_keep_its_old_holder(
        self, store: Store, clock: MovableClock
    ) -> None:
        key = UniqueKey(b"k" * 16, window=50 * HOUR, conflict="replace")
        (old,) = await finished(store, unique=key)
        clock.advance("11h")
        new = await one(store, job(unique=key))
        assert await store.prune(RULES) == 1
        assert await gone(store, old)
        assert (await put_in(store, job(unique=UniqueKey(b"k" * 16))))[0].id == new.id
