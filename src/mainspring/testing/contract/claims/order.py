"""Which ready job is claimed: by priority, then by the order of arrival, never an expired job."""

from __future__ import annotations

import pytest

from mainspring.common.clock import MovableClock
from mainspring.jobs.outcomes import Ack
from mainspring.states import State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import LANE, SECOND, Hand, bucket, ids, job, lease, one, put_in, row, state
from mainspring.worker.records import Want

__all__ = ["TestClaimOrder", "TestOldest"]


@pytest.mark.asyncio
class TestClaimOrder:
    async def test_higher_priority_comes_first(self, store: Store) -> None:
        low, high, normal = job(priority=-50), job(priority=100), job()
        await put_in(store, low, high, normal)
        hand = await Hand(store).join()
        assert ids(await hand.take(3)) == ids([high, normal, low])

    async def test_equal_priority_goes_by_arrival(self, store: Store) -> None:
        """By the store's order of arrival. The ids are made by clients and do not decide."""
        second, first = job(), job()
        await one(store, first)
        await one(store, second)
        hand = await Hand(store).join()
        assert (await hand.take_one()).id == first.id
        assert (await hand.take_one()).id == second.id

    async def test_a_claim_carries_the_job(self, store: Store, clock: MovableClock) -> None:
        made = await one(store, job(priority=9, record=b"body", expires_in=60 * SECOND))
        clock.advance("1s")
        hand = await Hand(store).join()
        claim = await hand.take_one()
        assert (claim.id, claim.task, claim.queue, claim.lane, claim.record) == (made.id, made.task, "q", LANE, b"body")
        assert (claim.priority, claim.attempt, claim.epoch, claim.crashes) == (9, 1, (await row(store, made)).epoch, 0)
        assert (claim.enqueued, claim.expires) == (clock.now_us() - SECOND, clock.now_us() + 59 * SECOND)
        assert (claim.turn, claim.early, claim.token) == (1, False, clock.now_us())

    async def test_a_claimed_job_runs_under_its_worker(self, store: Store, clock: MovableClock) -> None:
        made = await one(store)
        hand = await Hand(store).join()
        claim = await hand.take_one()
        found = await row(store, made)
        assert (found.state, found.worker, found.token, found.attempt) == (State.RUNNING, hand.name, claim.token, 1)
        assert found.started == clock.now_us()

    async def test_a_job_is_handed_out_once(self, store: Store, second_store: Store) -> None:
        await put_in(store, *(job() for _ in range(3)))
        here, there = await Hand(store).join(), await Hand(second_store).join()
        taken = ids(await here.take(2)) + ids(await there.take(2)) + ids(await here.take(2))
        assert len(taken) == len(set(taken)) == 3

    async def test_a_turn_claims_no_more_than_wanted(self, store: Store) -> None:
        await put_in(store, *(job() for _ in range(5)))
        hand = await Hand(store).join()
        assert len(await hand.take(2)) == 2
        assert await hand.take(0) == ()

    async def test_a_turn_claims_only_from_the_named_lanes(self, store: Store) -> None:
        other, kin = job(queue="other"), job(kind="async")
        wanted = job()
        await put_in(store, other, kin, wanted)
        hand = await Hand(store).join()
        assert ids(await hand.take(5)) == [wanted.id]
        assert ids(await hand.take(5, "other/any", "q/async")) == ids([other, kin])

    async def test_a_queue_with_a_common_prefix_is_another_queue(self, store: Store) -> None:
        made = await one(store, job(queue="q2"))
        hand = await Hand(store).join()
        assert await hand.take(5, LANE) == ()
        assert ids(await hand.take(5, "q2/any")) == [made.id]

    async def test_named_lanes_are_merged(self, store: Store) -> None:
        """Several lanes of one want are ordered together, by priority and arrival."""
        jobs = [job(kind=kind, priority=priority) for priority in (0, 5) for kind in ("async", "any", "async", "any")]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        claims = await hand.take(8, "q/async", "q/any")
        assert ids(claims) == ids(jobs[4:] + jobs[:4])

    async def test_limited_lanes_are_merged_with_their_base_lane(self, store: Store) -> None:
        """A limit changes how many jobs run, and not their order."""
        gate = bucket("gate", 5)
        jobs = [job(), job(buckets=[gate]), job(), job(buckets=[gate]), job(priority=1, buckets=[gate])]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        assert ids(await hand.take(5)) == ids([jobs[4], *jobs[:4]])

    async def test_wants_are_served_one_after_the_other(self, store: Store) -> None:
        """Each want has its own number of jobs; the same lane may be in several wants."""
        left, right, both = job(kind="async"), job(kind="thread"), [job() for _ in range(3)]
        await put_in(store, *both, left, right)
        hand = await Hand(store).join()
        said = await hand.turn(wants=[Want(("q/async", LANE), 2), Want(("q/thread", LANE), 2)])
        assert ids(said.claims) == ids([both[0], both[1], both[2], right])
        assert ids(await hand.take(5, "q/async")) == [left.id]

    async def test_a_job_that_is_ready_again_comes_after_waiting_jobs(self, store: Store) -> None:
        """Each entry into ready gives a new ``seq``."""
        first, second = job(), job()
        await put_in(store, first, second)
        hand = await Hand(store).join()
        claim = await hand.take_one()
        await hand.turn(Ack.interrupted(lease(claim)))
        assert ids(await hand.take(2)) == ids([second, first])

    async def test_an_expired_job_is_never_handed_out(self, store: Store, clock: MovableClock) -> None:
        """Also if no promotion ran since, and also if it is the first job of its lane."""
        stale, fresh = job(expires_in=5 * SECOND, priority=50), job()
        await put_in(store, stale, fresh)
        clock.advance("6s")
        hand = await Hand(store).join()
        assert ids(await hand.take(5)) == [fresh.id]
        await store.promote()
        assert await state(store, stale) == State.CANCELLED

    async def test_many_expired_jobs_do_not_hide_others(self, store: Store, clock: MovableClock) -> None:
        await put_in(store, *(job(expires_in=SECOND) for _ in range(300)))
        fresh = await one(store)
        clock.advance("2s")
        hand = await Hand(store).join()
        got: list[bytes] = []
        for _ in range(20):  # a turn may look at a bounded number of heads; those that follow go on
            got += ids(await hand.take(1))
        assert got == [fresh.id]


