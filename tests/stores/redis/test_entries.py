"""Lists, indexes and keys: what a claim costs, what is skipped, what is left behind."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
import redis.asyncio

from mainspring.clock import MovableClock, to_datetime
from mainspring.ids import new_ids
from mainspring.outcomes import Ack, Outcome
from mainspring.query import Query
from mainspring.records import Bucket, Enqueued, Want
from mainspring.states import Action, Reason, State
from mainspring.stores.door import Door
from mainspring.stores.redis import RedisStore
from mainspring.stores.redis.keys import CATALOGUE, tag
from mainspring.testing.contract.hands import LANE, Hand, ending, ids, ignoring, job, lease, one, put_in, running

MANY = 100_000


async def commands(client: redis.asyncio.Redis) -> Counter[str]:
    """How often each command ran so far, scripts' own commands included."""
    stats: dict[str, dict[str, int]] = await client.info("commandstats")
    return Counter({name: each["calls"] for name, each in stats.items() if name != "cmdstat_info"})


async def cost_of_a_round(client: redis.asyncio.Redis, hand: Hand) -> Counter[str]:
    """What one claim and one ack take."""
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
    first, second = job(), job()
    await put_in(store, first, second)
    await store.act(Action.CANCEL, Query(ids=(first.id,)))
    hand = await Hand(store).join()
    assert ids(await hand.take(5)) == [second.id]


async def test_thousands_of_cancelled_entries_are_dropped_a_slice_at_a_time(store: Door) -> None:
    """A turn looks at a bounded number; the next goes on where it stopped, and none is met twice."""
    for _ in range(3):
        await put_in(store, *(job(id=each.bytes) for each in new_ids(1000)))
    while (await store.act(Action.CANCEL, Query.where(states=["ready"]), limit=1000)).more:
        pass
    fresh = await one(store)
    hand = await Hand(store).join()
    got: list[bytes] = []
    for _ in range(5):
        got += ids(await hand.take(100))
    assert got == [fresh.id]


async def test_a_job_that_went_round_has_one_good_entry(store: Door) -> None:
    """Interrupted and taken again many times: old entries never hand it out twice."""
    made = await one(store)
    hand = await Hand(store).join()
    for _ in range(5):
        await hand.turn(Ack.interrupted(lease(await hand.take_one())))
    assert ids(await hand.take(5)) == [made.id]


async def test_an_entry_with_an_old_seq_is_worth_nothing(store: Door, namespace: str, redis_url: str) -> None:
    """What a job left in a list when it went another way: neither its place in the line nor a second run."""
    first, second = job(), job()
    await put_in(store, first, second)
    async with redis.asyncio.Redis.from_url(redis_url, protocol=2) as client:
        await client.lpush(f"{tag(namespace)}ready:0:{LANE}", second.id + b":0")
    hand = await Hand(store).join()
    assert ids(await hand.take(1)) == [first.id]
    assert ids(await hand.take(5)) == [second.id]


async def test_an_index_that_names_an_empty_list_heals(store: Door, namespace: str, redis_url: str) -> None:
    """A script that waited for such a list to give something would stop the whole server."""
    made = await one(store)
    async with redis.asyncio.Redis.from_url(redis_url, protocol=2) as client:
        heads = f"{tag(namespace)}heads:{LANE}"
        await client.zadd(heads, {f"100:{LANE}": 0, f"0:{LANE}": 1})
        hand = await Hand(store).join()
        assert ids(await hand.take(5, oldest=1)) == [made.id]
        assert await client.exists(heads) == 0


async def test_jobs_that_expired_return_to_their_places_when_the_clock_goes_back(
    redis_url: str, namespace: str
) -> None:
    """A failover to a server with a slower clock: what was passed over as expired is in the line again, in order."""
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
    """One is freed and then expired in the same step, one goes with its parent; neither is left in the line."""
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


async def test_full_lanes_hide_nobody_behind_them(store: Door) -> None:
    """Thousands of lanes without room stand before one that has it."""
    gate, open_gate = Bucket("gate", 1), Bucket("open", 1)
    lanes = [job(id=each.bytes, buckets=[gate, Bucket(f"b{n}", 1)]) for n, each in enumerate(new_ids(1000))]
    await put_in(store, *lanes)
    free = await one(store, job(buckets=[open_gate]))
    hand = await Hand(store).join()
    assert ids(await hand.take(5)) == ids([lanes[0], free])


async def test_a_limited_suspect_hides_no_other(store: Door) -> None:
    """Suspects with different limits stand in different lanes: a full bucket stops its own only."""
    gate = Bucket("gate", 1)
    held, stuck, other = job(buckets=[gate], priority=9), job(buckets=[gate]), job()
    await put_in(store, stuck, other)
    dead = await Hand(store).join()
    assert len(await dead.take(2)) == 2
    await dead.crash()
    await put_in(store, held)
    hand = await Hand(store).join()
    assert ids(await hand.take(1, suspects=0)) == [held.id]
    assert ids(await hand.take(5, suspects=5)) == [other.id]


async def test_every_key_is_in_the_catalogue(store: Door, namespace: str, redis_url: str) -> None:
    """After a bit of everything: known names, right types, one hash tag, no time to live."""
    gate = Bucket("gate", 2)
    parent, child = job(buckets=[gate]), job()
    await put_in(store, parent, job(after=[parent]), job(delay=10**9, expires_in=10**10), child, job(priority=5))
    hand, dead = await Hand(store).join(), await Hand(store).join()
    first, second = await hand.take(2)
    await dead.take(1)
    await dead.crash()
    await hand.turn(Ack.succeeded(lease(first), b"1"))
    await hand.turn(Ack.dead(lease(second), b"{}", Reason.NOT_RETRYABLE))
    third = await hand.take(1, suspects=1)
    await store.act(Action.CANCEL, Query(ids=(third[0].id,)))
    known = {key.name: key for key in CATALOGUE}
    async with redis.asyncio.Redis.from_url(redis_url, protocol=2) as client:
        found = [key async for key in client.scan_iter(match=f"{tag(namespace)}*", count=1000)]
        for key in found:
            name, _, rest = key.removeprefix(tag(namespace).encode()).decode(errors="replace").partition(":")
            assert bool(rest) is bool(known[name].per), name
            assert await client.type(key) == known[name].type.encode(), name
            assert await client.ttl(key) == -1
        assert len({key.partition(b":")[0] for key in found}) == 1
    assert len(found) > 10


async def test_nothing_is_left_of_live_work_when_all_has_ended(store: Door, namespace: str, redis_url: str) -> None:
    """Indexes, lists, buckets, edges and workers' keys go with their last member."""
    gate = Bucket("gate", 5)
    parent = job(buckets=[gate], expires_in=10**9)
    await put_in(store, parent, job(after=[parent], priority=3), job(delay=10**9), job(buckets=[gate]))
    await store.act(Action.CANCEL, Query.where(states=["scheduled"]))
    hand = await Hand(store).join()
    while claims := await hand.take(5):
        await hand.succeed(*claims)
    await store.retire(hand.name, Outcome.INTERRUPTED)
    async with redis.asyncio.Redis.from_url(redis_url, protocol=2) as client:
        found = [key async for key in client.scan_iter(match=f"{tag(namespace)}*", count=1000)]
    left = {key.removeprefix(tag(namespace).encode()).partition(b":")[0].decode() for key in found}
    assert left == {"meta", "ids", "records", "finished", "ended", "results", "counts"}
    counts = await store.count(Query.everything())
    assert (counts[State.SUCCEEDED], counts[State.CANCELLED], sum(counts.values())) == (3, 1, 4)


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
