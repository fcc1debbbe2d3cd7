"""Claims ahead of a free slot: only of jobs without limits, and of jobs whose limits are all plentiful."""

from __future__ import annotations

import pytest

from mainspring.common.clock import MovableClock
from mainspring.limits.records import PLENTIFUL, Bucket
from mainspring.queues.records import QueueSettings
from mainspring.stores.base import Store
from mainspring.testing.contract.breakers.failures import fail, guard
from mainspring.testing.contract.fair_keys.shares import of
from mainspring.testing.contract.hands import LANE, SECOND, Hand, bucket, ids, job, one, put_in
from mainspring.worker.records import Want

__all__ = ["TestClaimsAhead"]


def ahead(n: int) -> list[Want]:
    return [Want((LANE,), n, ahead=True)]


def now_and_ahead(now: int, n: int) -> list[Want]:
    return [Want((LANE,), now), *ahead(n)]


@pytest.mark.asyncio
class TestClaimsAhead:
    async def test_jobs_of_a_plentiful_limit_are_claimed_ahead_until_half_is_left(self, store: Store) -> None:
        jobs = [job(buckets=[bucket("wide", 220)]) for _ in range(150)]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        said = await hand.turn(wants=ahead(150))
        assert ids(said.claims) == ids(jobs[:110])
        assert said.passed
        said = await hand.turn(wants=now_and_ahead(3, 9))
        assert ids(said.claims) == ids(jobs[110:113])
        assert said.passed

    async def test_claims_of_the_same_turn_count(self, store: Store) -> None:
        jobs = [job(buckets=[bucket("wide", 220)]) for _ in range(150)]
        await put_in(store, *jobs)
        said = await (await Hand(store).join()).turn(wants=now_and_ahead(20, 100))
        assert ids(said.claims) == ids(jobs[:110])
        assert said.passed

    async def test_the_last_hundred_are_never_claimed_ahead(self, store: Store) -> None:
        jobs = [job(buckets=[bucket("wide", PLENTIFUL + 5)]) for _ in range(9)]
        await put_in(store, *jobs)
        said = await (await Hand(store).join()).turn(wants=ahead(9))
        assert ids(said.claims) == ids(jobs[:5])

    @pytest.mark.parametrize(("costs", "n"), [((4,) * 6, 6), ((1, 40) * 3, 5)], ids=["alike", "not alike"])
    async def test_costs_of_several_claims_add_up(self, store: Store, costs: tuple[int, ...], n: int) -> None:
        buckets = [bucket("wide", 100, per=SECOND, cost=cost) for cost in costs]
        jobs = [job(buckets=[each]) for each in buckets]
        await put_in(store, *jobs)
        assert ids(await (await Hand(store).join()).take(6)) == ids(jobs[:n])
        (found,) = await store.buckets(buckets[:1])
        assert found.used == sum(costs[:n])

    @pytest.mark.parametrize(
        "needs_slot",
        [
            bucket("small", PLENTIFUL),
            bucket("calls", 100_000, per=SECOND),
            bucket("calls", 100_000, per=SECOND, burst=100),
            bucket("tenant", 1000, key="7"),
        ],
        ids=["small", "sliding rate", "smooth rate", "keyed"],
    )
    @pytest.mark.parametrize("plain", [0, 1, 9], ids=["alone", "beside a job without limits", "beside many"])
    async def test_a_job_of_any_other_limit_needs_a_free_slot(
        self, store: Store, needs_slot: Bucket, plain: int
    ) -> None:
        """A start of a rate counts at its claim: a job that waits for a slot would start in another window."""
        limited, others = [job(buckets=[needs_slot]) for _ in range(5)], [job() for _ in range(plain)]
        await put_in(store, *limited, *others)
        hand = await Hand(store).join()
        said = await hand.turn(wants=ahead(20))
        assert ids(said.claims) == ids(others)
        assert said.passed
        said = await hand.turn(wants=now_and_ahead(5, 5))
        assert ids(said.claims) == ids(limited)
        assert not said.passed

    async def test_claims_come_in_the_order_of_the_wants(self, store: Store) -> None:
        """So the worker knows which claims were made for its free slots."""
        first, second = job(), job(buckets=[bucket("small", 5)])
        urgent = [job(priority=9 - n) for n in range(3)]
        await put_in(store, first, second)
        await put_in(store, *(job(queue="other") for _ in range(2)))
        hand = await Hand(store).join()
        said = await hand.turn(
            wants=[Want(("other/any",), 1), Want((LANE,), 1), Want(("other/any", LANE), 5, ahead=True)]
        )
        assert [claim.queue for claim in said.claims] == ["other", "q", "other"]
        assert said.passed
        await put_in(store, *urgent)
        said = await hand.turn(wants=now_and_ahead(2, 9))
        assert ids(said.claims) == ids(urgent)

    async def test_a_job_with_one_limit_that_is_not_plentiful(self, store: Store) -> None:
        wide, small = bucket("wide", 1000), bucket("small", 5)
        both, one_limit = [job(buckets=[wide, small]) for _ in range(4)], [job(buckets=[wide]) for _ in range(4)]
        await put_in(store, *both, *one_limit)
        said = await (await Hand(store).join()).turn(wants=ahead(8))
        assert ids(said.claims) == ids(one_limit)
        assert said.passed

    async def test_capacity_used_by_other_workers_counts(self, store: Store, second_store: Store) -> None:
        await put_in(store, *(job(buckets=[bucket("wide", 220)]) for _ in range(150)))
        other, hand = await Hand(second_store).join(), await Hand(store).join()
        assert len(await other.take(120)) == 120
        said = await hand.turn(wants=ahead(9))
        assert said.claims == ()
        assert said.passed

    @pytest.mark.parametrize("key", ["", "7"], ids=["unkeyed", "keyed"])
    async def test_jobs_without_capacity_are_not_passed_over(self, store: Store, key: str) -> None:
        """A free slot does not help them, so the worker need not keep one free."""
        await put_in(store, *(job(buckets=[bucket("small", 5, key=key)]) for _ in range(9)), *(job() for _ in range(9)))
        hand = await Hand(store).join()
        said = await hand.turn(wants=[Want((LANE,), 7)])
        assert len(said.claims) == 7
        said = await hand.turn(wants=ahead(3))
        assert len(said.claims) == 3
        assert not said.passed

    @pytest.mark.parametrize("wide", [False, True], ids=["plain", "limited"])
    async def test_jobs_for_free_slots_come_before_jobs_ahead(self, store: Store, wide: bool) -> None:
        buckets = [bucket("wide", 1000)] if wide else []
        jobs = [job(buckets=buckets) for _ in range(30)]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        assert ids((await hand.turn(wants=now_and_ahead(4, 10))).claims) == ids(jobs[:14])
        assert ids((await hand.turn(wants=now_and_ahead(16, 9))).claims) == ids(jobs[14:])
        urgent = [job(buckets=buckets, priority=n % 3) for n in range(9)]
        await put_in(store, *urgent)
        said = await hand.turn(wants=now_and_ahead(2, 9))
        assert ids(said.claims) == ids(urgent[n] for n in (2, 5, 8, 1, 4, 7, 0, 3, 6))

    async def test_large_records_end_a_turn_also_among_jobs_ahead(self, store: Store) -> None:
        jobs = [job(record=bytes(400_000)) for _ in range(9)]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        found: list[bytes] = []
        for _ in jobs:
            said = await hand.turn(wants=now_and_ahead(1, 9))
            found += ids(said.claims)
            if not said.more:
                break
        assert found == ids(jobs)

    async def test_jobs_without_limits_are_claimed_ahead(self, store: Store) -> None:
        jobs = [job(), job(fair=of("a")), job(priority=3)]
        await put_in(store, *jobs)
        said = await (await Hand(store).join()).turn(wants=ahead(9))
        assert sorted(ids(said.claims)) == sorted(ids(jobs))
        assert not said.passed

    async def test_a_breaker_is_plentiful_while_it_is_closed(self, store: Store, clock: MovableClock) -> None:
        await put_in(store, *(job(buckets=[guard()]) for _ in range(30)))
        hand = await Hand(store).join()
        said = await hand.turn(wants=ahead(9))
        assert len(said.claims) == 9
        assert not said.passed
        await fail(hand, *said.claims[:3])
        said = await hand.turn(wants=ahead(9))
        assert said.claims == ()
        assert not said.passed
        clock.advance("30s")
        said = await hand.turn(wants=ahead(9))
        assert said.claims == ()
        assert said.passed
        said = await hand.turn(wants=now_and_ahead(1, 9))
        assert len(said.claims) == 1

    async def test_limited_jobs_with_fair_keys_need_a_free_slot(self, store: Store) -> None:
        limited, plain = job(fair=of("a"), buckets=[bucket("wide", 5000)]), job(fair=of("b"))
        await put_in(store, limited, plain)
        hand = await Hand(store).join()
        said = await hand.turn(wants=ahead(9))
        assert ids(said.claims) == [plain.id]
        assert said.passed
        assert ids((await hand.turn(wants=now_and_ahead(1, 9))).claims) == [limited.id]

    async def test_limits_of_the_queue_count_too(self, store: Store) -> None:
        await one(store, job(queue="other", buckets=[bucket("wide", 1000)]))
        await store.configure_queue("q", QueueSettings(limits=(("wide", 1),)))
        await put_in(store, *(job(record=b"%d" % n) for n in range(9)))
        said = await (await Hand(store).join()).turn(wants=ahead(9))
        assert len(said.claims) == 9
        assert not said.passed
