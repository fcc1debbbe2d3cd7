"""Schedules and dependencies: what they cost, and what is stored of them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import redis.asyncio

from mainspring.common.clock import MovableClock
from mainspring.errors import StoreConflict
from mainspring.jobs.records import Retention
from mainspring.schedules.records import ScheduleDependency, ScheduleRow, ScheduleRun, ScheduleSwap, part_mark
from mainspring.states import State
from mainspring.stores.door import Door
from mainspring.stores.redis import RedisStore
from mainspring.stores.redis.driver.catalogue import tag
from mainspring.stores.redis.jobs import dependencies
from mainspring.testing.contract.hands import Hand, ids, job, put_in, state

COST = 54
"""Commands that the scripts of ``work`` call; dependencies must not add any."""
LATE = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp()) * 1_000_000 + 1


async def spent(client: redis.asyncio.Redis) -> dict[str, int]:
    """How often each command was called since the last time."""
    stats: dict[str, dict[str, int]] = await client.info("commandstats")
    await client.config_resetstat()
    ours = ("info", "config|resetstat", "evalsha", "eval")
    return {name: each["calls"] for name, each in stats.items() if name.removeprefix("cmdstat_") not in ours}


async def work(store: Door, hand: Hand) -> None:
    """Plain jobs, one and several, from their enqueue to their success."""
    await put_in(store, job())
    await put_in(store, job(), job(task="other"))
    claims = await hand.take(9)
    assert len(claims) == 3
    await hand.succeed(*claims)


async def test_jobs_without_dependencies_cost_no_more_commands(
    own_store: Door, own_client: redis.asyncio.Redis
) -> None:
    """Whether or not other jobs have dependencies."""
    hand = await Hand(own_store).join()
    await work(own_store, hand)
    await spent(own_client)
    await work(own_store, hand)
    before = await spent(own_client)
    assert sum(before.values()) == COST
    await own_store.set_dependencies([ScheduleDependency("late", ("early",))])
    await put_in(own_store, job(queue="late", marks=[part_mark("late")]))
    await spent(own_client)
    await work(own_store, hand)
    assert await spent(own_client) == before


async def test_a_swap_without_listeners_leaves_no_token(
    own_store: Door, own_client: redis.asyncio.Redis, namespace: str
) -> None:
    await own_store.swap_schedule(ScheduleSwap(name="s", rev=0, doc=b"{}"))
    assert not await own_client.exists(f"{tag(namespace)}wake:")
    listener = await own_store.listen("scheduler", [""])
    await own_store.swap_schedule(ScheduleSwap(name="other", rev=0, doc=b"{}"))
    assert await listener.wait(30)
    listener.close()


async def test_removed_dependencies_release_jobs_in_slices(store: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the caller stops in between, the dependencies stay as they were."""
    monkeypatch.setattr(dependencies, "SLICE", 2)
    await store.set_dependencies([ScheduleDependency("late", ("early",))])
    made = [job(marks=[part_mark("late")]) for _ in range(7)]
    await put_in(store, *made)
    assert isinstance(store.inner, RedisStore)
    assert await store.inner._client.run("set_dependencies", dependencies._pack([("late", [])]), 2) == 1
    assert [await state(store, each) for each in made[1:3]] == [State.READY, State.BLOCKED]
    assert [(row.name, row.waiting) for row in await store.dependencies()] == [("late", tuple(ids(made[2:])))]
    await store.set_dependencies([ScheduleDependency("late", ())])
    assert await store.dependencies() == []
    assert ids(await (await Hand(store).join()).take(9)) == ids(made)


async def test_revisions_of_deleted_schedules_are_kept_for_a_day(
    redis_url: str, redis_owner_url: str, namespace: str
) -> None:
    clock = MovableClock()
    store = Door(RedisStore(redis_url, namespace=namespace, clock=clock))
    await store.open()
    made = await store.swap_schedule(ScheduleSwap(name="s", rev=0, doc=b"{}"))
    await store.swap_schedule(ScheduleSwap(name="s", rev=made.rev, doc=None))
    async with redis.asyncio.Redis.from_url(redis_owner_url, protocol=2) as client:
        for after, left in (("23h", 1), ("2h", 0)):
            clock.advance(after)
            await store.prune(Retention())
            assert await client.zcard(f"{tag(namespace)}schedules_gone") == left
    await store.close()


async def test_times_of_schedules_are_exact(store: Door) -> None:
    """Numbers in Lua are not exact beyond the year 2255."""
    runs = tuple(ScheduleRun(at=LATE + n, doc=b"%d" % n) for n in range(3))
    made = await store.swap_schedule(ScheduleSwap(name="s", rev=0, doc=b"{}", look=LATE, runs=runs))
    assert await store.schedules() == [ScheduleRow(name="s", rev=made.rev, look=LATE, doc=b"{}")]
    assert (await store.due_schedules()).next_look == LATE
    assert await store.schedule_runs("s") == list(reversed(runs))


async def test_a_run_with_an_invalid_job_id_is_refused(store: Door) -> None:
    """Jobs have 16 bytes in a stored run."""
    with pytest.raises(StoreConflict, match=r"'s'.*at 7.*16 bytes"):
        await store.swap_schedule(ScheduleSwap(name="s", rev=0, doc=b"{}", runs=(ScheduleRun(at=7, job=b"short"),)))
    assert await store.schedules() == []
