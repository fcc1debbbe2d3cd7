"""Runs that wait for dependencies obey parents, delays, expiry and actions of users."""

from __future__ import annotations

import pytest

from mainspring.common.clock import MovableClock
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.schedules.records import part_mark
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import (
    ERROR,
    SECOND,
    Hand,
    ending,
    ids,
    ignoring,
    job,
    lease,
    one,
    put_in,
    row,
    state,
)

from .release import after, forced, noted, of, succeeds, waiting

__all__ = ["TestDependenciesAndTimes", "TestReleasedOnce"]


@pytest.mark.asyncio
class TestDependenciesAndTimes:
    async def test_a_run_with_parents_waits_for_both(self, store: Store) -> None:
        """Whichever comes first."""
        await after(store, "x", "a")
        hand = await Hand(store).join()
        parent = await one(store, job(queue="p"))
        made = await one(store, of("x", after=[parent]))
        assert (await row(store, made)).deps == 2
        await succeeds(hand, "a")
        assert await state(store, made) == State.BLOCKED
        assert (await row(store, made)).deps == 1
        assert await waiting(store) == []
        await succeeds(hand, "a")
        assert await noted(store) == {"a": False}
        await hand.succeed(await hand.take_one("p/any"))
        assert ids(await hand.take(9, "x/any")) == [made.id]
        parent = await one(store, job(queue="p"))
        made = await one(store, of("x", after=[parent]))
        await hand.succeed(await hand.take_one("p/any"))
        assert await state(store, made) == State.BLOCKED
        assert await waiting(store) == [made.id]
        await succeeds(hand, "a")
        assert ids(await hand.take(9, "x/any")) == [made.id]

    async def test_the_end_of_a_parent_ends_a_waiting_run(self, store: Store) -> None:
        """Afterwards it blocks no other run. A run inserted as cancelled uses no recorded successes."""
        await after(store, "x", "a")
        hand = await Hand(store).join()
        parent = await one(store, job(queue="p"))
        first, second = await one(store, of("x", after=[parent])), await one(store, of("x"))
        await hand.kill(await hand.take_one("p/any"))
        assert await ending(store, first) == (State.CANCELLED, Reason.PARENT)
        assert await waiting(store) == [second.id]
        await succeeds(hand, "a")
        await hand.succeed(await hand.take_one("x/any"))
        await succeeds(hand, "a")
        born = await one(store, of("x", after=[parent]))
        await forced(store, dead := of("x", after=[parent]))
        for each in (born, dead):
            assert await ending(store, each) == (State.CANCELLED, Reason.PARENT)
        assert await noted(store) == {"a": True}
        free = await one(store, of("x", after=[ignoring(parent)]))
        assert await state(store, free) == State.READY

    async def test_other_jobs_may_depend_on_a_waiting_run(self, store: Store) -> None:
        await after(store, "x", "a")
        made = of("x")
        child = job(after=[made], queue="c")
        await put_in(store, child, made)
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        assert await state(store, child) == State.BLOCKED
        await hand.succeed(await hand.take_one("x/any"))
        assert await state(store, child) == State.READY

    async def test_a_released_run_that_is_due_later_is_scheduled(self, store: Store, clock: MovableClock) -> None:
        """Its delay counts from the enqueue. While it is scheduled, no success is recorded."""
        await after(store, "x", "a")
        hand = await Hand(store).join()
        made, due = await one(store, of("x", delay=30 * SECOND)), clock.now_us() + 30 * SECOND
        clock.advance("10s")
        assert (await store.promote()).promoted == 0
        await succeeds(hand, "a", "a")
        found = await row(store, made)
        assert (found.state, found.due) == (State.SCHEDULED, due)
        assert await noted(store) == {"a": False}
        clock.advance("20s")
        await store.promote()
        claim = await hand.take_one("x/any")
        await succeeds(hand, "a")
        at = clock.now_us() + SECOND
        second = await one(store, of("x", run_at=at))
        assert ((await row(store, second)).state, (await row(store, second)).due) == (State.SCHEDULED, at)
        await hand.succeed(claim)

    async def test_a_released_run_whose_time_has_come_is_ready(self, store: Store, clock: MovableClock) -> None:
        await after(store, "x", "a")
        made = await one(store, of("x", delay=5 * SECOND))
        clock.advance("10s")
        await succeeds(await Hand(store).join(), "a")
        assert await state(store, made) == State.READY

    async def test_a_waiting_run_expires(self, store: Store, clock: MovableClock) -> None:
        await after(store, "x", "a")
        first, second = await one(store, of("x", expires_in=SECOND)), await one(store, of("x"))
        clock.advance("2s")
        assert (await store.promote()).ended == (first.id,)
        assert await ending(store, first) == (State.CANCELLED, Reason.EXPIRED)
        assert await waiting(store) == [second.id]
        await succeeds(await Hand(store).join(), "a")
        assert await state(store, second) == State.READY

    async def test_an_expired_run_is_skipped(self, store: Store, clock: MovableClock) -> None:
        """Although no call has ended it yet: the recorded successes would be lost with it."""
        await after(store, "x", "a")
        first, second = await one(store, of("x", expires_in=SECOND)), await one(store, of("x"))
        clock.advance("2s")
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        assert await state(store, second) == State.READY
        assert await state(store, first) in (State.BLOCKED, State.CANCELLED)
        await store.promote()
        assert await ending(store, first) == (State.CANCELLED, Reason.EXPIRED)

    async def test_an_expired_released_run_is_not_waited_for(self, store: Store, clock: MovableClock) -> None:
        await after(store, "x", "a")
        await one(store, of("x", expires_in=SECOND))
        hand = await Hand(store).join()
        await succeeds(hand, "a", "a")
        assert await noted(store) == {"a": False}
        clock.advance("2s")
        await succeeds(hand, "a")
        assert await noted(store) == {"a": True}
        assert await state(store, await one(store, of("x"))) == State.READY

    @pytest.mark.parametrize("action", [Action.CANCEL, Action.DELETE])
    async def test_a_cancelled_run_blocks_no_other(self, store: Store, action: Action) -> None:
        await after(store, "x", "a")
        jobs = [await one(store, of("x")) for _ in range(3)]
        await store.act(action, Query(ids=(jobs[0].id,)))
        assert await waiting(store) == ids(jobs[1:])
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        assert [await state(store, each) for each in jobs[1:]] == [State.READY, State.BLOCKED]
        await store.act(action, Query(ids=(jobs[1].id,)))
        await succeeds(hand, "a")
        assert ids(await hand.take(9, "x/any")) == [jobs[2].id]

    async def test_all_waiting_runs_cancelled_at_once(self, store: Store) -> None:
        await after(store, "x", "a")
        jobs = [of("x", queue="x") for _ in range(50)]
        await put_in(store, *jobs)
        blocked = Query(states=(State.BLOCKED,), marks=(part_mark("x"),))
        assert (await store.count(blocked))[State.BLOCKED] == 50
        assert sorted(ids((await store.find(blocked)).jobs)) == sorted(ids(jobs))
        assert len((await store.act(Action.REPRIORITISE, blocked, priority=7)).done) == 50
        assert (await store.act(Action.RUN_NOW, Query(ids=(jobs[0].id,)))).refused == ((jobs[0].id, State.BLOCKED),)
        assert len((await store.act(Action.CANCEL, blocked)).done) == 50
        assert await waiting(store) == []


