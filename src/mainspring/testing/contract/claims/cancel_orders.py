"""Cancel orders: an order wins over every ack and every rescue. And ``early`` jobs, which begin only once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mainspring.jobs.outcomes import Ack, Lease, Outcome
from mainspring.jobs.query import Query
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import (
    ERROR,
    Hand,
    applied,
    ending,
    job,
    lease,
    one,
    outcomes,
    put_in,
    row,
    running,
    state,
)
from mainspring.worker.records import Claim

__all__ = ["TestCancelOrder", "TestCancelWaiting", "TestEarly"]

ACKS: dict[str, Callable[[Lease], Ack]] = {
    "succeeded": lambda held: Ack.succeeded(held, b"1"),
    "failed": lambda held: Ack.failed(held, ERROR, retry_in=0),
    "timed_out": lambda held: Ack.failed(held, ERROR, retry_in=0, timed_out=True),
    "dead": lambda held: Ack.dead(held, ERROR, Reason.RETRIES_EXHAUSTED),
    "snoozed": lambda held: Ack.snoozed(held, delay=5),
    "cancelled": Ack.cancelled,
    "interrupted": Ack.interrupted,
    "lost_early": lambda held: Ack.lost_early(held, ERROR),
    "crashed": lambda held: Ack.crashed(held, ERROR),
    "returned": Ack.returned,
    "parked": lambda held: Ack.returned(held, park=True),
}


async def ordered(store: Store, *, early: bool = False) -> tuple[Hand, Claim]:
    """A running job with a cancel order."""
    hand, claim = await running(store, job(early=early))
    said = await store.act(Action.CANCEL, Query(ids=(claim.id,)), reason="not needed")
    assert said.done == (claim.id,)
    return hand, claim


@pytest.mark.asyncio
class TestCancelOrder:
    async def test_a_running_job_gets_an_order_and_keeps_running(self, store: Store) -> None:
        _, claim = await ordered(store)
        found = await row(store, claim)
        assert (found.state, found.ordered, found.token) == (State.RUNNING, True, claim.token)

    async def test_every_turn_of_the_owner_returns_the_order(self, store: Store) -> None:
        hand, claim = await ordered(store)
        for _ in range(2):
            said = await hand.turn()
            assert [(order.id, order.token) for order in said.orders] == [(claim.id, claim.token)]
        assert [order.id for order in (await hand.repeat()).orders] == [claim.id]

    async def test_no_other_worker_gets_the_order(self, store: Store) -> None:
        await ordered(store)
        other, _ = await running(store)
        assert (await other.turn()).orders == ()

    async def test_an_order_ends_with_the_job(self, store: Store) -> None:
        hand, claim = await ordered(store)
        said = await hand.turn(Ack.cancelled(lease(claim)))
        assert said.orders == ()
        assert (await hand.turn()).orders == ()

    @pytest.mark.parametrize("ack", ACKS)
    async def test_every_ack_ends_an_ordered_job_as_cancelled(self, store: Store, ack: str) -> None:
        """Whatever the outcome in the ack. The outcome is stored in the attempts."""
        hand, claim = await ordered(store)
        report = ACKS[ack](lease(claim))
        assert applied(await hand.turn(report))
        assert await ending(store, claim) == (State.CANCELLED, Reason.BY_USER)
        assert await outcomes(store, claim) == [report.outcome]
        assert set((await hand.turn(report)).already) == {(claim.id, claim.token)}

    @pytest.mark.parametrize("cause", [Outcome.LOST, Outcome.CRASHED])
    async def test_a_rescue_ends_an_ordered_job_as_cancelled(self, store: Store, cause: Outcome) -> None:
        hand, claim = await ordered(store)
        said = await store.rescue(hand.name, hand.beats, cause)
        assert (said.cancelled, said.ready, said.dead) == ((claim.id,), (), ())
        assert await ending(store, claim) == (State.CANCELLED, Reason.BY_USER)
        assert await outcomes(store, claim) == [cause]

    @pytest.mark.parametrize("cause", [Outcome.INTERRUPTED, Outcome.CRASHED])
    async def test_a_retirement_ends_an_ordered_job_as_cancelled(self, store: Store, cause: Outcome) -> None:
        hand, claim = await ordered(store)
        said = await store.retire(hand.name, cause)
        assert said.cancelled == (claim.id,)
        assert await ending(store, claim) == (State.CANCELLED, Reason.BY_USER)

    async def test_an_ack_of_a_retirement_ends_an_ordered_job_as_cancelled(self, store: Store) -> None:
        hand, claim = await ordered(store)
        await store.retire(hand.name, Outcome.INTERRUPTED, [Ack.succeeded(lease(claim))])
        assert await ending(store, claim) == (State.CANCELLED, Reason.BY_USER)

    async def test_an_early_job_with_an_order_is_cancelled(self, store: Store) -> None:
        hand, claim = await ordered(store, early=True)
        await store.rescue(hand.name, hand.beats, Outcome.CRASHED)
        assert await ending(store, claim) == (State.CANCELLED, Reason.BY_USER)

    async def test_a_second_order_changes_nothing(self, store: Store) -> None:
        hand, claim = await ordered(store)
        before = await row(store, claim)
        await store.act(Action.CANCEL, Query(ids=(claim.id,)))
        assert await row(store, claim) == before
        assert len((await hand.turn()).orders) == 1


@pytest.mark.asyncio
class TestCancelWaiting:
    async def test_a_waiting_job_never_starts(self, store: Store) -> None:
        made = await one(store)
        said = await store.act(Action.CANCEL, Query(ids=(made.id,)))
        assert (said.done, said.refused) == ((made.id,), ())
        assert await ending(store, made) == (State.CANCELLED, Reason.BY_USER)
        hand = await Hand(store).join()
        assert await hand.take(5) == ()

    async def test_an_ended_job_is_refused_with_its_state(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.succeed(claim)
        waiting = await one(store)
        said = await store.act(Action.CANCEL, Query(ids=(claim.id, waiting.id)))
        assert (said.done, said.refused) == ((waiting.id,), ((claim.id, State.SUCCEEDED),))

    async def test_a_second_cancel_is_refused(self, store: Store) -> None:
        made = await one(store)
        await store.act(Action.CANCEL, Query(ids=(made.id,)))
        before = await row(store, made)
        said = await store.act(Action.CANCEL, Query(ids=(made.id,)))
        assert (said.done, said.refused) == ((), ((made.id, State.CANCELLED),))
        assert await row(store, made) == before

    async def test_many_jobs_are_cancelled_at_once(self, store: Store) -> None:
        later, ready = job(delay=50), job()
        blocked = job(after=[ready])
        await put_in(store, later, ready, blocked)
        said = await store.act(Action.CANCEL, Query(ids=(later.id, blocked.id)))
        assert set(said.done) == {later.id, blocked.id}
        assert await state(store, ready) == State.READY


@pytest.mark.asyncio
class TestEarly:
    async def test_a_claim_says_that_the_job_is_early(self, store: Store) -> None:
        _, claim = await running(store, job(early=True))
        assert claim.early

    @pytest.mark.parametrize("cause", [Outcome.LOST, Outcome.CRASHED])
    async def test_a_rescue_ends_an_early_job(self, store: Store, cause: Outcome) -> None:
        """It began and must not begin again."""
        hand, claim = await running(store, job(early=True))
        said = await store.rescue(hand.name, hand.beats, cause)
        assert said.dead == (claim.id,)
        assert await ending(store, claim) == (State.DEAD, Reason.CRASHED)

    @pytest.mark.parametrize("cause", [Outcome.INTERRUPTED, Outcome.CRASHED])
    async def test_a_retirement_ends_an_early_job(self, store: Store, cause: Outcome) -> None:
        hand, claim = await running(store, job(early=True))
        said = await store.retire(hand.name, cause)
        assert said.dead == (claim.id,)
        assert await state(store, claim) == State.DEAD

    async def test_an_early_job_that_never_began_is_ready_again(self, store: Store) -> None:
        hand, claim = await running(store, job(early=True))
        await hand.turn(Ack.returned(lease(claim)))
        assert await state(store, claim) == State.READY
