"""Unkeyed limits: running jobs are counted, and nothing is written for each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import redis.asyncio

from mainspring.breakers.swap import reset
from mainspring.common.clock import MovableClock
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.limits.records import Bucket, Limit
from mainspring.states import Action, State
from mainspring.stores.door import Door
from mainspring.stores.redis import RedisStore
from mainspring.stores.redis.driver.catalogue import tag
from mainspring.testing.contract.breakers.failures import NAME, failure, guard, guarded, opened
from mainspring.testing.contract.hands import ERROR, LANE, Hand, bucket, ids, job, lease, put_in, row
from mainspring.worker.records import Want

from .test_keys import client
from .test_lines import commands

__all__ = ["client"]

GATE = bucket("gate", 1000)
TWO = Limit(name=NAME, kind="breaker", size=2, per=1_000_000, burst=3)


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest_asyncio.fixture
async def timed_store(redis_url: str, namespace: str, clock: MovableClock) -> AsyncIterator[Door]:
    """Its time is that of the clock."""
    store = Door(RedisStore(redis_url, namespace=namespace, clock=clock))
    await store.open()
    yield store
    await store.close()


async def places(client: redis.asyncio.Redis, namespace: str) -> int:
    return int(await client.hget(f"{tag(namespace)}bucket_counts", "gate") or 0)


async def test_every_way_out_of_running_frees_capacity(
    store: Door, namespace: str, client: redis.asyncio.Redis
) -> None:
    hand, other, third = [await Hand(store).join() for _ in range(3)]
    await put_in(store, *(job(buckets=[GATE], marks=[str(n)] if n % 2 else []) for n in range(20)))
    await put_in(store, parent := job(buckets=[GATE], priority=9), job(after=[parent]))
    children, *claims = await hand.take(13)
    await other.take(3)
    await third.take(3)
    assert await places(client, namespace) == 19
    leases = [lease(each) for each in claims]
    await store.act(Action.CANCEL, Query(ids=(claims[0].id, claims[1].id)))
    await hand.turn(
        Ack.succeeded(lease(children), b"1"), Ack.succeeded(leases[0], b"1"), Ack.succeeded(leases[2], b"1"),
        Ack.succeeded(leases[3], b"1"), Ack.succeeded(leases[3], b"1"), Ack.failed(leases[4], ERROR, retry_in=9),
        Ack.failed(leases[5], ERROR, retry_in=0), Ack.snoozed(leases[6], delay=9), Ack.returned(leases[7]),
    )  # fmt: skip
    assert await places(client, namespace) == 11
    await hand.kill(claims[8])
    await other.crash()
    await store.retire(third.name, Outcome.INTERRUPTED)
    assert await places(client, namespace) == len((await store.find(Query.where(states=["running"]))).jobs) == 4
    assert [each.used for each in await store.buckets([GATE])] == [4]
    await hand.turn(*map(Ack.succeeded, (leases[1], *leases[9:])))
    assert (await row(store, claims[1])).state is State.CANCELLED
    assert not await client.exists(f"{tag(namespace)}bucket_counts")


async def test_bucket_rows_name_the_oldest_claims(store: Door) -> None:
    await put_in(store, *(job(buckets=[GATE, bucket("key", 99, key="k")]) for _ in range(8)), job())
    await put_in(store, *(job(buckets=[GATE]) for _ in range(8)))
    hands = [await Hand(store).join() for _ in range(3)]
    taken = [each for n in range(17) for each in ids(await hands[n % 3].take(1))]
    limited = [each for each in taken if (await row(store, each)).buckets]
    found, keyed = await store.buckets([Bucket("gate"), Bucket("key", "k")])
    assert (found.used, list(found.holders)) == (16, limited[:10])
    assert (keyed.used, list(keyed.holders)) == (8, limited[:8])


async def test_a_turn_with_many_costs_as_many_commands_as_one_with_few(
    own_store: Door, own_client: redis.asyncio.Redis
) -> None:
    rate = bucket("rate", 1_000_000, per=3_600_000_000)
    await put_in(own_store, *(job(buckets=[GATE, rate]) for _ in range(400)))
    hand = await Hand(own_store).join()
    claims = await hand.take(9)
    costs = []
    for n in (2, 2, 60, 60):
        before = await commands(own_client)
        said = await hand.turn(*(Ack.succeeded(lease(each)) for each in claims), wants=[Want((LANE,), n)])
        costs.append((await commands(own_client) - before).total())
        claims = said.claims
        assert len(claims) == n
    assert max(costs[1:4]) - min(costs[1:4]) <= 2, "places that are given back and taken again are not written"


async def test_a_long_name_of_an_unkeyed_limit_costs_no_more_commands(
    own_store: Door, own_client: redis.asyncio.Redis
) -> None:
    """A long name is shortened in the lane; the acked jobs name the limit."""
    hand = await Hand(own_store).join()
    costs = []
    for name in ("gate", "shop.warehouse.tasks.reserve_the_stock:at-once"):
        await put_in(own_store, *(job(queue=name[:4], buckets=[bucket(name, 1000)]) for _ in range(40)))
        claims = await hand.take(10, f"{name[:4]}/any")
        before = await commands(own_client)
        acks = [Ack.succeeded(lease(each)) for each in claims]
        said = await hand.turn(*acks, wants=[Want((f"{name[:4]}/any",), 10, ahead=True)])
        costs.append(await commands(own_client) - before)
        assert len(said.claims) == 10
    assert costs[0] == costs[1]


@pytest.mark.parametrize("buckets", [[], [GATE]], ids=["plain", "gated"])
async def test_one_read_claims_all_wanted_jobs_of_the_only_lane(
    own_store: Door, own_client: redis.asyncio.Redis, buckets: list[Bucket]
) -> None:
    """Each further read of a limited lane reads all its indexes."""
    hand = await Hand(own_store).join()
    await put_in(own_store, *(job(buckets=buckets) for _ in range(400)))
    await hand.take(2)
    costs = []
    for n in (2, 380):
        before = await commands(own_client)
        assert len(await hand.take(n)) == n
        costs.append(await commands(own_client) - before)
    assert costs[0] == costs[1]


async def test_a_breaker_stores_only_jobs_claimed_since_it_opened(
    timed_store: Door, clock: MovableClock, namespace: str, client: redis.asyncio.Redis
) -> None:
    key, store = f"{tag(namespace)}bucket_jobs:{NAME}", timed_store
    both = [guard(TWO), bucket("key", 9, key="k")]
    await put_in(store, *(job(queue="keyed", buckets=both) for _ in range(2)))
    hand = await opened(store, TWO)
    assert not await client.exists(key)
    clock.advance("1s")
    first, second = await hand.take(9)
    assert await client.zcard(key) == 2
    await hand.succeed(first)
    assert not await client.exists(key), "it is closed"
    await hand.turn(failure(second))
    assert len(await hand.take(2, "keyed/any")) == 2
    await hand.take(3)
    assert not await client.exists(key)


@pytest.mark.parametrize("forgotten", [True, False])
async def test_a_breaker_reset_by_hand_leaves_no_jobs_in_its_set(
    timed_store: Door, clock: MovableClock, namespace: str, client: redis.asyncio.Redis, forgotten: bool
) -> None:
    key, store = f"{tag(namespace)}bucket_jobs:{NAME}", timed_store
    hand = await opened(store, TWO)
    await guarded(store, 3, TWO)
    clock.advance("1s")
    claims = await hand.take(9)
    await (store.forget_limit(NAME) if forgotten else reset(store, NAME))
    await hand.succeed(*claims)
    assert not await client.exists(key)


async def test_each_job_of_a_lane_uses_its_own_cost(store: Door) -> None:
    costs = [1, 5, 1, 5, 5, 1, 1, 3]
    await put_in(store, *(job(buckets=[bucket("rate", 1000, cost=cost, per=3_600_000_000)]) for cost in costs))
    assert len(await (await Hand(store).join()).take(8)) == 8
    assert [each.used for each in await store.buckets([Bucket("rate")])] == [sum(costs)]


async def test_claims_follow_the_order_keys_of_all_lanes(timed_store: Door, clock: MovableClock) -> None:
    """Of several priorities and lanes, limited or not."""
    kinds = [[], [GATE], [bucket("key", 99, key="a")], [bucket("key", 99, key="b")], [], [GATE]]
    jobs = [job(buckets=kinds[n % 6], priority=n // 2 % 3) for n in range(60)]
    for each in jobs:
        await put_in(timed_store, each)
        clock.advance("7m")
    hand = await Hand(timed_store).join()
    taken = [each for _ in range(6) for each in ids(await hand.take(10))]
    assert taken == ids(jobs[n] for n in sorted(range(60), key=lambda n: 7 * n - 60 * jobs[n].priority))
