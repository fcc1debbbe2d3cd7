"""What is noted for those who wait: the success of a job, by whatever door, and nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from mainspring.jobs.outcomes import Ack, Lease, Outcome
from mainspring.jobs.query import Query
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store

from .hands import ERROR, Hand, ids, lease, one, running, state
from .parts import after, noted, of, succeeds

__all__ = ["TestPartNotes"]

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
class TestPartNotes:
    @pytest.mark.parametrize("end", OTHER_ENDS, ids=lambda end: end.__name__)
    async def test_only_success_is_noted(self, store: Store, end: End) -> None:
        await after(store, "x", "a")
        made = await one(store, of("x"))
        hand, claim = await running(store, of("a", crashes=1))
        await end(store, hand, lease(claim))
        assert await noted(store) == {"a": False}
        assert await state(store, made) == State.BLOCKED

    async def test_a_success_that_comes_with_the_retirement(self, store: Store) -> None:
        await after(store, "x", "a")
        made = await one(store, of("x"))
        hand, claim = await running(store, of("a"))
        await store.retire(hand.name, Outcome.INTERRUPTED, [Ack.succeeded(lease(claim))])
        assert await state(store, made) == State.READY

    async def test_a_success_after_failures_and_by_another_epoch(self, store: Store) -> None:
        await after(store, "x", "a")
        hand, claim = await running(store, of("a"))
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=0))
        await store.promote()
        await hand.kill(await hand.take_one("a/any"))
        await store.act(Action.RETRY, Query(ids=(claim.id,)))
        assert await noted(store) == {"a": False}
        await hand.succeed(await hand.take_one("a/any"))
        assert await noted(store) == {"a": True}

    async def test_a_repeated_ack_is_noted_once(self, store: Store) -> None:
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

    async def test_the_success_of_a_job_that_was_there_before_the_link(self, store: Store) -> None:
        """Enqueued, scheduled or running: it counts from the link on."""
        hand, claim = await running(store, of("a"))
        waits = await one(store, of("b"))
        await after(store, "x", "a", "b")
        made = await one(store, of("x"))
        await hand.succeed(claim)
        assert await noted(store) == {"a": True, "b": False}
        await hand.succeed(await hand.take_one("b/any"))
        assert await state(store, waits) == State.SUCCEEDED
        assert await state(store, made) == State.READY

    async def test_what_was_before_the_link_is_not_noted(self, store: Store) -> None:
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        await after(store, "x", "a")
        assert await noted(store) == {"a": False}
        assert await state(store, await one(store, of("x"))) == State.BLOCKED
