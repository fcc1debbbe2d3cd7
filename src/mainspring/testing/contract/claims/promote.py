"""Promotion and expiry by the store's clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from mainspring.common.clock import MovableClock
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import FollowUp
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import (
    ERROR,
    HOUR,
    LANE,
    SECOND,
    Hand,
    applied,
    bucket,
    ending,
    ids,
    ignoring,
    job,
    lease,
    one,
    put_in,
    row,
    running,
    state,
)
from mainspring.worker.records import Claim

__all__ = ["TestExpiry", "TestExpiryAfterTheStart", "TestPromote"]


@pytest.mark.asyncio
class TestPromote:
    async def test_no_job_is_promoted_before_it_is_due(self, store: Store, clock: MovableClock) -> None:
        made = await one(store, job(delay=10 * SECOND))
        clock.advance("9s")
        assert (await store.promote()).promoted == 0
        hand = await Hand(store).join()
        assert await hand.take(1) == ()
        clock.advance("1s")
        said = await store.promote()
        assert (said.promoted, said.now, said.queues) == (1, clock.now_us(), ("q",))
        assert (await hand.take_one()).id == made.id

    async def test_retrying_jobs_are_promoted_too(self, store: Store, clock: MovableClock) -> None:
        hand, claim = await running(store)
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=5 * SECOND))
        clock.advance("5s")
        assert (await store.promote()).promoted == 1
        assert await state(store, claim) == State.READY

    async def test_jobs_due_first_are_claimed_first(self, store: Store, clock: MovableClock) -> None:
        late, early, middle = job(delay=3 * SECOND), job(delay=SECOND), job(delay=2 * SECOND)
        await put_in(store, late, early, middle)
        clock.advance("5s")
        await store.promote()
        hand = await Hand(store).join()
        assert ids(await hand.take(3)) == ids([early, middle, late])

    async def test_promoted_jobs_come_after_waiting_jobs(self, store: Store, clock: MovableClock) -> None:
        later, ready = job(delay=SECOND), job()
        await put_in(store, later, ready)
        clock.advance("5s")
        await store.promote()
        hand = await Hand(store).join()
        assert ids(await hand.take(2)) == ids([ready, later])

    async def test_slices_begin_with_the_job_due_first(self, store: Store, clock: MovableClock) -> None:
        jobs = [job(delay=n * SECOND) for n in range(1, 6)]
        await put_in(store, *reversed(jobs))
        clock.advance("10s")
        said = await store.promote(limit=2)
        assert said.promoted == 2
        assert said.next_due is not None
        assert said.next_due <= clock.now_us()
        hand = await Hand(store).join()
        assert ids(await hand.take(5)) == ids(jobs[:2])
        assert [(await store.promote(limit=2)).promoted for _ in range(3)] == [2, 1, 0]

    async def test_next_due_is_the_moment_of_the_next_job(self, store: Store, clock: MovableClock) -> None:
        """The next promotion or the next expiry, whichever is first."""
        now = clock.now_us()
        assert (await store.promote()).next_due is None
        await one(store, job(delay=50 * SECOND))
        assert (await store.promote()).next_due == now + 50 * SECOND
        await one(store, job(expires_in=20 * SECOND))
        assert (await store.promote()).next_due == now + 20 * SECOND

    async def test_only_queues_with_promoted_jobs_are_named(self, store: Store, clock: MovableClock) -> None:
        await put_in(store, *(job(queue=queue, delay=SECOND) for queue in "ab"), job(queue="c", delay=60 * SECOND))
        clock.advance("2s")
        assert set((await store.promote()).queues) == {"a", "b"}

    async def test_a_promoted_job_has_its_attempts_and_priority(self, store: Store) -> None:
        hand, claim = await running(store, job(priority=8))
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=0))
        await store.promote()
        found = await row(store, claim)
        assert (found.state, found.attempt, found.priority, found.lane) == (State.READY, 1, 8, LANE)

    async def test_limited_jobs_return_to_their_limits(self, store: Store, clock: MovableClock) -> None:
        gate = bucket("gate", 1)
        await put_in(store, job(delay=SECOND, buckets=[gate]), job(delay=SECOND, buckets=[gate]))
        clock.advance("1s")
        await store.promote()
        hand = await Hand(store).join()
        assert len(await hand.take(5)) == 1


@pytest.mark.asyncio
class TestExpiry:
    async def test_a_waiting_job_past_its_time_is_cancelled(self, store: Store, clock: MovableClock) -> None:
        """Ready, scheduled and blocked jobs."""
        parent = await one(store, job(queue="p"))
        ready = job(expires_in=5 * SECOND)
        later = job(expires_in=5 * SECOND, delay=60 * SECOND)
        blocked = job(expires_in=5 * SECOND, after=[parent])
        await put_in(store, ready, later, blocked)
        clock.advance("6s")
        assert (await store.promote()).expired == 3
        for each in (ready, later, blocked):
            assert await ending(store, each) == (State.CANCELLED, Reason.EXPIRED)
        assert (await row(store, ready)).finished == clock.now_us()

    async def test_a_running_job_does_not_expire(self, store: Store, clock: MovableClock) -> None:
        """It started in time."""
        hand, claim = await running(store, job(expires_in=5 * SECOND))
        clock.advance("6s")
        assert (await store.promote()).expired == 0
        await hand.succeed(claim)

    async def test_no_job_expires_before_its_time(self, store: Store, clock: MovableClock) -> None:
        made = await one(store, job(expires_in=5 * SECOND))
        clock.advance("4s")
        assert (await store.promote()).expired == 0
        assert await state(store, made) == State.READY

    async def test_jobs_expire_in_slices(self, store: Store, clock: MovableClock) -> None:
        await put_in(store, *(job(expires_in=SECOND) for _ in range(5)))
        clock.advance("2s")
        assert [(await store.promote(limit=2)).expired for _ in range(4)] == [2, 2, 1, 0]

    async def test_an_expired_parent_ends_its_children_by_policy(self, store: Store, clock: MovableClock) -> None:
        parent = job(expires_in=SECOND)
        child, careless = job(after=[parent]), job(after=[ignoring(parent)])
        await put_in(store, parent, child, careless)
        clock.advance("2s")
        await store.promote()
        assert await ending(store, child) == (State.CANCELLED, Reason.PARENT)
        assert await state(store, careless) == State.READY

    async def test_a_job_that_is_due_and_expired_expires(self, store: Store, clock: MovableClock) -> None:
        made = await one(store, job(delay=SECOND, expires_in=2 * SECOND))
        clock.advance("3s")
        await store.promote()
        assert await ending(store, made) == (State.CANCELLED, Reason.EXPIRED)


End = Callable[[Store, Hand, Claim], Awaitable[object]]


async def _crash_twice(store: Store, hand: Hand, claim: Claim) -> None:
    """The first crash has no delay, the second one has."""
    await hand.crash()
    other = await Hand(store).join()
    await other.take_one(f"{claim.queue}/any")
    await other.crash()


def _by_ack(make: Callable[[Claim], Ack]) -> End:
    async def report(_store: Store, hand: Hand, claim: Claim) -> None:
        assert applied(await hand.turn(make(claim)))

    return report


BEGUN: dict[str, tuple[State, End]] = {
    "failed": (State.RETRYING, _by_ack(lambda claim: Ack.failed(lease(claim), ERROR, retry_in=60 * SECOND))),
    "timed out": (
        State.RETRYING,
        _by_ack(lambda claim: Ack.failed(lease(claim), ERROR, retry_in=60 * SECOND, timed_out=True)),
    ),
    "snoozed": (State.SCHEDULED, _by_ack(lambda claim: Ack.snoozed(lease(claim), delay=60 * SECOND))),
    "interrupted": (State.READY, _by_ack(lambda claim: Ack.interrupted(lease(claim)))),
    "crashed in a child process": (State.READY, _by_ack(lambda claim: Ack.crashed(lease(claim), ERROR))),
    "lost": (State.READY, lambda store, hand, _: store.rescue(hand.name, hand.beats, Outcome.LOST)),
    "crashed": (State.READY, lambda store, hand, _: store.rescue(hand.name, hand.beats, Outcome.CRASHED)),
    "crashed twice": (State.RETRYING, _crash_twice),
    "retired": (State.READY, lambda store, hand, _: store.retire(hand.name, Outcome.INTERRUPTED)),
}
"""Ends of attempts whose body has begun, or may have begun, and the state of the job after it."""

UNSTARTED: dict[str, Callable[[Claim], Ack]] = {
    "returned": lambda claim: Ack.returned(lease(claim)),
    "parked": lambda claim: Ack.returned(lease(claim), park=True),
    "with buckets": lambda claim: Ack.returned(lease(claim), buckets=(bucket("late", 5),)),
}


@pytest.mark.asyncio
class TestExpiryAfterTheStart:
    """``expires`` is a limit for the first start: it does not end a job that waits to run again."""

    @pytest.mark.parametrize("end", BEGUN)
    async def test_a_job_that_has_started_never_expires(self, store: Store, clock: MovableClock, end: str) -> None:
        """However its attempt ended. The job keeps its retries and its follow-up jobs."""
        after, happens = BEGUN[end]
        made = job(queue="e", expires_in=5 * SECOND, follows=[FollowUp(State.DEAD, job(id=b"\1" * 14 + b"\0\0"))])
        hand, claim = await running(store, made)
        assert claim.expires == clock.now_us() + 5 * SECOND
        await happens(store, hand, claim)
        found = await row(store, made)
        assert (found.state, found.expires) == (after, None)
        clock.advance("6s")
        assert (await store.promote()).ended == ()
        clock.advance("60s")
        assert (await store.promote()).ended == ()
        other = await Hand(store).join()
        again = await other.take_one("e/any")
        assert (again.id, again.expires) == (made.id, None)
        await other.kill(again)
        assert (await other.take_one()).id == b"\1" * 14 + b"\0\1"

    @pytest.mark.parametrize("end", BEGUN)
    async def test_a_promotion_waits_for_no_expiry_of_a_started_job(self, store: Store, end: str) -> None:
        after, happens = BEGUN[end]
        hand, claim = await running(store, job(queue="e", expires_in=HOUR))
        await happens(store, hand, claim)
        assert (await store.promote()).next_due == (None if after is State.READY else (await row(store, claim)).due)

    @pytest.mark.parametrize("end", UNSTARTED)
    async def test_a_job_that_is_handed_back_before_its_start_expires(
        self, store: Store, clock: MovableClock, end: str
    ) -> None:
        """Its body never began: it must not begin too late."""
        hand, claim = await running(store, job(expires_in=5 * SECOND))
        assert applied(await hand.turn(UNSTARTED[end](claim)))
        assert (await row(store, claim)).expires == claim.expires
        clock.advance("6s")
        assert await hand.take(9) == ()
        assert (await store.promote()).ended == (claim.id,)
        assert await ending(store, claim) == (State.CANCELLED, Reason.EXPIRED)

    async def test_a_started_job_that_is_handed_back_never_expires(self, store: Store, clock: MovableClock) -> None:
        """A later attempt that is handed back before its body begins does not bring the limit back."""
        hand, claim = await running(store, job(expires_in=5 * SECOND))
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=0))
        await store.promote()
        await hand.turn(Ack.returned(lease(await hand.take_one())))
        clock.advance("6s")
        assert (await store.promote()).ended == ()
        assert (await hand.take_one()).id == claim.id

    @pytest.mark.parametrize("state", [State.SUCCEEDED, State.DEAD, State.CANCELLED])
    async def test_a_retry_by_hand_never_expires(self, store: Store, clock: MovableClock, state: State) -> None:
        """Also if the limit was still ahead at the retry."""
        hand, claim = await running(store, job(expires_in=HOUR))
        acks = {
            State.SUCCEEDED: Ack.succeeded(lease(claim)),
            State.DEAD: Ack.dead(lease(claim), ERROR, Reason.FAILED),
            State.CANCELLED: Ack.cancelled(lease(claim)),
        }
        await hand.turn(acks[state])
        await store.act(Action.RETRY, Query(ids=(claim.id,)))
        assert (await row(store, claim)).expires is None
        clock.advance("2h")
        assert (await store.promote()).ended == ()
        assert (await hand.take_one()).id == claim.id