@pytest.mark.asyncio
class TestReleasedOnce:
    async def test_a_run_that_is_ready_again_does_not_wait_again(self, store: Store, clock: MovableClock) -> None:
        """By a retry, a snooze, a return, an interruption, a crash, silence, and a retry by hand."""
        await after(store, "x", "a")
        made = await one(store, of("x", crashes=9))
        await succeeds(await Hand(store).join(), "a")
        hand = await Hand(store).join()
        for ack in (
            lambda held: Ack.failed(held, ERROR, retry_in=0), Ack.snoozed, Ack.returned, Ack.interrupted,
        ):  # fmt: skip
            await hand.turn(ack(lease(await hand.take_one("x/any"))))
            await store.promote()
            assert await state(store, made) == State.READY
        for cause in (Outcome.LOST, Outcome.CRASHED):
            hand = await Hand(store).join()
            await hand.take_one("x/any")
            await store.rescue(hand.name, hand.beats, cause)
            clock.advance("1h")
            await store.promote()
            assert await state(store, made) == State.READY
        hand = await Hand(store).join()
        await hand.take_one("x/any")
        await store.retire(hand.name, Outcome.INTERRUPTED)
        hand = await Hand(store).join()
        for end in (hand.kill, hand.succeed):
            await end(await hand.take_one("x/any"))
            await store.act(Action.RETRY, Query(ids=(made.id,)))
            assert await state(store, made) == State.READY
        assert await noted(store) == {"a": False}

    async def test_a_never_released_run_does_not_wait_after_a_retry_by_hand(self, store: Store) -> None:
        await after(store, "x", "a", "b")
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        made = await one(store, of("x"))
        await store.act(Action.CANCEL, Query(ids=(made.id,)))
        await store.act(Action.RETRY, Query(ids=(made.id,)))
        assert await state(store, made) == State.READY
        assert await noted(store) == {"a": True, "b": False}
        await hand.succeed(await hand.take_one("x/any"))

    async def test_a_claimed_run_is_not_waited_for(self, store: Store) -> None:
        """It retries, and successes in the meantime are recorded."""
        await after(store, "x", "a")
        await one(store, of("x"))
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        await hand.turn(Ack.failed(lease(await hand.take_one("x/any")), ERROR, retry_in=SECOND))
        await succeeds(hand, "a")
        assert await noted(store) == {"a": True}
