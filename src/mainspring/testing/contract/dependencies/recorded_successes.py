"""Which successes are recorded for dependent schedules: those of runs, however they ended, and no other ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from mainspring.jobs.outcomes import Ack, Lease, Outcome
from mainspring.jobs.query import Query
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import ERROR, Hand, ids, lease, one, running, state

from .release import after, noted, of, succeeds

__all__ = ["TestRecordedSuccesses"]

End = Callable[[Store, Hand, Lease], Awaitable[None]]


async def fails(_: Store, hand: Hand, held: Lease) -> None:
    await hand.turn(Ack.failed(held, ERROR, retry_in=0))


async def dies(_: Store, hand: Hand, held: Lease) -> None:
    await hand.turn(Ack.dead(held, ERROR, Reason.NOT_RETRYABLE))


async def gives_up(_: Store, hand: Hand, held: Lease) -> None:
    await hand.turn(Ack.cancelled(held))


async def snoozes(_: Store, hand: Hand, held: Lease) -> None:
    await hand.turn(Ack.snoozed(held))


async def returns(_: Store, hand: Hand, held: Lease) -> None:
    await hand.turn(Ack.returned(held))


async def obeys(store: Store, hand: Hand, held: Lease) -> None:
    await store.act(Action.CANCEL, Query(ids=(held.id,)))
    await hand.turn(Ack.succeeded(held))


async def crashes(_: Store, hand: Hand, held: Lease) -> None:
    del held
    await hand.crash()


async def comes_too_late(store: Store, hand: Hand, held: Lease) -> None:
    await store.rescue(hand.name, hand.beats, Outcome.LOST)
    await hand.turn(Ack.succeeded(held))


async def is_deleted(store: Store, hand: Hand, held: Lease) -> None:
    await hand.turn(Ack.snoozed(held))
    await store.act(Action.DELETE, Query(ids=(held.id,)))


OTHER_ENDS = [fails, dies, gives_up, snoozes, returns, obeys, crashes, comes_too_late, is_deleted]


@pytest.mark.asyncio
class TestRecordedSuccesses:
    @pytest.mark.parametrize("end", OTHER_ENDS, ids=lambda end: end.__name__)
    async def test_only_success_is_recorded(self, store: Store, end: End) -> None:
        await after(store, "x", "a")
        made = await one(store, of("x"))
        hand, claim = await running(store, of("a", crashes=1))
        await end(store, hand, lease(claim))
        assert await noted(store) == {"a": False}
        assert await state(store, made) == State.BLOCKED

    async def test_a_success_acked_by_a_retirement_is_recorded(self, store: Store) -> None:
        await after(store, "x", "a")
        made = await one(store, of("x"))
        hand, claim = await running(store, of("a"))
        await store.retire(hand.name, Outcome.INTERRUPTED, [Ack.succeeded(lease(claim))])
        assert await state(store, made) == State.READY

    async def test_a_success_after_failures_and_in_another_epoch_is_recorded(self, store: Store) -> None:
        await after(store, "x", "a")
        hand, claim = await running(store, of("a"))
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=0))
        await store.promote()
        await hand.kill(await hand.take_one("a/any"))
        await store.act(Action.RETRY, Query(ids=(claim.id,)))
        assert await noted(store) == {"a": False}
        await hand.succeed(await hand.take_one("a/any"))
        assert await noted(store) == {"a": True}

    async def test_a_repeated_ack_is_recorded_once(self, store: Store) -> None:
        """The reply was lost, and meanwhile the job that was released runs."""
        await after(store, "x", "a")
        first, second = await one(store, of("x")), await one(store, of("x"))
        hand, claim = await running(store, of("a"))
        await hand.succeed(claim)
        other = await Hand(store).join()
        assert ids(await other.take(9, "x/any")) == [first.id]
        await hand.repeat()
        await hand.turn(Ack.succeeded(lease(claim), b'"ok"'))
        assert await noted(store) == {"a": False}
        assert await state(store, second) == State.BLOCKED

    async def test_the_success_of_an_earlier_run_is_recorded(self, store: Store) -> None:
        """Enqueued, scheduled or running when the dependency was set: its success counts."""
        hand, claim = await running(store, of("a"))
        waits = await one(store, of("b"))
        await after(store, "x", "a", "b")
        made = await one(store, of("x"))
        await hand.succeed(claim)
        assert await noted(store) == {"a": True, "b": False}
        await hand.succeed(await hand.take_one("b/any"))
        assert await state(store, waits) == State.SUCCEEDED
        assert await state(store, made) == State.READY

    async def test_a_success_before_the_dependency_is_not_recorded(self, store: Store) -> None:
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        await after(store, "x", "a")
        assert await noted(store) == {"a": False}
        assert await state(store, await one(store, of("x"))) == State.BLOCKED
