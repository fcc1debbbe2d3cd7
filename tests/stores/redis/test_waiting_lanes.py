"""Keyed lanes: they wait while their bucket is full, are opened when it may have capacity, and are never lost."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import redis.asyncio

from mainspring.common.clock import MovableClock
from mainspring.jobs.outcomes import Ack
from mainspring.jobs.query import Query
from mainspring.jobs.records import Retention
from mainspring.limits.records import Bucket, Limit
from mainspring.queues.records import QueueMode
from mainspring.states import Action
from mainspring.stores.door import Door
from mainspring.stores.redis import RedisStore
from mainspring.stores.redis.driver.catalogue import tag
from mainspring.testing.contract.hands import LANE, SECOND, Hand, bucket, ids, job, lease, one, put_in
from mainspring.worker.records import Want

from .test_lines import commands


async def everything(hand: Hand, n: int, *lanes: str) -> int:
    """How many there are to be had, in as many turns as it takes."""
    found, more = 0, True
    while more:
        said = await hand.turn(wants=[Want(lanes or (LANE,), n)])
        found, more = found + len(said.claims), said.more or bool(said.claims)
    return found


async def cost_of(client: redis.asyncio.Redis, hand: Hand, n: int) -> tuple[int, Counter[str]]:
    """How many jobs a turn gets, and what it takes."""
    before = await commands(client)
    got = len(await hand.take(n))
    return got, await commands(client) - before


class TestCosts:
    async def test_a_queue_without_limits_costs_nothing_extra(
        self, own_store: Door, own_client: redis.asyncio.Redis
    ) -> None:
        hand = await Hand(own_store).join()
        await put_in(own_store, *(job() for _ in range(5)))
        await cost_of(own_client, hand, 1)  # scripts are loaded
        _, short = await cost_of(own_client, hand, 1)
        await put_in(own_store, *(job(queue="other", buckets=[bucket("t", 1, key=str(n))]) for n in range(50)))
        assert len(await hand.take(99, "other/any")) == 50
        assert await cost_of(own_client, hand, 1) == (1, short)

    async def test_jobs_of_an_unkeyed_limit_are_claimed_in_bulk(
        self, own_store: Door, own_client: redis.asyncio.Redis
    ) -> None:
        hand = await Hand(own_store).join()
        await put_in(own_store, *(job(buckets=[bucket("bulk", 150)]) for _ in range(300)))
        got, cost = await cost_of(own_client, hand, 300)
        assert got == 150
        assert cost.total() < 60

    async def test_a_full_keyed_lane_is_read_once(self, own_store: Door, own_client: redis.asyncio.Redis) -> None:
        """Thousands of full lanes cost a turn nothing once they wait."""
        for first in range(0, 3000, 500):
            keys = range(first, first + 500)
            await put_in(own_store, *(job(buckets=[bucket("t", 1, key=str(n))]) for n in keys for _ in "ab"))
        hand = await Hand(own_store).join()
        while await hand.take(500):
            pass
        assert (await hand.turn(wants=[Want((LANE,), 9)])).more is False
        got, cost = await cost_of(own_client, hand, 9)
        assert (got, cost.total() < 30) == (0, True), cost


class TestOpening:
    async def test_freed_capacity_goes_to_a_lane_that_can_use_it(self, store: Door) -> None:
        """Many lanes of a paused queue come before it."""
        region = bucket("region", 1, key="r")
        held = job(buckets=[region])
        await put_in(store, held)
        hand = await Hand(store).join()
        claims = await hand.take(9)
        await put_in(
            store,
            *(job(queue="paused", buckets=[region, bucket("t", 1, key=str(n))], priority=9) for n in range(150)),
            good := job(buckets=[region, bucket("t", 1, key="good")]),
        )
        assert await everything(hand, 9, LANE, "paused/any") == 0
        await store.set_queue_mode(["paused"], QueueMode.PAUSED)
        await hand.succeed(*claims)
        assert ids(await hand.take(9, LANE, "paused/any")) == [good.id]

    async def test_freed_capacity_goes_on_when_its_lane_becomes_empty(self, store: Door) -> None:
        """More lanes than are opened at once, and all that were opened are cancelled."""
        region = bucket("region", 1, key="r")
        lanes = [job(buckets=[region, bucket("t", 1, key=str(n))]) for n in range(250)]
        await put_in(store, job(buckets=[region]), *lanes)
        hand = await Hand(store).join()
        claims = await hand.take(9)
        assert await everything(hand, 9) == 0
        await hand.succeed(*claims)
        await store.act(Action.CANCEL, Query(ids=tuple(ids(lanes[:249]))))
        assert ids(await hand.take(9)) == [lanes[249].id]

    async def test_freed_capacity_goes_on_when_its_lane_waits_for_another_bucket(self, store: Door) -> None:
        """More lanes than are opened at once, and all that were opened are stuck on their other key."""
        region, tenants = bucket("region", 1, key="r"), [bucket("tenant", 1, key=str(n)) for n in range(150)]
        holding = job(buckets=[region], priority=9)
        await put_in(store, holding, *(job(buckets=[tenant]) for tenant in tenants))
        hand = await Hand(store).join()
        claims = await hand.take(151)
        await put_in(store, *(job(buckets=[region, tenant], priority=9) for tenant in tenants))
        good = await one(store, job(buckets=[region, bucket("tenant", 1, key="good")]))
        assert await everything(hand, 9) == 0
        await hand.succeed(claims[0])
        assert ids(await hand.take(9)) == [good.id]

    async def test_a_job_of_higher_priority_opens_its_lane(self, store: Door) -> None:
        """Also if many lanes came before it when it began to wait."""
        region = bucket("region", 1, key="r")
        first = [job(buckets=[region, bucket("t", 1, key=str(n))]) for n in range(150)]
        await put_in(store, *first)
        hand = await Hand(store).join()
        claims = await hand.take(1)
        assert await everything(hand, 9) == 0
        await put_in(store, late := job(buckets=first[149].buckets, priority=9))
        await hand.succeed(*claims)
        assert ids(await hand.take(9)) == [late.id]

    @pytest.mark.parametrize("goes_on", [True, False])
    async def test_all_waiting_lanes_are_rechecked_when_their_limit_changes(
        self, own_store: Door, namespace: str, own_client: redis.asyncio.Redis, goes_on: bool
    ) -> None:
        """Also if the caller stops after the first step: ``promote`` continues, and is due at once."""
        await own_store.declare_limits([Limit(name="t", size=1)])
        await own_store.set_limit_size("t", 0)
        for first in range(0, 1500, 500):
            await put_in(own_store, *(job(buckets=[Bucket("t", str(n))]) for n in range(first, first + 500)))
        hand = await Hand(own_store).join()
        assert await everything(hand, 9) == 0
        if goes_on:
            await own_store.set_limit_size("t", None)
        else:
            inner = own_store.inner
            assert isinstance(inner, RedisStore)
            _, left = await inner._client.run("set_limit_size", "t", "")
            assert left > 0
            while (promoted := await own_store.promote()).next_due is not None:
                assert promoted.next_due <= promoted.now
        assert await own_client.exists(f"{tag(namespace)}recheck", f"{tag(namespace)}waiting_on") == 0
        assert await everything(hand, 500) == 1500

    async def test_a_turn_that_takes_freed_capacity_wakes_no_listener(
        self, store: Door, namespace: str, redis_owner_url: str
    ) -> None:
        """Otherwise every end of a job would wake all workers without need."""
        await put_in(store, *(job(buckets=[bucket("gate", 1)]) for _ in range(3)))
        hand = await Hand(store).join()
        (claim,) = await hand.take(9)
        listener = await store.listen("other", ["q"])
        async with redis.asyncio.Redis.from_url(redis_owner_url, protocol=2) as client:
            wake = f"{tag(namespace)}wake:q"
            await client.delete(wake)
            said = await hand.turn(Ack.succeeded(lease(claim)), wants=[Want((LANE,), 1)])
            assert (len(said.claims), await client.llen(wake)) == (1, 0)
        listener.close()


class TestMoments:
    @pytest.fixture
    def clock(self) -> MovableClock:
        return MovableClock()

    @pytest.fixture
    def timed(self, redis_url: str, namespace: str, clock: MovableClock) -> Door:
        return Door(RedisStore(redis_url, namespace=namespace, clock=clock))

    async def test_a_hold_that_ends_without_a_release_frees_its_bucket(self, timed: Door, clock: MovableClock) -> None:
        await timed.open()
        table = bucket("table", 1, key="k")
        await one(timed, job(buckets=[table]))
        taken = await timed.hold(b"holder", [table], 5 * SECOND)
        hand = await Hand(timed).join()
        assert (taken.ok, await hand.take(9)) == (True, ())
        assert (await timed.promote()).next_due == taken.until
        clock.advance("5s")
        await timed.promote()
        assert len(await hand.take(9)) == 1
        await timed.close()

    async def test_a_lane_of_a_closed_rate_gets_its_time(self, timed: Door, clock: MovableClock) -> None:
        """The lane waited without a known time, and then for the end of the window."""
        await timed.open()
        calls = bucket("calls", 1, key="k", per=10 * SECOND)
        await put_in(timed, job(buckets=[calls]), job(buckets=[calls]))
        hand = await Hand(timed).join()
        began = clock.now_us()
        assert len(await hand.take(1)) == 1
        await timed.set_limit_size("calls", 0)
        assert (await hand.turn(wants=[Want((LANE,), 1)])).next_at is None
        await timed.set_limit_size("calls", None)
        assert (await hand.turn(wants=[Want((LANE,), 1)])).next_at == began + 10 * SECOND
        assert (await timed.promote()).next_due == began + 10 * SECOND
        clock.advance("10s")
        await timed.promote()
        assert len(await hand.take(9)) == 1
        await timed.close()

    async def test_a_time_opens_all_lanes_that_wait_for_it(self, timed: Door, clock: MovableClock) -> None:
        """Also lanes without a time of their own: the order is kept."""
        await timed.open()
        calls = bucket("calls", 2, key="k", per=10 * SECOND)
        await put_in(timed, job(buckets=[calls]), job(buckets=[calls]))
        hand = await Hand(timed).join()
        assert len(await hand.take(9)) == 2
        await timed.set_limit_size("calls", 0)
        line = [job(buckets=[calls, bucket("t", 9, key=key)]) for key in "aba"]
        await put_in(timed, *line)
        assert await hand.take(9) == ()
        await timed.set_limit_size("calls", None)
        assert await hand.take(9) == ()
        clock.advance("10s")
        await timed.promote()
        assert ids(await hand.take(9)) == ids(line[:2])
        await timed.close()

    async def test_a_rate_that_is_over_leaves_no_keys(
        self, timed: Door, clock: MovableClock, namespace: str, redis_owner_url: str
    ) -> None:
        await timed.open()
        rates = [bucket("even", 5, per=SECOND, burst=2, key="k"), *(bucket("r", 9, per=SECOND, key=k) for k in "ab")]
        await put_in(timed, *(job(buckets=[each]) for each in rates))
        hand = await Hand(timed).join()
        claims = await hand.take(9)
        await hand.succeed(*claims)
        clock.advance("2s")
        assert await timed.prune(Retention()) == 0
        async with redis.asyncio.Redis.from_url(redis_owner_url, protocol=2) as client:
            left = [key async for key in client.scan_iter(match=f"{tag(namespace)}*", count=1000)]
        assert len(claims) == 3
        assert not [key for key in left if re.search(rb":(rates|rests|starts)", key)]
        await timed.close()
