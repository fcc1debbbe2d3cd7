"""Lines and indexes: the cost of a claim, skipped entries, leftovers."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
import redis.asyncio

from mainspring.common.clock import MovableClock, to_datetime
from mainspring.common.ids import new_ids
from mainspring.jobs.outcomes import Ack
from mainspring.jobs.query import Query
from mainspring.jobs.records import Enqueued
from mainspring.states import Action, Reason, State
from mainspring.stores.door import Door
from mainspring.stores.redis import RedisStore
from mainspring.stores.redis.driver.catalogue import tag
from mainspring.stores.redis.driver.constants import LARGE
from mainspring.stores.redis.rows import moment
from mainspring.testing.contract.hands import (
    LANE,
    Hand,
    bucket,
    ending,
    ids,
    ignoring,
    job,
    lease,
    one,
    put_in,
    row,
    running,
)
from mainspring.worker.records import Want

MANY = 100_000


async def commands(client: redis.asyncio.Redis) -> Counter[str]:
    """How often each command ran so far, scripts' own commands included."""
    stats: dict[str, dict[str, int]] = await client.info("commandstats")
    return Counter({name: each["calls"] for name, each in stats.items() if name != "cmdstat_info"})


async def cost_of_a_round(client: redis.asyncio.Redis, hand: Hand) -> Counter[str]:
    """The commands of one claim and one ack."""
    before = await commands(client)
    await hand.succeed(await hand.take_one())
    return await commands(client) - before


