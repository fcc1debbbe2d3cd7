"""Entries of jobs that left their line without a claim."""

from __future__ import annotations

import redis.asyncio

from mainspring.common.ids import new_ids
from mainspring.jobs.outcomes import Ack
from mainspring.jobs.query import Query
from mainspring.jobs.records import UniqueKey
from mainspring.queues.records import QueueMode
from mainspring.states import Action, State
from mainspring.stores.door import Door
from mainspring.stores.redis.driver.catalogue import tag
from mainspring.testing.contract.hands import LANE, Hand, ids, job, lease, put_in
from mainspring.worker.records import Want
from tests.jobs.world import World

HOUR = 3_600_000_000


async def entries(client: redis.asyncio.Redis, namespace: str) -> int:
    return int(await client.llen(f"{tag(namespace)}line:0:{LANE}"))


class TestGaps:
    async def test_a_list_has_no_more_entries_than_jobs(
        self, own_store: Door, own_client: redis.asyncio.Redis, namespace: str
    ) -> None:
        """The job of a key is replaced again and again in a paused queue: without claims nothing grows."""
        await own_store.set_queue_mode(["q"], QueueMode.PAUSED)
        first, last = job(), job()
        await put_in(own_store, first)
        for _ in range(100):
            await put_in(own_store, job(unique=UniqueKey(b"k" * 16, conflict="replace")))
            await put_in(own_store, last)
        assert (await own_store.count(Query.everything()))[State.READY] == 3
        assert await entries(own_client, namespace) <= 3

    async def test_jobs_that_stay_keep_their_order(self, store: Door) -> None:
        """Jobs before the gaps are in the sorted set beside the list, before jobs that come later."""
        made = [job() for _ in range(60)]
        await put_in(store, *made)
        await store.act(Action.CANCEL, Query(ids=tuple(ids(made[10:50:2]))))
        late = [job() for _ in range(3)]
        await put_in(store, *late)
        await store.act(Action.DELETE, Query(ids=tuple(ids(made[3:9:2]))))
        left = made[:3] + made[4:9:2] + [made[9]] + made[11:50:2] + made[50:] + late
        hand = await Hand(store).join()
        assert ids([*await hand.take(7), *await hand.take(100)]) == ids(left)

    async def test_a_job_that_moved_and_came_back_runs_once(self, store: Door) -> None:
        made = [job() for _ in range(9)]
        await put_in(store, *made)
        for priority in (5, 0):
            await store.act(Action.REPRIORITISE, Query(ids=(made[4].id,)), priority=priority)
        await store.act(Action.CANCEL, Query(ids=tuple(ids(made[5:8]))))
        hand = await Hand(store).join()
        claims = await hand.take(20)
        assert ids(claims) == ids([*made[:5], made[8]])
        await hand.turn(*(Ack.succeeded(lease(each)) for each in claims))
        assert await hand.take(5) == ()


class TestMore:
    """A turn that stopped before it had looked at all that waits says so."""

    async def expired_before(self, store: Door, number: int) -> bytes:
        """Many expired jobs before one that is not expired."""
        for _ in range(number // 1000):
            await put_in(store, *(job(id=each.bytes, expires_in=0) for each in new_ids(1000)))
        last = job()
        await put_in(store, last)
        return last.id

    async def test_a_turn_says_more_after_many_stale_entries(self, store: Door) -> None:
        last = await self.expired_before(store, 3000)
        hand = await Hand(store).join()
        said = [await hand.turn(wants=[Want((LANE,), 1)]) for _ in range(4)]
        assert [each.more for each in said[:2]] == [True, True]
        assert not said[3].more
        assert [claim.id for each in said for claim in each.claims] == [last]

    async def test_a_turn_says_more_after_many_bytes(self, store: Door) -> None:
        """A reply must arrive in time, and a script blocks the whole server."""
        made = [job(record=bytes(400_000)) for _ in range(7)]
        await put_in(store, *made)
        hand = await Hand(store).join()
        said = [await hand.turn(wants=[Want((LANE,), 100)]) for _ in range(3)]
        assert [len(each.claims) for each in said] == [3, 3, 1]
        assert [each.more for each in said] == [True, True, False]

    async def test_the_worker_asks_again_at_once(self, redis_url: str) -> None:
        """And not at its next poll."""
        world = World(redis_url)
        await world.store.open()

        async def work() -> None: ...

        name = world.task(work)
        for _ in range(5):
            await world.put(*(world.new_job(name, expires_in=0) for _ in range(1000)))
        last = await world.enqueue(name)
        await world.worker(poll=HOUR, roles=frozenset({"worker"})).started()
        assert (await world.final(last)).state is State.SUCCEEDED
        await world.close()


async def test_a_repeated_turn_leaves_out_leases_that_the_worker_holds(store: Door) -> None:
    """The worker asks for all jobs that run under its name. The reply has the jobs that the worker does not know."""
    made = [job() for _ in range(3)]
    await put_in(store, *made)
    hand = await Hand(store).join()
    claims = await hand.take(3)
    hand.seen = 0
    said = await hand.turn(holds=claims[:2])
    assert said.claims == claims[2:]
