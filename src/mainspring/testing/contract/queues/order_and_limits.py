"""The order of a queue, and the limits that all its jobs name."""

from __future__ import annotations

import pytest

from mainspring.common.clock import MovableClock
from mainspring.common.ids import new_id
from mainspring.jobs.lanes import limited_lane
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import FollowUp
from mainspring.limits.records import Bucket, Limit
from mainspring.queues.records import QueueSettings
from mainspring.states import Action, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import (
    ERROR,
    LANE,
    SECOND,
    Hand,
    bucket,
    ids,
    job,
    lease,
    one,
    put_in,
    row,
    running,
)

__all__ = ["TestLifo", "TestQueueLimits"]

LIFO = QueueSettings(order="lifo")
GATE = QueueSettings(limits=(("gate", 1),))


@pytest.mark.asyncio
class TestLifo:
    async def test_the_newest_comes_first(self, store: Store, second_store: Store) -> None:
        """Inside a priority; in one batch and over several."""
        await second_store.configure_queue("q", LIFO)
        first, second, high, third = job(), job(), job(priority=5), job()
        await put_in(store, first, second, high)
        await one(second_store, third)
        hand = await Hand(store).join()
        assert ids(await hand.take(9)) == ids([high, third, second, first])

    async def test_single_enqueues_are_claimed_newest_first(self, store: Store) -> None:
        await store.configure_queue("q", LIFO)
        first, second = await one(store), await one(store)
        hand = await Hand(store).join()
        assert (await hand.take_one()).id == second.id
        third = await one(store)
        assert ids(await hand.take(9)) == ids([third, first])

    async def test_other_queues_keep_their_order(self, store: Store) -> None:
        await store.configure_queue("other", LIFO)
        jobs = [await one(store) for _ in range(3)]
        hand = await Hand(store).join()
        assert ids(await hand.take(9)) == ids(jobs)

    async def test_lifo_over_all_lanes_of_the_queue(self, store: Store) -> None:
        """Kinds of slots, and jobs that a limit may hold back, with a key and without."""
        await store.configure_queue("q", LIFO)
        gate, keyed = bucket("gate", 9), bucket("tenant", 9, key="7")
        jobs = [
            await one(store, each)
            for each in (
                job(),
                job(kind="async"),
                job(buckets=[gate]),
                job(buckets=[keyed]),
                job(buckets=[gate]),
                job(),
            )
        ]
        hand = await Hand(store).join()
        assert ids(await hand.take(9, LANE, "q/async")) == ids(reversed(jobs))

    async def test_lifo_in_keyed_lanes(self, store: Store) -> None:
        """The newest job of all keys that have capacity."""
        await store.configure_queue("q", LIFO)
        keys = [bucket("tenant", 1, key=str(n % 3)) for n in range(9)]
        jobs = [await one(store, job(buckets=[each])) for each in keys]
        hand = await Hand(store).join()
        claims = await hand.take(9)
        assert ids(claims) == ids(reversed(jobs[6:]))
        await hand.succeed(claims[1])
        assert ids(await hand.take(9)) == [jobs[4].id]

    async def test_a_job_that_is_ready_again_comes_first(self, store: Store, clock: MovableClock) -> None:
        """After a retry, a hand-back, a rescue, a late start and a retry by hand: it is the newest again."""
        await store.configure_queue("q", LIFO)
        hand, claim = await running(store, job())
        late = await one(store, job(delay=SECOND))
        jobs = [await one(store), await one(store)]
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=2 * SECOND))
        clock.advance("1s")
        await store.promote()
        clock.advance("1s")
        await store.promote()
        again = await hand.take_one()
        assert again.id == claim.id
        await hand.turn(Ack.interrupted(lease(again)))
        again = await hand.take_one()
        assert again.id == claim.id
        await store.rescue(hand.name, hand.beats, Outcome.LOST)
        hand = await Hand(store).join()
        again = await hand.take_one()
        assert again.id == claim.id
        await hand.kill(again)
        await store.act(Action.RETRY, Query(ids=(claim.id,)))
        assert ids(await hand.take(9)) == [claim.id, late.id, *ids(reversed(jobs))]

    async def test_released_children_and_promoted_jobs_come_first(self, store: Store) -> None:
        await store.configure_queue("q", LIFO)
        hand, parent = await running(store, job(queue="other"))
        child = await one(store, job(after=[job(id=parent.id)]))
        later = await one(store, job(delay=SECOND))
        newest = await one(store)
        await hand.succeed(parent)
        await store.act(Action.RUN_NOW, Query(ids=(later.id,)))
        assert ids(await hand.take(9)) == ids([later, child, newest])

    async def test_priority_comes_before_lifo(self, store: Store) -> None:
        await store.configure_queue("q", LIFO)
        jobs = [await one(store, job(priority=priority)) for priority in (5, 0, 5)]
        await store.act(Action.REPRIORITISE, Query(ids=(jobs[1].id,)), priority=5)
        hand = await Hand(store).join()
        assert ids(await hand.take(9)) == ids(reversed(jobs))

    async def test_no_job_is_lost_when_the_order_changes(self, store: Store) -> None:
        """Jobs enqueued under lifo come before the jobs enqueued under fifo, and these come oldest first."""
        fifo = [await one(store), await one(store)]
        await store.configure_queue("q", LIFO)
        lifo = [await one(store), await one(store)]
        await store.configure_queue("q", None)
        last = await one(store)
        hand = await Hand(store).join()
        assert ids(await hand.take(2)) == ids(reversed(lifo))
        assert ids(await hand.take(9)) == ids([*fifo, last])

    async def test_a_repeated_turn_returns_the_same_claims(self, store: Store) -> None:
        await store.configure_queue("q", LIFO)
        jobs = [await one(store) for _ in range(3)]
        hand = await Hand(store).join()
        assert ids(await hand.take(2)) == ids([jobs[2], jobs[1]])
        assert ids((await hand.repeat()).claims) == ids([jobs[2], jobs[1]])

    async def test_lifo_of_suspects(self, store: Store) -> None:
        await store.configure_queue("q", LIFO)
        hand, claim = await running(store, job(crashes=2))
        await store.rescue(hand.name, hand.beats, Outcome.CRASHED, [0])
        hand = await Hand(store).join()
        assert (await hand.take_one()).id == claim.id

    async def test_many_lifo_jobs(self, store: Store) -> None:
        await store.configure_queue("q", LIFO)
        jobs = [job() for _ in range(300)]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        got: list[bytes] = []
        while claims := await hand.take(70):
            got += ids(claims)
        assert got == ids(reversed(jobs))