async def test_a_claim_costs_the_same_with_100_000_queued(own_store: Door, own_client: redis.asyncio.Redis) -> None:
    hand = await Hand(own_store).join()
    await put_in(own_store, job(), job(), job())
    await cost_of_a_round(own_client, hand)  # scripts are loaded
    short = await cost_of_a_round(own_client, hand)
    for _ in range(MANY // 1000):
        await put_in(own_store, *(job(id=each.bytes) for each in new_ids(1000)))
    assert await cost_of_a_round(own_client, hand) == short
    assert short.total() < 50
    assert not {"cmdstat_keys", "cmdstat_scan", "cmdstat_hscan", "cmdstat_lrem", "cmdstat_smembers"} & set(short)


async def test_a_cancelled_entry_is_skipped(store: Door) -> None:
    """It cannot be removed from the middle of its list."""
    jobs = [job() for _ in range(5)]
    await put_in(store, *jobs)
    await store.act(Action.CANCEL, Query(ids=(jobs[2].id,)))
    hand = await Hand(store).join()
    assert ids(await hand.take(5)) == ids([*jobs[:2], *jobs[3:]])


async def test_thousands_of_cancelled_entries_do_not_slow_a_claim(store: Door) -> None:
    first = await one(store)
    for _ in range(3):
        await put_in(store, *(job(id=each.bytes, task="doomed") for each in new_ids(1000)))
    last = await one(store)
    while (await store.act(Action.CANCEL, Query.where(tasks=["doomed"]), limit=1000)).more:
        pass
    hand = await Hand(store).join()
    assert ids(await hand.take(100)) == ids([first, last])


async def test_a_job_that_became_ready_again_has_one_valid_entry(store: Door) -> None:
    """Interrupted and taken again many times: old entries never hand it out twice."""
    made = await one(store)
    hand = await Hand(store).join()
    for _ in range(5):
        await hand.turn(Ack.interrupted(lease(await hand.take_one())))
    assert ids(await hand.take(5)) == [made.id]


async def test_an_entry_with_an_old_seq_is_skipped(store: Door, namespace: str, redis_owner_url: str) -> None:
    """A stale entry gives a job neither a position nor a second run."""
    first, second = job(), job()
    await put_in(store, first, second)
    async with redis.asyncio.Redis.from_url(redis_owner_url, protocol=2) as client:
        await client.lpush(f"{tag(namespace)}line:0:{LANE}", second.id + moment(0))
    hand = await Hand(store).join()
    assert ids(await hand.take(1)) == [first.id]
    assert ids(await hand.take(5)) == [second.id]


async def test_an_index_that_names_an_empty_list_heals(store: Door, namespace: str, redis_owner_url: str) -> None:
    """A script that loops until such a list has an entry would stop the whole server."""
    made = await one(store)
    async with redis.asyncio.Redis.from_url(redis_owner_url, protocol=2) as client:
        index = f"{tag(namespace)}index:{LANE}"
        await client.zadd(index, {f"100:{LANE}": 0, f"0:{LANE}": 1})
        hand = await Hand(store).join()
        assert ids(await hand.take(5)) == [made.id]
        assert await client.exists(index) == 0


async def test_jobs_that_expired_return_to_their_positions_when_the_clock_goes_back(
    redis_url: str, namespace: str
) -> None:
    """A failover to a server with a slower clock: jobs that were skipped as expired are ready again, in order."""
    clock = MovableClock()
    start = to_datetime(clock.now_us())
    store = Door(RedisStore(redis_url, namespace=namespace, clock=clock))
    await store.open()
    jobs = [job(expires_in=seconds * 1_000_000) for seconds in (20, 10, 30, 10)]
    await put_in(store, *jobs)
    hand = await Hand(store).join()
    clock.advance("1h")
    assert await hand.take(5) == ()
    clock.set(start + timedelta(seconds=15))
    assert ids(await hand.take(1)) == [jobs[0].id]
    clock.set(start + timedelta(seconds=1))
    assert ids(await hand.take(5)) == ids(jobs[1:])
    await store.close()


async def test_a_parent_and_its_child_that_expire_together_are_counted_once_each(
    redis_url: str, namespace: str
) -> None:
    """One child is released and expires in the same step, one ends with its parent. Neither remains in a list."""
    clock = MovableClock()
    store = Door(RedisStore(redis_url, namespace=namespace, clock=clock))
    await store.open()
    parent = job(expires_in=1_000_000)
    freed = job(after=[ignoring(parent)], expires_in=1_000_000)
    taken_along = job(after=[parent], expires_in=1_000_000)
    await put_in(store, parent, freed, taken_along)
    clock.advance("2s")
    said = await store.promote()
    endings = [await ending(store, each) for each in (parent, freed, taken_along)]
    assert {state for state, _ in endings} == {State.CANCELLED}
    assert said.expired == [reason for _, reason in endings].count(Reason.EXPIRED) >= 2
    assert await (await Hand(store).join()).take(5) == ()
    await store.close()


async def test_a_repeated_enqueue_of_a_finished_job_does_not_run_it_again(store: Door) -> None:
    hand, claim = await running(store)
    await hand.succeed(claim)
    for retry in (True, False):
        assert await put_in(store, job(id=claim.id, queue=claim.queue), retry=retry) == [Enqueued(claim.id, False)]
    assert await hand.take(5, f"{claim.queue}/any") == ()


async def test_the_same_ack_twice_in_one_turn_counts_once(store: Door) -> None:
    hand, claim = await running(store)
    said = await hand.turn(*[Ack.succeeded(lease(claim), b"1")] * 2)
    assert (said.already, said.stale) == ((lease(claim),), ())
    assert (await store.count(Query.everything())) == dict.fromkeys(State, 0) | {State.SUCCEEDED: 1}


async def test_an_edge_ends_with_its_child(store: Door) -> None:
    """A new job with the same id does not wait for the parents of the deleted job."""
    old, other, new = job(queue="old"), job(queue="other"), job(queue="new")
    child = job(after=[old, other])
    await put_in(store, old, other, new, child)
    await store.act(Action.DELETE, Query(ids=(child.id,)))
    await put_in(store, job(id=child.id, after=[new]))
    hand = await Hand(store).join()
    await hand.succeed(*await hand.take(5, "old/any", "other/any"))
    found = await row(store, child)
    assert (found.state, found.deps) == (State.BLOCKED, 1)


async def test_full_lanes_hide_no_jobs_behind_them(store: Door) -> None:
    """Thousands of full lanes come before one lane with capacity."""
    gate, open_gate = bucket("gate", 1), bucket("open", 1)
    lanes = [job(id=each.bytes, buckets=[gate, bucket(f"b{n}", 1)]) for n, each in enumerate(new_ids(1000))]
    await put_in(store, *lanes)
    free = await one(store, job(buckets=[open_gate]))
    hand = await Hand(store).join()
    assert ids(await hand.take(5)) == ids([lanes[0], free])


async def test_a_limited_suspect_hides_no_other(store: Door) -> None:
    """Suspects with different limits are in different lanes: a full bucket stops only its own lane."""
    gate = bucket("gate", 1)
    held, stuck, other = job(buckets=[gate], priority=9), job(buckets=[gate]), job()
    await put_in(store, stuck, other)
    dead = await Hand(store).join()
    assert len(await dead.take(2)) == 2
    await dead.crash()
    await put_in(store, held)
    hand = await Hand(store).join()
    assert ids(await hand.take(1, suspects=0)) == [held.id]
    assert ids(await hand.take(5, suspects=5)) == [other.id]


async def test_a_job_that_moved_to_another_list_and_back_is_claimed_once(store: Door) -> None:
    """The job is in two lists of one lane. A turn that reads both claims it once, at its position."""
    first, second, third = job(), job(), job()
    await put_in(store, first, second, third)
    for priority in (5, 0, -5, 0):
        await store.act(Action.REPRIORITISE, Query(ids=(second.id,)), priority=priority)
    hand = await Hand(store).join()
    assert ids(await hand.take(9)) == ids([first, second, third])
    await hand.turn(*(Ack.interrupted(lease(claim)) for claim in (await hand.repeat()).claims))
    assert sorted(ids(await hand.take(9))) == sorted(ids([first, second, third]))
    assert await hand.take(9) == ()


async def test_positions_of_moved_jobs_merge_exactly(store: Door) -> None:
    """Whatever their lists, the order is that of a sort by priority and age."""
    jobs = [job(priority=n % 3) for n in range(60)]
    await put_in(store, *jobs)
    now = {each.id: each.priority for each in jobs}
    for n, each in enumerate(jobs[::2]):
        now[each.id] = n % 4 - 1
        await store.act(Action.REPRIORITISE, Query(ids=(each.id,)), priority=now[each.id])
    hand = await Hand(store).join()
    got = [*ids(await hand.take(7)), *ids(await hand.take(11)), *ids(await hand.take(99))]
    assert got == ids(sorted(jobs, key=lambda each: -now[each.id]))


@pytest.mark.parametrize("size", [0, LARGE, LARGE + 1, 1_000_000])
async def test_a_record_of_any_size_stays_whole(store: Door, namespace: str, redis_owner_url: str, size: int) -> None:
    """Also with a result and an error, and after a retry; a large record has its own hash and is deleted with its
    job."""
    made = await one(store, job(record=bytes(range(256)) * (size // 256) + b"x" * (size % 256)))
    hand = await Hand(store).join()
    claim = await hand.take_one()
    assert claim.record == made.record
    await hand.turn(Ack.interrupted(lease(claim)))
    claim = await hand.take_one()
    await hand.turn(Ack.succeeded(lease(claim), b"result", error=b"note"))
    found = await row(store, made)
    assert (found.record, found.result, found.error) == (made.record, b"result", b"note")
    await store.act(Action.RETRY, Query(ids=(made.id,)))
    found = await row(store, made)
    assert (found.record, found.result, found.error) == (made.record, None, None)
    await store.act(Action.DELETE, Query(ids=(made.id,)))
    async with redis.asyncio.Redis.from_url(redis_owner_url, protocol=2) as client:
        assert await client.exists(f"{tag(namespace)}records", f"{tag(namespace)}jobs") == 0


async def test_memory_of_a_stored_job(own_store: Door, own_client: redis.asyncio.Redis) -> None:
    """A queued job and one that succeeded, with a record of 100 bytes: bounded, all indexes included."""

    async def used() -> int:
        return int((await own_client.info("memory"))["used_memory"])

    hand = await Hand(own_store).join()
    before, many = await used(), 5000
    for _ in range(many // 1000):
        await put_in(own_store, *(job(id=each.bytes, record=b"x" * 100) for each in new_ids(1000)))
    queued = await used()
    assert queued - before < 600 * many
    while claims := await hand.take(1000):
        await hand.succeed(*claims)
    assert await used() - before < 750 * many


@pytest.mark.parametrize("kinds", [("any",), ("async", "any")])
async def test_a_turn_of_many_wants_merges_exactly(store: Door, kinds: tuple[str, ...]) -> None:
    """Random priorities over several lists: the order is that of a plain sort."""
    jobs = [job(kind=kinds[n % len(kinds)], priority=(n * 7) % 5 - 2) for n in range(60)]
    await put_in(store, *jobs)
    hand = await Hand(store).join()
    said = await hand.turn(wants=[Want(tuple(f"q/{kind}" for kind in kinds), 60)])
    assert ids(said.claims) == ids(sorted(jobs, key=lambda each: -each.priority))


async def test_count_and_find_agree_by_queue_and_task(store: Door) -> None:
    await put_in(store, job(queue="a", task="x"), job(queue="a", task="y"), job(queue="b", task="x"))
    query = Query.where(queues=["a"], tasks=["x"], states=["ready"])
    assert (await store.count(query))[State.READY] == len((await store.find(query)).jobs) == 1


async def test_find_pages_through_all_newest_first(store: Door) -> None:
    jobs = [job(id=each.bytes) for each in new_ids(250)]
    await put_in(store, *jobs)
    seen: list[bytes] = []
    cursor = None
    while True:
        page = await store.find(Query.everything(), limit=100, cursor=cursor)
        seen += ids(page.jobs)
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == sorted(ids(jobs), reverse=True)
