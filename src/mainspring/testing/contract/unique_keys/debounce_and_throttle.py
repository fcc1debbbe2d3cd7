"""When a job is due under a key of the modes debounce and throttle."""

from __future__ import annotations

import pytest

from mainspring.common.clock import MovableClock, to_datetime
from mainspring.jobs.query import Query
from mainspring.jobs.records import Enqueued, Retention
from mainspring.states import Action, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import HOUR, MINUTE, SECOND, Hand, one, put_in, row, running, state

from .replace import SPAN, due, latest, ready_of, said

__all__ = ["TestDebounce", "TestThrottle"]


@pytest.mark.asyncio
class TestDebounce:
    async def test_a_debounced_job_is_due_a_window_after_the_last_enqueue(
        self, store: Store, clock: MovableClock
    ) -> None:
        first = await one(store, latest("debounce"))
        start = (await row(store, first)).enqueued
        assert (await due(store, first), await state(store, first)) == (start + SPAN, State.SCHEDULED)
        clock.advance("6s")
        await put_in(store, latest("debounce", record=b"2"))
        assert await due(store, first) == start + 6 * SECOND + SPAN
        clock.advance("9s")
        assert (await store.promote()).promoted == 0
        clock.advance("1s")
        assert (await store.promote()).promoted == 1
        hand = await Hand(store).join()
        assert (await hand.take_one()).record == b"2"

    async def test_a_ready_job_is_postponed_too(self, store: Store, clock: MovableClock) -> None:
        first = await ready_of(store, clock, "debounce")
        now = (await row(store, first)).enqueued + SPAN
        await put_in(store, latest("debounce"))
        assert (await due(store, first), await state(store, first)) == (now + SPAN, State.SCHEDULED)
        hand = await Hand(store).join()
        assert await hand.take(9) == ()

    async def test_a_debounced_job_is_due_after_max_wait(self, store: Store, clock: MovableClock) -> None:
        first = await one(store, latest("debounce", max_wait=15 * SECOND))
        start = (await row(store, first)).enqueued
        for seconds, expected in ((4, 14), (4, 15), (4, 15)):
            clock.advance(f"{seconds}s")
            await put_in(store, latest("debounce", max_wait=15 * SECOND))
            assert await due(store, first) == start + expected * SECOND
        clock.advance("4s")
        await put_in(store, latest("debounce", max_wait=15 * SECOND, record=b"last"))
        assert await state(store, first) == State.READY
        hand = await Hand(store).join()
        assert (await hand.take_one()).record == b"last"

    async def test_an_enqueue_after_the_claim_makes_a_new_job(self, store: Store, clock: MovableClock) -> None:
        await ready_of(store, clock, "debounce")
        hand = await Hand(store).join()
        claim = await hand.take_one()
        second = latest("debounce", max_wait=MINUTE)
        assert await said(store, second) == Enqueued(second.id, True)
        found = await row(store, second)
        assert found.due == found.enqueued + SPAN
        await hand.succeed(claim)
        clock.advance("10s")
        await store.promote()
        await hand.succeed(await hand.take_one())
        third = latest("debounce")
        assert await said(store, third) == Enqueued(third.id, True)
        assert await state(store, third) == State.SCHEDULED


@pytest.mark.asyncio
class TestThrottle:
    async def test_the_first_job_starts_at_once_and_the_others_as_one(self, store: Store, clock: MovableClock) -> None:
        first = await one(store, latest("throttle"))
        hand = await Hand(store).join()
        claim = await hand.take_one()
        start = (await row(store, first)).started
        assert start is not None
        clock.advance("3s")
        second = latest("throttle", record=b"2")
        assert await said(store, second) == Enqueued(second.id, True)
        clock.advance("3s")
        assert await said(store, latest("throttle", record=b"3")) == Enqueued(second.id, False)
        assert (await due(store, second), (await row(store, second)).record) == (start + SPAN, b"3")
        await hand.succeed(claim)
        assert await said(store, latest("throttle", record=b"4")) == Enqueued(second.id, False)
        assert await due(store, second) == start + SPAN
        clock.advance("4s")
        assert (await store.promote()).promoted == 1
        again = await hand.take_one()
        assert (again.id, again.record) == (second.id, b"4")

    async def test_the_window_of_throttle_counts_from_the_start(self, store: Store, clock: MovableClock) -> None:
        """The job waited for a worker: an enqueue meanwhile replaces it, and its window begins when it starts."""
        first = await one(store, latest("throttle"))
        clock.advance("1m")
        assert await said(store, latest("throttle", record=b"2")) == Enqueued(first.id, False)
        hand = await Hand(store).join()
        claim = await hand.take_one()
        assert claim.record == b"2"
        await hand.succeed(claim)
        clock.advance("9s")
        second = await one(store, latest("throttle"))
        assert await state(store, second) == State.SCHEDULED
        clock.advance("1s")
        await store.promote()
        await hand.succeed(await hand.take_one())
        clock.advance("10s")
        third = await one(store, latest("throttle"))
        assert await state(store, third) == State.READY

    @pytest.mark.parametrize("end", [Action.CANCEL, Action.DELETE])
    async def test_a_cancelled_job_does_not_end_the_window(
        self, store: Store, clock: MovableClock, end: Action
    ) -> None:
        hand, claim = await running(store, latest("throttle"))
        await hand.succeed(claim)
        clock.advance("1s")
        second = await one(store, latest("throttle"))
        await store.act(end, Query(ids=(second.id,)))
        third = latest("throttle")
        assert await said(store, third) == Enqueued(third.id, True)
        found = await row(store, third)
        assert found.due == found.enqueued - SECOND + SPAN

    @pytest.mark.parametrize("own", [None, 1])
    async def test_a_job_with_a_running_throttle_window_is_not_pruned(
        self, store: Store, clock: MovableClock, own: int | None
    ) -> None:
        hand, claim = await running(store, latest("throttle", window=50 * HOUR, keep=own))
        await hand.succeed(claim)
        clock.advance("49h")
        assert await store.prune(Retention(keep=MINUTE)) == 0
        second = await one(store, latest("throttle", window=50 * HOUR))
        assert await state(store, second) == State.SCHEDULED
        await store.act(Action.DELETE, Query(ids=(second.id,)))
        clock.advance("2h")
        assert await store.prune(Retention(keep=MINUTE)) == 1
        assert await state(store, await one(store, latest("throttle", window=50 * HOUR))) == State.READY

    async def test_a_job_retried_by_hand_has_no_window(self, store: Store, clock: MovableClock) -> None:
        """The job before it has none either."""
        hand, claim = await running(store, latest("throttle"))
        await hand.succeed(claim)
        clock.advance("9s")
        second = await one(store, latest("throttle"))
        clock.advance("1s")
        await store.promote()
        await hand.succeed(await hand.take_one())
        for action in (Action.RETRY, Action.CANCEL):
            await store.act(action, Query(ids=(second.id,)))
        clock.set(to_datetime(clock.now_us() - 2 * SECOND))
        third = await one(store, latest("throttle"))
        assert await state(store, third) == State.READY

    async def test_a_clock_set_back_postpones_by_one_window_at_most(self, store: Store, clock: MovableClock) -> None:
        """By the store's time, which does not have to follow the clock back."""
        hand, claim = await running(store, latest("throttle"))
        await hand.succeed(claim)
        clock.set(to_datetime(clock.now_us() - 2 * HOUR))
        second = await one(store, latest("throttle"))
        assert await due(store, second) == (await hand.turn()).now + SPAN
