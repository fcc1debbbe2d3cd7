"""Fair keys: keys with a backlog share the claims by weight, and no job waits while a slot is free."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from mainspring.common.clock import MovableClock
from mainspring.jobs.records import NewJob
from mainspring.queues.records import FairKey
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import Hand, bucket, ids, job, one, put_in
from mainspring.worker.records import Claim

__all__ = ["TestFairShares"]


def of(key: object, weight: float = 1) -> FairKey:
    return FairKey(str(key), weight)


def some(n: int, key: object, weight: float = 1, *, priority: int = 0) -> list[NewJob]:
    """Jobs whose records name their fair key."""
    return [job(fair=of(key, weight), priority=priority, record=str(key).encode()) for _ in range(n)]


def keys(claims: Sequence[Claim]) -> list[str]:
    return [claim.record.decode() for claim in claims]


async def drawn(hands: Sequence[Hand], n: int, sizes: Sequence[int]) -> list[str]:
    """The fair keys of the first ``n`` claims, made by these workers in turn, some jobs at a time."""
    found: list[str] = []
    turns = 0
    while len(found) < n:
        want = min(sizes[turns % len(sizes)], n - len(found))
        claims = await hands[turns % len(hands)].take(want)
        assert len(claims) == want, "a slot idles though there is work"
        found += keys(claims)
        turns += 1
    return found


@pytest.mark.asyncio
class TestFairShares:
    @pytest.mark.parametrize("order", ["in a row", "the other way round", "mixed", "one by one"])
    async def test_two_keys_share_equally_whatever_the_order_of_arrival(self, store: Store, order: str) -> None:
        jobs = [*some(30, "a"), *some(30, "b")]
        if order == "the other way round":
            jobs.reverse()
        elif order == "mixed":
            random.Random(7).shuffle(jobs)
        if order == "one by one":
            for each in jobs:
                await one(store, each)
        else:
            await put_in(store, *jobs)
        hand = await Hand(store).join()
        for size in (1, 1, 2, 4, 10, 2):
            got = Counter(keys(await hand.take(size)))
            assert abs(got["a"] - got["b"]) <= 1, (size, got)

    @pytest.mark.parametrize("sizes", [[1], [10], [1, 7, 50, 3]])
    async def test_weights_hold_over_two_workers(self, store: Store, second_store: Store, sizes: list[int]) -> None:
        n = 300
        weights = {"a": 5, "b": 3, "c": 2}
        for key, weight in weights.items():
            await put_in(store, *some(n, key, weight))
        hands = [await Hand(store).join(), await Hand(second_store).join()]
        found = await drawn(hands, n, sizes)
        for first in (n // 3, n):
            got = Counter(found[:first])
            for key, weight in weights.items():
                assert abs(got[key] / first - weight / 10) <= 0.05, (key, got)

    async def test_weights_hold_for_concurrent_workers(self, store: Store, second_store: Store) -> None:
        for key, weight in {"a": 5, "b": 3, "c": 2}.items():
            await put_in(store, *some(700, key, weight))
        hands = [await Hand(each).join() for each in (store, second_store, store, second_store)]
        found: list[str] = []

        async def work(hand: Hand) -> None:
            while len(found) < 1000:
                claims = await hand.take(5)
                assert len(claims) == 5, "a slot idles though there is work"
                found.extend(keys(claims))

        await asyncio.gather(*map(work, hands))
        got = Counter(found)
        for key, share in {"a": 0.5, "b": 0.3, "c": 0.2}.items():
            assert abs(got[key] / len(found) - share) <= 0.05, got

    async def test_a_single_key_gets_all_claims_in_order(self, store: Store) -> None:
        jobs = some(300, "a", 0.001)
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        assert ids(await hand.take(250)) == ids(jobs[:250])
        assert ids(await hand.take(250)) == ids(jobs[250:])

    async def test_a_new_key_does_not_wait_for_a_backlog(self, store: Store) -> None:
        await put_in(store, *some(200, "flood"))
        hand = await Hand(store).join()
        await hand.take(50)
        await put_in(store, *some(1, "new"))
        assert "new" in keys(await hand.take(2))

    async def test_an_idle_key_gets_no_credit(self, store: Store) -> None:
        await put_in(store, *some(2, "idle"), *some(400, "busy"))
        hand = await Hand(store).join()
        await hand.take(104)
        await put_in(store, *some(100, "idle"))
        got = Counter(keys(await hand.take(40)))
        assert 19 <= got["idle"] <= 21

    async def test_a_key_that_returns_often_gets_no_more_than_its_share(self, store: Store) -> None:
        """The key never has more than one job, enqueued as soon as the last was claimed, among ten keys with a
        backlog.
        """
        for n in range(10):
            await put_in(store, *some(60, n, 1 + n / 10))
        hand = await Hand(store).join()
        await put_in(store, *some(1, "eager"))
        got = 0
        for _ in range(220):
            if keys(await hand.take(1)) == ["eager"]:
                got += 1
                await put_in(store, *some(1, "eager"))
        assert 10 <= got <= 20, got

    async def test_each_of_many_keys_gets_one_claim_before_any_gets_two(self, store: Store) -> None:
        await put_in(store, *some(500, "flood"))
        for n in range(4):
            await put_in(store, *(each for m in range(100) for each in some(2, 100 * n + m)))
        hand = await Hand(store).join()
        found = await drawn([hand], 401, [64])
        assert len(set(found)) == 401

    async def test_a_flood_of_one_key_does_not_reduce_the_shares_of_others(self, store: Store) -> None:
        await put_in(store, *some(900, "flood"))
        hand = await Hand(store).join()
        waits = []
        for n in range(100):
            (made,) = some(1, f"small {n % 20}")
            await put_in(store, made)
            claims = ids(await hand.take(2))
            assert made.id in claims
            waits.append(claims.index(made.id))
        assert max(waits) <= 1

    async def test_keys_are_shared_across_kinds_of_slots_and_limits(self, store: Store) -> None:
        flood = [job(kind="async", fair=of("flood"), record=b"flood") for _ in range(100)]
        gate = bucket("gate", 1000)
        other = [job(kind="thread", fair=of("other"), buckets=[gate], record=b"other") for _ in range(100)]
        await put_in(store, *flood, *other)
        hand = await Hand(store).join()
        got = Counter(keys(await hand.take(40, "q/async", "q/thread", "q/any")))
        assert 19 <= got["other"] <= 21, got

    async def test_a_key_in_lanes_that_no_worker_asked_for_gets_no_credit(self, store: Store) -> None:
        """For example, lanes of a kind of slot that was not free."""
        await put_in(store, *(job(kind="async", fair=of("a"), record=b"a") for _ in range(100)))
        await put_in(store, *(job(kind="thread", fair=of("b"), record=b"b") for _ in range(40)))
        hand = await Hand(store).join()
        await hand.take(60, "q/async")
        assert 9 <= Counter(keys(await hand.take(20, "q/async", "q/thread")))["b"] <= 11

    async def test_queues_share_separately(self, store: Store) -> None:
        """Claims of one queue do not count for the keys of another."""
        await put_in(store, *some(50, "a"))
        hand = await Hand(store).join()
        await hand.take(50)
        for key in "ba":
            await put_in(store, *(job(queue="p", fair=of(key), record=key.encode()) for _ in range(10)))
        assert Counter(keys(await hand.take(10, "p/any"))) == {"a": 5, "b": 5}

    async def test_priority_comes_first(self, store: Store) -> None:
        high = some(10, "a", priority=5)
        await put_in(store, *some(10, "b"), *some(10, "c", priority=-5), *high)
        hand = await Hand(store).join()
        assert ids(await hand.take(10)) == ids(high)
        assert set(keys(await hand.take(10))) == {"b"}
        assert set(keys(await hand.take(10))) == {"c"}

    async def test_keys_are_shared_inside_each_priority(self, store: Store) -> None:
        for key in "ab":
            await put_in(store, *some(10, key, priority=1), *some(10, key))
        hand = await Hand(store).join()
        for _ in range(4):
            assert Counter(keys(await hand.take(10))) == {"a": 5, "b": 5}

    async def test_claims_of_higher_priorities_do_not_change_the_shares_below(self, store: Store) -> None:
        await put_in(store, *some(200, "a", 4), *some(200, "b"))
        hand = await Hand(store).join()
        found: list[str] = []
        for _ in range(50):
            await put_in(store, *some(2, "b", priority=1))
            claims = await hand.take(4)
            found += [claim.record.decode() for claim in claims if claim.priority == 0]
        assert abs(found.count("a") / len(found) - 0.8) <= 0.05, Counter(found)

    async def test_age_counts_between_priorities(self, store: Store, clock: MovableClock) -> None:
        """An hour is one point. The keys of the older jobs share the claims before those of higher priority."""
        await put_in(store, *some(6, "a"), *some(6, "b"))
        clock.advance("2h")
        await put_in(store, *some(6, "c", priority=1), *some(6, "d", priority=3))
        hand = await Hand(store).join()
        assert keys(await hand.take(6)) == ["d"] * 6
        assert Counter(keys(await hand.take(6))) == {"a": 3, "b": 3}
        assert Counter(keys(await hand.take(6))) == {"a": 3, "b": 3}
        assert keys(await hand.take(6)) == ["c"] * 6

    async def test_fair_jobs_have_the_position_of_the_next_fair_job(self, store: Store) -> None:
        first, plain, second = some(1, "a"), [job(record=b"-"), job(record=b"-")], some(1, "b")
        await put_in(store, *first, *plain, *second)
        hand = await Hand(store).join()
        assert ids(await hand.take(9)) == ids([*first, *plain, *second])
