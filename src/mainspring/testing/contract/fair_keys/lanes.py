"""Lanes of fair keys: every way into and out of them, and what else holds their jobs back."""

from __future__ import annotations

from collections import Counter

import pytest

from mainspring.common.clock import MovableClock
from mainspring.errors import StoreConflict
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import FollowUp, Retention
from mainspring.limits.records import Limit
from mainspring.queues.records import QueueMode
from mainspring.states import Action, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import LANE, MINUTE, SECOND, Hand, bucket, ids, job, lease, one, put_in, row
from mainspring.worker.records import Want

from .shares import keys, of, some

__all__ = ["TestFairLanes"]


@pytest.mark.asyncio
class TestFairLanes:
    @pytest.mark.parametrize("key", ["", "a=b", "a,b", "it's {7} 🐛", "x" * 1000, "!?#~*", " ", "5*a"])
    async def test_keys_are_any_text(self, store: Store, key: str) -> None:
        await put_in(store, *some(6, key), *some(6, "other"))
        hand = await Hand(store).join()
        assert Counter(keys(await hand.take(6))) == {key: 3, "other": 3}

    @pytest.mark.parametrize("weight", [0.001, 0.5, 1, 12.75, 1_000_000])
    async def test_weights_are_any_number(self, store: Store, weight: float) -> None:
        await put_in(store, *some(9, "a", weight), *some(9, "b", weight * 2))
        hand = await Hand(store).join()
        assert Counter(keys(await hand.take(9))) == {"a": 3, "b": 6}

    async def test_a_fair_key_is_no_limit(self, store: Store) -> None:
        """Jobs that are claimed ahead of a free slot can have a fair key."""
        await put_in(store, *some(5, "a"), *(job(fair=of("a"), buckets=[bucket("gate", 9)]) for _ in range(5)))
        hand = await Hand(store).join()
        said = await hand.turn(wants=[Want((LANE,), 10, ahead=True)])
        assert len(said.claims) == 5
        assert len((await hand.turn(wants=[Want((LANE,), 2), Want((LANE,), 8, ahead=True)])).claims) == 2

    async def test_claims_ahead_of_a_slot_are_shared_too(self, store: Store) -> None:
        await put_in(store, *some(20, "a"), *some(20, "b"))
        hand = await Hand(store).join()
        said = await hand.turn(wants=[Want((LANE,), 10, ahead=True)])
        assert Counter(keys(said.claims)) == {"a": 5, "b": 5}

    async def test_cancelled_first_jobs_are_skipped(self, store: Store) -> None:
        jobs = some(6, "a")
        await put_in(store, *jobs, *some(6, "b"))
        await store.act(Action.CANCEL, Query(ids=tuple(ids(jobs[:3]))))
        hand = await Hand(store).join()
        assert Counter(keys(await hand.take(4))) == {"a": 2, "b": 2}
        assert Counter(keys(await hand.take(9))) == {"a": 1, "b": 4}

    async def test_a_lane_emptied_by_cancels_does_not_block(self, store: Store) -> None:
        jobs = some(5, "a")
        await put_in(store, *jobs, *some(5, "b"))
        await store.act(Action.CANCEL, Query(ids=tuple(ids(jobs))))
        hand = await Hand(store).join()
        assert keys(await hand.take(9)) == ["b"] * 5
        await put_in(store, *some(2, "a"))
        assert keys(await hand.take(9)) == ["a"] * 2

    async def test_a_cancelled_job_does_not_count_for_its_key(self, store: Store) -> None:
        jobs = some(200, "a")
        await put_in(store, *jobs, *some(50, "b"))
        hand = await Hand(store).join()
        await hand.take(10)
        await store.act(Action.CANCEL, Query.where(states=[State.READY], tasks=[jobs[0].task]), limit=1)
        await store.act(Action.CANCEL, Query(ids=tuple(ids(jobs))))
        await put_in(store, *some(10, "a"))
        assert 4 <= Counter(keys(await hand.take(10)))["a"] <= 6

    async def test_expired_jobs_are_skipped(self, store: Store, clock: MovableClock) -> None:
        await put_in(store, *(job(fair=of("a"), expires_in=SECOND, record=b"late") for _ in range(5)))
        await put_in(store, *some(5, "a"), *some(5, "b"))
        clock.advance("2s")
        hand = await Hand(store).join()
        assert Counter(keys(await hand.take(6))) == {"a": 3, "b": 3}

    async def test_a_retried_job_keeps_its_fair_key(self, store: Store, clock: MovableClock) -> None:
        (made,) = some(1, "a")
        await put_in(store, made)
        hand = await Hand(store).join()
        claim = await hand.take_one()
        await hand.turn(Ack.failed(lease(claim), b"{}", retry_in=SECOND))
        await put_in(store, *some(20, "b"))
        clock.advance("2s")
        await store.promote()
        assert made.id in ids(await hand.take(2))

    async def test_a_job_retried_by_hand_keeps_its_fair_key(self, store: Store) -> None:
        (made,) = some(1, "a")
        await put_in(store, made)
        hand = await Hand(store).join()
        await hand.kill(await hand.take_one())
        await put_in(store, *some(20, "b"))
        assert (await store.act(Action.RETRY, Query(ids=(made.id,)))).done == (made.id,)
        assert made.id in ids(await hand.take(2))

    async def test_a_parked_task_keeps_its_key(self, store: Store) -> None:
        (made,) = some(1, "a")
        await put_in(store, made)
        stranger, hand = await Hand(store, tasks=()).join(), await Hand(store).join()
        claim = await stranger.take_one()
        await stranger.turn(Ack.returned(lease(claim), park=True))
        assert await stranger.take(9) == ()
        await put_in(store, *some(20, "b"))
        assert made.id in ids(await hand.take(3))

    async def test_suspects_of_fair_keys_come_one_at_a_time(self, store: Store) -> None:
        jobs = [job(fair=of(key), crashes=2, record=key.encode()) for key in "ab"]
        await put_in(store, *jobs)
        for _ in jobs:
            victim = await Hand(store).join()
            await victim.take(1, suspects=0)
            await store.rescue(victim.name, victim.beats, Outcome.CRASHED)
        hand = await Hand(store).join()
        assert await hand.take(9, suspects=0) == ()
        first = await hand.take_one()
        second = await hand.take_one()
        assert {first.id, second.id} == set(ids(jobs))

    async def test_a_fair_job_can_be_reprioritised(self, store: Store) -> None:
        jobs = some(5, "a")
        await put_in(store, *some(5, "b"), *jobs)
        await store.act(Action.REPRIORITISE, Query(ids=(jobs[4].id,)), priority=9)
        hand = await Hand(store).join()
        assert (await hand.take_one()).id == jobs[4].id
        assert Counter(keys(await hand.take(8))) == {"a": 4, "b": 4}

    async def test_a_paused_queue_hands_out_no_fair_job(self, store: Store) -> None:
        await put_in(store, *some(5, "a"))
        hand = await Hand(store).join()
        await store.set_queue_mode(["q"], QueueMode.PAUSED)
        assert await hand.take(9) == ()
        await store.set_queue_mode(["q"], QueueMode.OPEN)
        assert len(await hand.take(9)) == 5

    async def test_a_limit_by_the_same_key_applies_too(self, store: Store) -> None:
        await store.declare_limits([Limit(name="tenant", size=2)])
        for key in "abc":
            room = [bucket("tenant", 2, key=key)] if key != "c" else []
            await put_in(store, *(job(fair=of(key), buckets=room, record=key.encode()) for _ in range(20)))
        hand = await Hand(store).join()
        claims = await hand.take(12)
        assert Counter(keys(claims)) == {"a": 2, "b": 2, "c": 8}
        await hand.succeed(*claims)
        claims = await hand.take(6)
        assert Counter(keys(claims)) == {"a": 2, "b": 2, "c": 2}
        assert Counter(keys(await hand.take(4))) == {"c": 4}

    async def test_a_lane_that_waited_for_capacity_gets_no_credit(self, store: Store) -> None:
        held = [job(fair=of("a"), buckets=[bucket("tenant", 1, key="a")], record=b"a") for _ in range(30)]
        await put_in(store, *held, *some(300, "b"))
        hand = await Hand(store).join()
        first = await hand.take(50)
        assert Counter(keys(first))["a"] == 1
        await store.set_limit_size("tenant", 100)
        assert 9 <= Counter(keys(await hand.take(20)))["a"] <= 11

    async def test_a_full_unkeyed_limit_holds_back_only_its_jobs(self, store: Store) -> None:
        gate = bucket("gate", 1)
        await put_in(store, *(job(fair=of("a"), buckets=[gate], record=b"a") for _ in range(5)), *some(5, "b"))
        hand = await Hand(store).join()
        claims = await hand.take(9)
        assert Counter(keys(claims)) == {"a": 1, "b": 5}
        await hand.succeed(*claims)
        assert keys(await hand.take(9)) == ["a"]

    async def test_rates_apply_too(self, store: Store, clock: MovableClock) -> None:
        rate = bucket("rate", 2, key="a", per=SECOND)
        await put_in(store, *(job(fair=of("a"), buckets=[rate], record=b"a") for _ in range(9)), *some(20, "b"))
        hand = await Hand(store).join()
        assert Counter(keys(await hand.take(10))) == {"a": 2, "b": 8}
        clock.advance("1s")
        await store.promote()
        assert Counter(keys(await hand.take(6)))["a"] == 2

    async def test_a_repeated_turn_returns_the_same_claims(self, store: Store) -> None:
        await put_in(store, *some(9, "a"), *some(9, "b"))
        hand = await Hand(store).join()
        first = await hand.take(6)
        assert sorted(ids((await hand.repeat()).claims)) == sorted(ids(first))
        assert Counter(keys(await hand.take(6))) == {"a": 3, "b": 3}

    async def test_a_follow_up_has_no_fair_key(self, store: Store) -> None:
        follow = job(id=bytes(14) + b"\0\0", fair=of("a"))
        with pytest.raises(StoreConflict):
            await one(store, job(follows=[FollowUp(State.SUCCEEDED, follow)]))

    async def test_the_lane_of_a_job_names_its_fair_key(self, store: Store) -> None:
        made = await one(store, job(fair=of("acme", 5)))
        assert (await row(store, made)).lane == "q/any#*=5*acme"

    async def test_fair_jobs_wake_listeners_and_wait_like_other_jobs(self, store: Store, clock: MovableClock) -> None:
        later = job(fair=of("a"), delay=MINUTE)
        child = job(fair=of("b"), after=[later])
        await put_in(store, later, child)
        hand = await Hand(store).join()
        assert await hand.take(9) == ()
        listener = await store.listen(hand.name, ["q"])
        clock.advance("2m")
        await store.promote()
        assert await listener.wait(10)
        listener.close()
        claim = await hand.take_one()
        await hand.succeed(claim)
        assert (await hand.take_one()).id == child.id

    async def test_pruning_deletes_empty_lanes(self, store: Store) -> None:
        jobs = [each for n in range(50) for each in some(1, n)]
        await put_in(store, *jobs, *some(5, "a"))
        await store.act(Action.CANCEL, Query(ids=tuple(ids(jobs))))
        await store.prune(Retention())
        hand = await Hand(store).join()
        assert len(await hand.take(9)) == 5
        await put_in(store, *some(4, "a"), *some(4, "b"))
        assert Counter(keys(await hand.take(4))) == {"a": 2, "b": 2}
