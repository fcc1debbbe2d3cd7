"""Every way into a final state inserts the follow-up job for that state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from mainspring.common.clock import MovableClock
from mainspring.jobs.outcomes import Ack, Lease, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import Edge, NewJob, UniqueKey
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import ERROR, SECOND, Hand, job, lease, one, put_in, row, running, state

from .follow_ups import followed, follower, followers

__all__ = ["TestFollowUpsOfEveryEnd"]

Door = Callable[[Store, MovableClock], Awaitable[NewJob]]


def by_ack(make: Callable[[Lease], Ack], *, early: bool = False) -> Door:
    async def go(store: Store, _: MovableClock) -> NewJob:
        hand, claim = await running(store, made := followed(early=early))
        await hand.turn(make(lease(claim)))
        return made

    return go


async def by_order(store: Store, _: MovableClock) -> NewJob:
    hand, claim = await running(store, made := followed())
    await store.act(Action.CANCEL, Query(ids=(claim.id,)))
    await hand.turn(Ack.succeeded(lease(claim)))
    return made


async def by_rescue(store: Store, _: MovableClock) -> NewJob:
    hand, _claim = await running(store, made := followed(crashes=1))
    await hand.crash()
    return made


async def by_crash(store: Store, _: MovableClock) -> NewJob:
    hand, claim = await running(store, made := followed(crashes=1))
    await hand.turn(Ack.crashed(lease(claim), ERROR))
    return made


async def by_silence(store: Store, _: MovableClock) -> NewJob:
    hand, _claim = await running(store, made := followed(early=True))
    await store.rescue(hand.name, hand.beats, Outcome.LOST)
    return made


async def by_rescue_with_an_order(store: Store, _: MovableClock) -> NewJob:
    hand, claim = await running(store, made := followed())
    await store.act(Action.CANCEL, Query(ids=(claim.id,)))
    await hand.crash()
    return made


async def by_retirement(store: Store, _: MovableClock) -> NewJob:
    hand, _claim = await running(store, made := followed(early=True))
    await store.retire(hand.name, Outcome.INTERRUPTED)
    return made


async def by_retirement_ack(store: Store, _: MovableClock) -> NewJob:
    hand, claim = await running(store, made := followed())
    await store.retire(hand.name, Outcome.CRASHED, [Ack.dead(lease(claim), ERROR, Reason.TIMED_OUT)])
    return made


async def by_hand(store: Store, _: MovableClock) -> NewJob:
    made = await one(store, followed())
    await store.act(Action.CANCEL, Query(ids=(made.id,)))
    return made


async def by_time(store: Store, clock: MovableClock) -> NewJob:
    made = await one(store, followed(expires_in=SECOND))
    clock.advance("2s")
    await store.promote()
    return made


async def by_parent(store: Store, _: MovableClock) -> NewJob:
    parent = await one(store)
    made = await one(store, followed(after=(Edge(parent.id),)))
    await store.act(Action.CANCEL, Query(ids=(parent.id,)))
    return made


async def by_birth(store: Store, _: MovableClock) -> NewJob:
    parent = await one(store)
    await store.act(Action.CANCEL, Query(ids=(parent.id,)))
    return await one(store, followed(after=(Edge(parent.id),)))


async def by_replacement(store: Store, _: MovableClock) -> NewJob:
    made = await one(store, followed(unique=UniqueKey(b"k" * 16)))
    await put_in(store, job(unique=UniqueKey(b"k" * 16, conflict="replace")))
    return made


DOORS: dict[str, tuple[State, Door]] = {
    "succeeded": (State.SUCCEEDED, by_ack(lambda held: Ack.succeeded(held, b"1"))),
    "dead": (State.DEAD, by_ack(lambda held: Ack.dead(held, ERROR, Reason.RETRIES_EXHAUSTED))),
    "cancelled": (State.CANCELLED, by_ack(Ack.cancelled)),
    "lost early": (State.DEAD, by_ack(lambda held: Ack.lost_early(held, ERROR), early=True)),
    "an order": (State.CANCELLED, by_order),
    "a last crash": (State.DEAD, by_rescue),
    "a last crash of a child process": (State.DEAD, by_crash),
    "silence of an early one": (State.DEAD, by_silence),
    "a crash with an order": (State.CANCELLED, by_rescue_with_an_order),
    "retired": (State.DEAD, by_retirement),
    "an ack at retirement": (State.DEAD, by_retirement_ack),
    "by hand": (State.CANCELLED, by_hand),
    "expired": (State.CANCELLED, by_time),
    "its parent": (State.CANCELLED, by_parent),
    "born cancelled": (State.CANCELLED, by_birth),
    "superseded": (State.CANCELLED, by_replacement),
}


@pytest.mark.asyncio
class TestFollowUpsOfEveryEnd:
    @pytest.mark.parametrize("door", DOORS)
    async def test_every_end_inserts_its_follow_up_job(self, store: Store, clock: MovableClock, door: str) -> None:
        """Only the follow-up for this end."""
        end, go = DOORS[door]
        made = await go(store, clock)
        assert await state(store, made) == end
        assert await followers(store, made) == [end]
        found = await row(store, follower(made, end))
        assert (found.state, found.queue, found.attempt, found.epoch) == (State.READY, end, 0, 1)
        hand = await Hand(store).join()
        assert (await hand.take_one(f"{end}/any")).id == found.id
