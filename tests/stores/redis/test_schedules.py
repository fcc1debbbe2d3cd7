"""Schedules: what jobs beside them cost, and what is stored of them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import redis.asyncio

from mainspring.common.clock import MovableClock
from mainspring.errors import StoreConflict
from mainspring.jobs.records import Retention
from mainspring.schedules.records import ScheduleRow, ScheduleRun, ScheduleSwap
from mainspring.stores.door import Door
from mainspring.stores.redis import RedisStore
from mainspring.stores.redis.driver.catalogue import tag
from mainspring.testing.contract.hands import Hand, job, put_in

COST = 54
"""Commands that the scripts of ``work`` call."""
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


async def test_the_commands_of_plain_jobs(own_store: Door, own_client: redis.asyncio.Redis) -> None:
    hand = await Hand(own_store).join()
    await work(own_store, hand)
    await spent(own_client)
    await work(own_store, hand)
    assert sum((await spent(own_client)).values()) == COST


async def test_a_swap_without_listeners_leaves_no_token(
    own_store: Door, own_client: redis.asyncio.Redis, namespace: str
) -> None:
    await own_store.swap_schedule(ScheduleSwap(name="s", rev=0, doc=b"{}"))
    assert not await own_client.exists(f"{tag(namespace)}wake:")
    listener = await own_store.listen("scheduler", [""])
    await own_store.swap_schedule(ScheduleSwap(name="other", rev=0, doc=b"{}"))
    assert await listener.wait(30)
    listener.close()


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
