"""Plentiful limits: their jobs are claimed ahead of a free slot, until the limit is scarce."""

from __future__ import annotations

import pytest

from mainspring.common.clock import MovableClock
from mainspring.limits.records import PLENTIFUL
from mainspring.queues.records import QueueSettings
from mainspring.stores.base import Store
from mainspring.testing.contract.breakers.failures import fail, guard
from mainspring.testing.contract.fair_keys.shares import of
from mainspring.testing.contract.hands import LANE, SECOND, Hand, bucket, ids, job, one, put_in
from mainspring.worker.records import Want

__all__ = ["TestPlentifulLimits"]


@pytest.mark.asyncio
class TestPlentifulLimits:
    async def test_jobs_of_a_plentiful_limit_are_claimed_ahead_until_half_is_left(self, store: Store) -> None:
        jobs = [job(buckets=[bucket("wide", 220)]) for _ in range(150)]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        said = await hand.turn(wants=[Want((LANE,), 150, limited=3)])
        assert ids(said.claims) == ids(jobs[:113])
        assert sorted(said.short) == sorted(ids(jobs[110:113]))

    @pytest.mark.parametrize(("costs", "n"), [((4,) * 6, 6), ((1, 40) * 3, 5)], ids=["alike", "not alike"])
    async def test_costs_of_several_claims_add_up(self, store: Store, costs: tuple[int, ...], n: int) -> None:
        buckets = [bucket("wide", 100, per=SECOND, cost=cost) for cost in costs]
        jobs = [job(buckets=[each]) for each in buckets]
        await put_in(store, *jobs)
        assert ids(await (await Hand(store).join()).take(6)) == ids(jobs[:n])
        (found,) = await store.buckets(buckets[:1])
        assert found.used == sum(costs[:n])

    async def test_a_small_limit_is_scarce(self, store: Store) -> None:
        await put_in(store, *(job(buckets=[bucket("small", PLENTIFUL)]) for _ in range(9)))
        hand = await Hand(store).join()
        said = await hand.turn(wants=[Want((LANE,), 9, limited=2)])
        assert len(said.claims) == len(said.short) == 2
        said = await hand.turn(wants=[Want((LANE,), 3)])
        assert len(said.claims) == len(said.short) == 3

    async def test_a_job_with_one_scarce_limit_is_scarce(self, store: Store) -> None:
        wide, small = bucket("wide", 1000), bucket("small", 5)
        await put_in(store, *(job(buckets=[wide, small]) for _ in range(4)), *(job(buckets=[wide]) for _ in range(4)))
        hand = await Hand(store).join()
        said = await hand.turn(wants=[Want((LANE,), 8, limited=1)])
        assert len(said.claims) == 5
        assert len(said.short) == 1

    @pytest.mark.parametrize("burst", [0, 100], ids=["sliding", "smooth"])
    async def test_a_rate_is_scarce(self, store: Store, burst: int) -> None:
        """A start counts at its claim: a job that waits for a slot would start in another window."""
        await put_in(store, *(job(buckets=[bucket("calls", 100_000, per=SECOND, burst=burst)]) for _ in range(9)))
        hand = await Hand(store).join()
        said = await hand.turn(wants=[Want((LANE,), 9, limited=2)])
        assert len(said.claims) == len(said.short) == 2
        said = await hand.turn(wants=[Want((LANE,), 3)])
        assert len(said.claims) == len(said.short) == 3

    async def test_a_keyed_limit_is_scarce(self, store: Store) -> None:
        await put_in(store, *(job(buckets=[bucket("tenant", 1000, key="7")]) for _ in range(4)))
        hand = await Hand(store).join()
        said = await hand.turn(wants=[Want((LANE,), 4, limited=1)])
        assert len(said.claims) == len(said.short) == 1

    async def test_capacity_used_by_other_workers_counts(self, store: Store, second_store: Store) -> None:
        await put_in(store, *(job(buckets=[bucket("wide", 220)]) for _ in range(150)))
        other, hand = await Hand(second_store).join(), await Hand(store).join()
        assert len(await other.take(120)) == 120
        said = await hand.turn(wants=[Want((LANE,), 9, limited=1)])
        assert len(said.claims) == len(said.short) == 1

    async def test_jobs_without_limits_are_never_scarce(self, store: Store) -> None:
        await put_in(store, job(), job(buckets=[bucket("small", 5)]), job(fair=of("a")))
        hand = await Hand(store).join()
        said = await hand.turn(wants=[Want((LANE,), 9)])
        assert len(said.claims) == 3
        assert len(said.short) == 1

    async def test_a_breaker_is_plentiful_while_it_is_closed(self, store: Store, clock: MovableClock) -> None:
        await put_in(store, *(job(buckets=[guard()]) for _ in range(30)))
        hand = await Hand(store).join()
        said = await hand.turn(wants=[Want((LANE,), 9, limited=0)])
        assert len(said.claims) == 9
        assert said.short == ()
        await fail(hand, *said.claims[:3])
        clock.advance("30s")
        said = await hand.turn(wants=[Want((LANE,), 9, limited=0)])
        assert said.claims == ()
        said = await hand.turn(wants=[Want((LANE,), 9, limited=1)])
        assert len(said.claims) == len(said.short) == 1

    async def test_scarce_jobs_with_fair_keys_count(self, store: Store) -> None:
        kinds = [job(buckets=[bucket("small", 5)]), job(fair=of("a"), buckets=[bucket("few", 5)]), job(fair=of("b"))]
        await put_in(store, *kinds)
        hand = await Hand(store).join()
        said = await hand.turn(wants=[Want((LANE,), 9, limited=1)])
        assert sorted(ids(said.claims)) == sorted([kinds[0].id, kinds[2].id])
        assert list(said.short) == [kinds[0].id]

    async def test_limits_of_the_queue_count_too(self, store: Store) -> None:
        await one(store, job(queue="other", buckets=[bucket("wide", 1000)]))
        await store.configure_queue("q", QueueSettings(limits=(("wide", 1),)))
        await put_in(store, *(job(record=b"%d" % n) for n in range(9)))
        hand = await Hand(store).join()
        said = await hand.turn(wants=[Want((LANE,), 9, limited=1)])
        assert len(said.claims) == 9
        assert said.short == ()