@pytest.mark.asyncio
class TestOldest:
    async def test_the_first_claim_of_a_want_can_be_by_age(self, store: Store) -> None:
        """So the lowest priority never starves."""
        old, high, higher = job(priority=-100), job(priority=50), job(priority=100)
        await put_in(store, old, high, higher)
        hand = await Hand(store).join()
        assert ids(await hand.take(2, oldest=1)) == ids([old, higher])
        assert ids(await hand.take(1)) == [high.id]

    async def test_oldest_compares_all_lanes_of_the_want(self, store: Store) -> None:
        gate = bucket("gate", 1)
        old, older = job(kind="async", priority=-5), job(priority=-100, buckets=[gate])
        await put_in(store, older, old, job(priority=100))
        hand = await Hand(store).join()
        assert ids(await hand.take(2, LANE, "q/async", oldest=2)) == ids([older, old])

    async def test_oldest_never_hands_out_more_than_wanted(self, store: Store) -> None:
        await put_in(store, *(job() for _ in range(4)))
        hand = await Hand(store).join()
        assert len(await hand.take(1, oldest=3)) == 1

    async def test_oldest_keeps_the_limits(self, store: Store) -> None:
        gate = bucket("gate", 1)
        first, second, plain = job(buckets=[gate]), job(buckets=[gate]), job(priority=5)
        await put_in(store, first, second, plain)
        hand = await Hand(store).join()
        assert ids(await hand.take(3, oldest=3)) == ids([first, plain])
