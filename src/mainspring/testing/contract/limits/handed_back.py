"""A worker hands back a job that does not name the limits of its task: from then on the job names them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mainspring.common.clock import MovableClock
from mainspring.jobs.lanes import limited_lane, parked_lane, suspect_lane
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import NewJob
from mainspring.limits.records import Bucket, Limit
from mainspring.queues.records import QueueSettings
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import (
    ERROR,
    LANE,
    SECOND,
    TASK,
    Hand,
    applied,
    bucket,
    ending,
    ids,
    job,
    lease,
    one,
    outcomes,
    put_in,
    row,
    state,
)
from mainspring.worker.records import Claim, Want

__all__ = ["TestHandedBackAgain", "TestHandedBackWithLimits"]

GATE, TENANT = Bucket("gate"), Bucket("tenant", "7")
LIMITS = (Limit(name="gate", size=2), Limit(name="tenant", size=1))


def relaned(claim: Claim, *buckets: Bucket) -> Ack:
    return Ack.returned(lease(claim), buckets=buckets)


async def handed_back(store: Store, n: int, *buckets: Bucket) -> tuple[Hand, list[NewJob]]:
    """``n`` plain jobs, each of them claimed and handed back."""
    made = [job() for _ in range(n)]
    await put_in(store, *made)
    await store.declare_limits(LIMITS)
    hand = await Hand(store).join()
    assert applied(await hand.turn(*(relaned(claim, *buckets) for claim in await hand.take(n))))
    return hand, made


@pytest.mark.asyncio
class TestHandedBackWithLimits:
    @pytest.mark.parametrize("buckets", [(GATE,), (TENANT,), (GATE, TENANT)], ids=["gate", "key", "both"])
    async def test_a_handed_back_job_is_ready_in_the_lane_of_its_buckets(
        self, store: Store, buckets: tuple[Bucket, ...]
    ) -> None:
        hand, (made,) = await handed_back(store, 1, *buckets)
        found = await row(store, made)
        assert (found.state, found.lane, found.attempt) == (State.READY, limited_lane(LANE, buckets), 0)
        assert (found.due, found.crashes, found.buckets) == (None, 0, buckets)
        again = await hand.take_one()
        assert (again.id, again.attempt, again.lane) == (made.id, 1, limited_lane(LANE, buckets))
        await hand.succeed(again)
        assert (await row(store, made)).attempt == 1

    @pytest.mark.parametrize("named", [GATE, TENANT], ids=["gate", "key"])
    async def test_the_added_limit_applies_from_then_on(self, store: Store, second_store: Store, named: Bucket) -> None:
        """Over turns and over workers, and all jobs run."""
        size = {"gate": 2, "tenant": 1}[named.limit]
        hand, made = await handed_back(store, 5, named)
        other = await Hand(second_store).join()
        done: list[Claim] = []
        while len(done) < 5:
            claims = [*await hand.take(9), *await other.take(9)]
            assert 0 < len(claims) <= size
            running = await store.buckets([named])
            assert running[0].used == len(claims)
            for claim in claims:
                owner = hand if (await row(store, claim)).worker == hand.name else other
                await owner.succeed(claim)
            done += claims
        assert sorted(ids(done)) == sorted(ids(made))

    async def test_a_handed_back_job_uses_no_capacity(self, store: Store) -> None:
        await one(store)
        await store.declare_limits(LIMITS)
        hand = await Hand(store).join()
        await hand.turn(relaned(await hand.take_one(), GATE, TENANT))
        assert [each.used for each in await store.buckets([GATE, TENANT])] == [0, 0]

    @pytest.mark.parametrize("named", [GATE, TENANT], ids=["gate", "key"])
    async def test_a_handed_back_job_keeps_its_position(self, store: Store, named: Bucket) -> None:
        """Before jobs that named the limit from the start and were enqueued later, behind those enqueued before."""
        await store.declare_limits(LIMITS)
        first, late, last = job(buckets=[named]), job(), job(buckets=[named])
        await put_in(store, late)
        hand = await Hand(store).join()
        claim = await hand.take_one()
        await put_in(store, last)
        before = (await row(store, late)).seq
        await hand.turn(relaned(claim, named))
        assert (await row(store, late)).seq == before
        await put_in(store, first)
        await store.act(Action.REPRIORITISE, Query(ids=(first.id,)), priority=1)
        order = []
        for _ in range(3):
            claim = await hand.take_one()
            order.append(claim.id)
            await hand.succeed(claim)
        assert order == ids([first, late, last])

    async def test_no_job_waits_behind_its_old_position(self, store: Store) -> None:
        """Its priority was changed, and changed back in its new lane."""
        jobs = [job() for _ in range(12)]
        made = jobs[9]
        held = await one(store, job(buckets=[TENANT]))
        await store.declare_limits(LIMITS)
        hand = await Hand(store).join()
        assert (await hand.take_one()).id == held.id
        await put_in(store, *jobs)
        await store.act(Action.REPRIORITISE, Query(ids=(made.id,)), priority=5)
        await hand.turn(relaned(await hand.take_one(), TENANT))
        await store.act(Action.REPRIORITISE, Query(ids=(made.id,)), priority=0)
        assert [*await hand.take(20), *await hand.take(20)][9].id == jobs[10].id

    async def test_priority_comes_before_the_old_position(self, store: Store) -> None:
        await store.declare_limits(LIMITS)
        low, high = job(), job(priority=5)
        hand = await Hand(store).join()
        await put_in(store, low, high)
        await hand.turn(*(relaned(claim, TENANT) for claim in await hand.take(2)))
        assert (await hand.take_one()).id == high.id

    async def test_a_lifo_job_keeps_its_position(self, store: Store) -> None:
        await store.configure_queue("q", QueueSettings(order="lifo"))
        await store.declare_limits(LIMITS)
        old, new = await one(store), await one(store)
        hand = await Hand(store).join()
        await hand.turn(*(relaned(claim, TENANT) for claim in await hand.take(2)))
        newest = await one(store, job(buckets=[TENANT]))
        order = []
        for _ in range(3):
            claim = await hand.take_one()
            order.append(claim.id)
            await hand.succeed(claim)
        assert order == ids([newest, new, old])

    async def test_capacity_of_other_jobs_stays_used(self, store: Store) -> None:
        """Also the capacity of other jobs of the worker that hands it back."""
        gate = bucket("gate", 1)
        await put_in(store, job(buckets=[gate]), job())
        hand = await Hand(store).join()
        first, second = await hand.take(2)
        claim = second if first.lane != LANE else first
        assert claim.lane == LANE
        await hand.turn(relaned(claim, GATE))
        assert [each.used for each in await store.buckets([GATE])] == [1]
        assert await hand.take(1) == ()

    @pytest.mark.parametrize("key", ["", "7"], ids=["gate", "key"])
    @pytest.mark.parametrize("per", [0, 60 * SECOND], ids=["concurrency", "rate"])
    async def test_capacity_of_its_other_limits_is_freed(
        self, store: Store, second_store: Store, per: int, key: str
    ) -> None:
        """The job was claimed through a limit of its own: another job may start there, and its listeners are woken."""
        own = bucket("own", 1, per=per, key=key)
        made = await one(store, job(buckets=[own]))
        other = await one(store, job(queue="w", buckets=[own]))
        await store.declare_limits([Limit(name="gate", size=0)])
        hand, waiter = await Hand(store).join(), await Hand(second_store, queues=["w"]).join()
        claim = await hand.take_one()
        assert await waiter.take(1, "w/any") == ()
        listener = await second_store.listen(waiter.name, ["w"])
        while await listener.wait(0.1):
            pass
        await hand.turn(relaned(claim, GATE))
        assert await listener.wait(10)
        listener.close()
        found = await row(store, made)
        assert found.buckets == (Bucket("gate"), Bucket("own", key))
        assert found.lane == limited_lane(LANE, found.buckets)
        assert ids(await waiter.take(1, "w/any")) == [other.id]

    @pytest.mark.parametrize("burst", [0, 1], ids=["rate", "smooth"])
    async def test_the_start_of_its_claim_is_returned_to_rates(self, store: Store, burst: int) -> None:
        """It has not started: its next claim counts."""
        await one(store, job(buckets=[bucket("slow", 1, per=60 * SECOND, burst=burst)]))
        await store.declare_limits(LIMITS)
        hand = await Hand(store).join()
        await hand.turn(relaned(await hand.take_one(), GATE))
        claim = await hand.take_one()
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=0))
        await store.promote()
        assert await hand.take(1) == ()

    async def test_an_added_rate_counts_the_start_of_the_job(self, store: Store, clock: MovableClock) -> None:
        await store.declare_limits([Limit(name="slow", kind="rate", size=3, per=SECOND)])
        await put_in(store, job(), job())
        hand = await Hand(store).join()
        await hand.turn(*(relaned(claim, Bucket("slow", "", 2)) for claim in await hand.take(2)))
        said = await hand.turn(wants=[Want((LANE,), 9)])
        assert (len(said.claims), said.next_at) == (1, clock.now_us() + SECOND)
        clock.advance("1s")
        assert len(await hand.take(9)) == 1

    async def test_a_cheaper_job_in_front_does_not_wait(self, store: Store) -> None:
        """A lane that waits until its first job fits has another first job now."""
        await store.declare_limits([Limit(name="rate", kind="rate", size=3, per=60 * SECOND)])
        cheap = await one(store)
        hand = await Hand(store).join()
        claim = await hand.take_one()
        dear = [job(buckets=[Bucket("rate", "7", 2)]) for _ in range(2)]
        await put_in(store, *dear)
        assert ids(await hand.take(9)) == ids(dear[:1])
        await hand.turn(relaned(claim, Bucket("rate", "7", 1)))
        assert ids(await hand.take(9)) == [cheap.id]

    async def test_listeners_are_woken(self, store: Store, second_store: Store) -> None:
        await one(store)
        hand = await Hand(store).join()
        claim = await hand.take_one()
        listener = await second_store.listen("somebody", ["q"])
        while await listener.wait(0.1):
            pass
        await hand.turn(relaned(claim, GATE))
        assert await listener.wait(10)
        listener.close()

    async def test_a_parked_suspect_stays_a_suspect(self, store: Store) -> None:
        made = await one(store, job(crashes=2))
        unlucky = await Hand(store).join()
        await unlucky.take_one()
        await unlucky.crash()
        stranger = await Hand(store, tasks=()).join()
        await stranger.turn(Ack.returned(lease(await stranger.take_one()), park=True))
        hand = await Hand(store).join()
        claim = await hand.take_one()
        await hand.turn(relaned(claim, GATE, TENANT))
        found = await row(store, made)
        home = limited_lane(LANE, (GATE, TENANT))
        assert (found.lane, found.crashes) == (parked_lane(suspect_lane(home), TASK), 1)
        assert await stranger.take(1) == ()
        assert (await hand.take_one()).id == made.id

    async def test_the_added_limit_applies_after_a_retry_by_hand(self, store: Store) -> None:
        hand, (made, _) = await handed_back(store, 2, TENANT)
        await hand.kill(await hand.take_one())
        held = await hand.take_one()
        await store.act(Action.RETRY, Query(ids=(made.id,)))
        assert await hand.take(1) == ()
        await hand.succeed(held)
        assert (await hand.take_one()).id == made.id

    async def test_a_job_with_an_unknown_limit_is_claimed(self, store: Store) -> None:
        await one(store)
        hand = await Hand(store).join()
        await hand.turn(relaned(await hand.take_one(), Bucket("nobody")))
        claim = await hand.take_one()
        await hand.succeed(claim)
        assert await state(store, claim) == State.SUCCEEDED


def _named_twice(claim: Claim) -> Ack:
    return relaned(claim, Bucket("tenant", "8"), GATE)


@pytest.mark.asyncio
class TestHandedBackAgain:
    async def test_a_repeat_changes_nothing(self, store: Store) -> None:
        await one(store)
        await store.declare_limits(LIMITS)
        hand = await Hand(store).join()
        claim = await hand.take_one()
        await hand.turn(relaned(claim, GATE))
        before = await row(store, claim)
        assert (await hand.repeat()).already == (lease(claim),)
        assert await row(store, claim) == before

    async def test_a_repeat_after_it_was_claimed_again_changes_nothing(self, store: Store) -> None:
        """The same worker sends the ack again in a later turn, while another attempt runs."""
        hand, (made,) = await handed_back(store, 1, GATE)
        old = hand.last.acks[0]
        claim = await hand.take_one()
        assert not applied(await hand.turn(old))
        found = await row(store, made)
        assert (found.state, found.token) == (State.RUNNING, claim.token)
        assert [each.used for each in await store.buckets([GATE])] == [1]

    async def test_a_stale_lease_is_refused(self, store: Store) -> None:
        await one(store)
        hand = await Hand(store).join()
        claim = await hand.take_one()
        await store.rescue(hand.name, hand.beats, Outcome.LOST)
        other = await Hand(store).join()
        now = await other.take_one()
        thief = await other.turn(Ack.returned(lease(claim), buckets=(GATE,)))
        assert thief.stale == (lease(claim),)
        found = await row(store, claim)
        assert (found.state, found.token, found.buckets, found.lane) == (State.RUNNING, now.token, (), LANE)

    async def test_a_cancel_order_ends_the_job(self, store: Store) -> None:
        await one(store)
        hand = await Hand(store).join()
        claim = await hand.take_one()
        await store.act(Action.CANCEL, Query(ids=(claim.id,)))
        await hand.turn(relaned(claim, GATE))
        assert await ending(store, claim) == (State.CANCELLED, Reason.BY_USER)

    async def test_the_attempt_is_recorded_and_does_not_count(self, store: Store) -> None:
        hand, (made,) = await handed_back(store, 1, GATE)
        assert await outcomes(store, made) == [Outcome.INTERRUPTED]
        await hand.turn(Ack.failed(lease(await hand.take_one()), ERROR, retry_in=0))
        assert [each.attempt for each in await store.attempts(made.id)] == [1, 1]
        assert (await row(store, made)).attempt == 1

    @pytest.mark.parametrize("again", [_named_twice, lambda claim: relaned(claim, GATE)], ids=["more", "the same"])
    async def test_limits_that_a_job_names_already_do_not_change(
        self, store: Store, again: Callable[[Claim], Ack]
    ) -> None:
        """Workers that disagree on the limits of a task, or on their keys, cannot hand a job back and forth."""
        hand, (made,) = await handed_back(store, 1, Bucket("tenant", "7", 3))
        await hand.turn(again(await hand.take_one()))
        assert (await row(store, made)).buckets == (GATE, Bucket("tenant", "7", 3))
        await hand.turn(relaned(await hand.take_one(), GATE, Bucket("tenant", "9")))
        found = await row(store, made)
        assert found.buckets == (GATE, Bucket("tenant", "7", 3))
        assert found.lane == limited_lane(LANE, found.buckets)
        await hand.succeed(await hand.take_one())

    async def test_a_retirement_hands_back_with_limits(self, store: Store) -> None:
        await one(store)
        await store.declare_limits(LIMITS)
        hand = await Hand(store).join()
        claim = await hand.take_one()
        said = await store.retire(hand.name, Outcome.INTERRUPTED, [relaned(claim, GATE, TENANT)])
        assert said.taken
        found = await row(store, claim)
        assert (found.state, found.buckets, found.attempt) == (State.READY, (GATE, TENANT), 0)

    async def test_many_jobs_in_one_turn(self, store: Store) -> None:
        """Each to the lane of its key."""
        await store.declare_limits(LIMITS)
        made = [job() for _ in range(60)]
        await put_in(store, *made)
        hand = await Hand(store).join()
        claims = await hand.take(60)
        keys = {claim.id: Bucket("tenant", str(n % 6)) for n, claim in enumerate(claims)}
        assert applied(await hand.turn(*(relaned(claim, keys[claim.id], GATE) for claim in claims)))
        await store.declare_limits([Limit(name="gate", size=100)])
        done: set[bytes] = set()
        while len(done) < 60:
            taken = await hand.take(60)
            assert 0 < len(taken) <= 6
            assert len({keys[claim.id].key for claim in taken}) == len(taken)
            await hand.succeed(*taken)
            done.update(ids(taken))
