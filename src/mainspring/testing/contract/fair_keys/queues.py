"""Fair keys in queues with an order, limits or a depth, and behind breakers."""

from __future__ import annotations

from collections import Counter

import pytest

from mainspring.common.clock import MovableClock
from mainspring.jobs.lanes import fair_lane
from mainspring.jobs.outcomes import Ack
from mainspring.limits.records import Bucket, Limit
from mainspring.queues.records import QueueSettings
from mainspring.stores.base import Store
from mainspring.testing.contract.breakers.failures import fail, guard
from mainspring.testing.contract.hands import LANE, Hand, bucket, ids, job, lease, one, put_in, row
from mainspring.testing.contract.unique_keys.replace import MODES, KeyMode, latest

from .shares import keys, of, some

__all__ = ["TestFairQueues"]

LIFO = QueueSettings(order="lifo")


@pytest.mark.asyncio
class TestFairQueues:
    async def test_each_key_of_a_lifo_queue_gets_its_newest_job(self, store: Store) -> None:
        await store.configure_queue("q", LIFO)
        mine, others = some(5, "a"), some(5, "b")
        await put_in(store, *mine, *others)
        hand = await Hand(store).join()
        claims = await hand.take(4)
        assert Counter(keys(claims)) == {"a": 2, "b": 2}
        assert set(ids(claims)) == set(ids([*mine[3:], *others[3:]]))
        assert len(await hand.take(9)) == 6

    async def test_a_growing_lifo_queue_hands_out_the_newest(self, store: Store) -> None:
        await store.configure_queue("q", LIFO)
        hand = await Hand(store).join()
        first = await one(store, *some(1, "a"))
        second = await one(store, *some(1, "a"))
        assert (await hand.take_one()).id == second.id
        third = await one(store, *some(1, "a"))
        assert ids(await hand.take(9)) == ids([third, first])

    async def test_a_queue_that_becomes_lifo_keeps_its_waiting_jobs(self, store: Store) -> None:
        older = some(3, "a")
        await put_in(store, *older)
        await store.configure_queue("q", LIFO)
        newer = some(3, "a")
        await put_in(store, *newer)
        hand = await Hand(store).join()
        assert ids(await hand.take(9)) == ids([*reversed(newer), *older])

    async def test_the_limit_of_the_queue_applies(self, store: Store) -> None:
        await store.declare_limits([Limit(name="gate", size=4)])
        await store.configure_queue("q", QueueSettings(limits=(("gate", 1),)))
        await put_in(store, *some(20, "a"), *some(20, "b"))
        hand = await Hand(store).join()
        claims = await hand.take(9)
        assert Counter(keys(claims)) == {"a": 2, "b": 2}
        found = await row(store, claims[0])
        assert found.lane.startswith(f"{LANE}#**,gate=1*")
        assert [each.name for each in found.buckets] == ["gate"]
        assert await hand.take(9) == ()
        await hand.succeed(*claims[:2])
        assert len(await hand.take(9)) == 2

    async def test_queue_limits_beside_limits_of_the_jobs(self, store: Store) -> None:
        await store.declare_limits([Limit(name="gate", size=6)])
        await store.configure_queue("q", QueueSettings(limits=(("gate", 1),), order="lifo"))
        for key in "abc":
            own = bucket("tenant", 1, key=key) if key == "a" else bucket("api", 9)
            await put_in(store, *(job(fair=of(key), buckets=[own], record=key.encode()) for _ in range(9)))
        hand = await Hand(store).join()
        claims = await hand.take(20)
        assert len(claims) == 6
        assert Counter(keys(claims))["a"] == 1
        await hand.succeed(*claims)
        assert len(await hand.take(20)) == 6

    async def test_the_oldest_job_is_dropped_whatever_its_key(self, store: Store) -> None:
        await store.configure_queue("q", QueueSettings(max_depth=4, on_full="drop_oldest"))
        for key in "aaaabb":
            await one(store, *some(1, key))
        hand = await Hand(store).join()
        assert Counter(keys(await hand.take(9))) == {"a": 2, "b": 2}

    async def test_an_open_breaker_holds_back_all_keys(self, store: Store, clock: MovableClock) -> None:
        await put_in(store, *(job(fair=of(n % 3), buckets=[guard()], record=b"") for n in range(30)))
        hand = await Hand(store).join()
        await fail(hand, *await hand.take(3))
        assert await hand.take(9) == ()
        clock.advance("30s")
        (probe,) = await hand.take(9)
        await hand.succeed(probe)
        assert len(await hand.take(9)) == 9

    @pytest.mark.parametrize("mode", MODES)
    async def test_a_replaced_job_has_its_last_fair_key(self, store: Store, clock: MovableClock, mode: KeyMode) -> None:
        first = await one(store, latest(mode, fair=of("a"), record=b"a"))
        await put_in(store, *some(3, "a"), *some(3, "b"))
        await put_in(store, latest(mode, fair=of("c", 2), record=b"c"))
        assert (await row(store, first)).lane == f"{LANE}#*=2*c"
        clock.advance("1h")
        await store.promote()
        hand = await Hand(store).join()
        claims = await hand.take(9)
        assert Counter(keys(claims)) == {"a": 3, "b": 3, "c": 1}
        await hand.succeed(*claims)
        await put_in(store, *some(4, "a"), *some(4, "b"))
        assert Counter(keys(await hand.take(4))) == {"a": 2, "b": 2}

    @pytest.mark.parametrize("buckets", [[Bucket("gate")], [Bucket("1st", "7")], [Bucket("gate"), Bucket("1st", "7")]])
    async def test_a_job_that_is_handed_back_keeps_its_key(self, store: Store, buckets: list[Bucket]) -> None:
        await store.declare_limits([Limit(name="gate", size=2), Limit(name="1st", size=2)])
        await put_in(store, *some(4, "a", 5))
        hand = await Hand(store).join()
        claims = await hand.take(4)
        await hand.turn(*(Ack.returned(lease(claim), buckets=tuple(buckets)) for claim in claims))
        assert (await row(store, claims[0])).lane == fair_lane(LANE, buckets, of("a", 5))
        again = await hand.take(4)
        assert sorted(ids(again)) == sorted(ids(claims)[:2])
        await hand.succeed(*again)
        assert len(await hand.take(4)) == 2
