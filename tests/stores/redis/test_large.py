"""Many jobs: one script reads a bounded number, and a walk continues where it stopped."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import redis.asyncio

from mainspring.common.clock import MovableClock
from mainspring.common.ids import new_ids
from mainspring.jobs import actions
from mainspring.jobs.outcomes import Ack
from mainspring.jobs.query import Query
from mainspring.jobs.records import Retention, UniqueKey
from mainspring.queues.records import QueueMode
from mainspring.states import Action, State
from mainspring.stores.door import Door
from mainspring.stores.redis import RedisStore
from mainspring.stores.redis.driver.catalogue import tag
from mainspring.stores.redis.driver.constants import LARGE
from mainspring.stores.redis.jobs import query as query_calls
from mainspring.testing.contract.hands import Hand, ids, job, lease, put_in, row

HOUR = 3_600_000_000
FORGET = Retention(keep=0, keep_at_least=0)


async def read(client: redis.asyncio.Redis) -> int:
    """Jobs that scripts have asked for so far, in portions."""
    return int((await client.info("commandstats")).get("cmdstat_hmget", {"calls": 0})["calls"])


class TestCursors:
    @pytest.mark.parametrize("action", [Action.CANCEL, Action.REPRIORITISE])
    async def test_an_action_continues_after_the_cursor(
        self, own_store: Door, own_client: redis.asyncio.Redis, action: Action
    ) -> None:
        cost = []
        for number in (4, 8):
            task = f"{action}-{number}"
            for _ in range(number):
                await put_in(own_store, *(job(id=each.bytes, task=task) for each in new_ids(1000)))
            before = await read(own_client)
            query = Query.where(tasks=[task], states=["ready"])
            assert await actions.act(own_store, action, query, priority=5) == number * 1000
            cost.append(await read(own_client) - before)
        assert cost == [20, 60]  # of 4,000 and 12,000 jobs each is read once, with 199 others

    async def test_a_walk_without_time_left_returns_a_cursor(
        self, store: Door, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However many jobs do not match the query."""
        meant = job(task="rare")
        await put_in(store, meant)
        for _ in range(2):
            await put_in(store, *(job(id=each.bytes) for each in new_ids(1000)))
        monkeypatch.setattr(query_calls, "TIME_LIMIT", -1.0)
        with monkeypatch.context() as patched:
            patched.setattr(query_calls.QueryWalk, "is_late", property(_late_after_one))
            query = Query.where(tasks=["rare"])
            found = await store.find(query)
            assert found.jobs == ()
            assert found.cursor is not None
            assert [each.id async for page in actions.pages(store, query) for each in page] == [meant.id]
            said = await store.act(Action.CANCEL, query)
            assert (said.done, said.more) == ((), True)
            assert await actions.act(store, Action.CANCEL, query) == 1
            (tally,) = await store.tally(Query.where(states=["ready"]), "queue")
            assert tally.count == 2000

    async def test_a_walk_by_ids_continues_after_the_cursor(self, store: Door, monkeypatch: pytest.MonkeyPatch) -> None:
        made = [job(id=each.bytes) for each in new_ids(900)]
        await put_in(store, *made)
        monkeypatch.setattr(query_calls.QueryWalk, "is_late", property(_late_after_one))
        assert await actions.act(store, Action.CANCEL, Query(ids=tuple(ids(made)))) == 900


def _late_after_one(walk: query_calls.QueryWalk) -> bool:
    return walk.left is not None and walk._went_to is not None


async def test_a_large_result_is_stored_in_its_own_hash(
    own_store: Door, own_client: redis.asyncio.Redis, namespace: str
) -> None:
    """Counts and queries do not read it; it is deleted with its job or by a retry."""
    await put_in(own_store, job(), job(unique=UniqueKey(b"k" * 16)), job())
    hand = await Hand(own_store).join()
    claims = await hand.take(3)
    small, large = b"s" * LARGE, b"x" * (LARGE + 1)
    said = zip(claims, (large, large, small), strict=True)
    await hand.turn(*(Ack.succeeded(lease(each), result) for each, result in said))
    assert [(await row(own_store, each)).result for each in claims] == [large, large, small]
    results = f"{tag(namespace)}results"
    assert await own_client.hlen(results) == 2
    assert max([len(each) for each in await own_client.hvals(f"{tag(namespace)}jobs")]) < 2 * LARGE
    await own_store.act(Action.RETRY, Query(ids=(claims[0].id,)))
    assert (await row(own_store, claims[0])).result is None
    assert await own_client.hlen(results) == 1
    await own_store.act(Action.DELETE, Query(ids=(claims[1].id,)))
    assert await own_client.exists(results) == 0


class TestWindows:
    """Ended jobs with a running unique window are not looked at by retention until the window is over."""

    async def ended(self, store: Door, number: int, window: int) -> list[bytes]:
        made = [job(unique=UniqueKey(n.to_bytes(16), window=window)) for n in range(number)]
        await put_in(store, *made)
        hand = await Hand(store).join()
        await hand.turn(*(Ack.succeeded(lease(each)) for each in await hand.take(number)))
        return ids(made)

    async def test_jobs_with_an_open_window_are_read_once(
        self, own_store: Door, own_client: redis.asyncio.Redis
    ) -> None:
        await self.ended(own_store, 1000, HOUR)
        assert await own_store.prune(FORGET) == 0
        before = await read(own_client)
        assert await own_store.prune(FORGET) == 0
        assert await read(own_client) <= before + 1  # the row of a worker

    async def test_jobs_are_pruned_when_their_window_is_over_or_taken(self, redis_url: str, namespace: str) -> None:
        clock = MovableClock()
        store = Door(RedisStore(redis_url, namespace=namespace, clock=clock))
        await store.open()
        made = await self.ended(store, 4, HOUR)
        clock.advance("1s")
        assert await store.prune(FORGET) == 0
        await store.act(Action.RETRY, Query(ids=(made[2],)))  # it is live again, and holds its key
        await store.act(Action.DELETE, Query(ids=(made[3],)))
        new = job(unique=UniqueKey((0).to_bytes(16), window=HOUR, conflict="replace"))
        await put_in(store, new)
        assert await store.prune(FORGET) == 1
        assert (await store.find(Query(ids=(made[0],)))).jobs == ()
        clock.advance("2h")
        assert await store.prune(FORGET) == 1
        left = await store.count(Query.everything())
        assert {state: n for state, n in left.items() if n} == {State.READY: 2}
        await store.close()


async def test_a_paused_queue_costs_the_others_nothing(own_store: Door, own_client: redis.asyncio.Redis) -> None:
    await own_store.set_queue_mode([f"closed{n}" for n in range(100)], QueueMode.PAUSED)
    hand = await Hand(own_store).join()
    await put_in(own_store, job(), job(marks=["x"]))
    await own_client.config_resetstat()
    await put_in(own_store, job(), job(marks=["x"]))
    await put_in(own_store, job())
    assert len(await hand.take(1)) == 1
    stats = await own_client.info("commandstats")
    assert stats["cmdstat_hgetall"]["calls"] == 1  # the orders of the worker


async def test_a_job_can_be_delayed_for_a_century(store: Door) -> None:
    made = job(run_at=int(datetime(2200, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000)
    await put_in(store, made)
    assert (await row(store, made)).due == made.run_at