@pytest.mark.asyncio
class TestQueueLimits:
    async def test_every_job_of_the_queue_names_its_limits(self, store: Store, second_store: Store) -> None:
        """Also jobs of producers that do not know the limits, whatever other limits these jobs name."""
        await second_store.declare_limits([Limit(name="gate", size=2)])
        await second_store.configure_queue("q", GATE)
        own, keyed = bucket("own", 9), bucket("tenant", 9, key="7")
        jobs = [job(), job(buckets=[own]), job(buckets=[keyed]), job(kind="async"), job(buckets=[bucket("gate", 2)])]
        await put_in(store, *jobs)
        found = await row(store, jobs[1])
        assert {each.name for each in found.buckets} == {"gate", "own"}
        assert found.lane == limited_lane(LANE, [Bucket("gate"), own])
        assert (await row(store, jobs[2])).lane == limited_lane(LANE, [Bucket("gate"), keyed])
        assert (await row(store, jobs[4])).lane == limited_lane(LANE, [Bucket("gate")])
        hand = await Hand(store).join()
        got: list[bytes] = []
        for _ in range(3):
            claims = await hand.take(9, LANE, "q/async")
            assert len(claims) <= 2
            got += ids(claims)
            await hand.succeed(*claims)
        assert sorted(got) == sorted(ids(jobs))

    async def test_queue_limits_stay_after_a_retry(self, store: Store, clock: MovableClock) -> None:
        await store.declare_limits([Limit(name="gate", size=1)])
        await store.configure_queue("q", GATE)
        first, second = await one(store), await one(store, job(delay=SECOND))
        hand = await Hand(store).join()
        claim = await hand.take_one()
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=SECOND))
        clock.advance("1s")
        await store.promote()
        (got,) = await hand.take(9)
        assert got.id in ids([first, second])
        assert await hand.take(9) == ()

    async def test_a_queue_rate_with_a_cost(self, store: Store, clock: MovableClock) -> None:
        await store.declare_limits([Limit(name="pace", kind="rate", size=5, per=SECOND)])
        await store.configure_queue("q", QueueSettings(limits=(("pace", 2),)))
        await put_in(store, *(job() for _ in range(3)))
        hand = await Hand(store).join()
        assert len(await hand.take(9)) == 2
        clock.advance("1.1s")
        assert len(await hand.take(9)) == 1

    async def test_follow_up_jobs_name_the_limits_of_their_queue(self, store: Store) -> None:
        """And they obey the order of the queue."""
        await store.declare_limits([Limit(name="gate", size=1)])
        await store.configure_queue("q", QueueSettings(limits=(("gate", 1),), order="lifo"))
        follow = job(id=new_id().bytes[:14] + b"\0\0")
        hand, claim = await running(store, job(queue="first", follows=[FollowUp(State.SUCCEEDED, follow)]))
        older = await one(store)
        await hand.succeed(claim)
        (got,) = await hand.take(9)
        assert got.id != older.id
        assert [each.name for each in (await row(store, got)).buckets] == ["gate"]

    async def test_lifo_and_queue_limits_together(self, store: Store) -> None:
        await store.declare_limits([Limit(name="gate", size=9)])
        await store.configure_queue("q", QueueSettings(limits=(("gate", 1),), order="lifo", max_depth=9))
        jobs = [await one(store, each) for each in (job(), job(buckets=[bucket("tenant", 9, key="7")]), job())]
        hand = await Hand(store).join()
        assert ids(await hand.take(9)) == ids(reversed(jobs))
