"""The catalogue of keys: nothing is stored that it does not name, and nothing is left behind."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import redis.asyncio

from mainspring.breakers.swap import trip
from mainspring.common.ids import derived_id, new_id
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import FLOW_KEEP, AttemptReport, Edge, FollowUp, Join, LogLine, Retention, UniqueKey
from mainspring.limits.records import Limit
from mainspring.queues.records import FairKey, QueueMode, QueueSettings
from mainspring.schedules.records import ScheduleRun, ScheduleSwap
from mainspring.states import Action, Reason, State
from mainspring.stores.base import CHILDREN_AT_ONCE
from mainspring.stores.door import Door
from mainspring.stores.records import Document
from mainspring.stores.redis.driver.catalogue import CATALOGUE, tag
from mainspring.stores.redis.driver.scripts import sources
from mainspring.testing.contract.hands import ERROR, Hand, bucket, job, lease, put_in

KNOWN = {key.name: key for key in CATALOGUE}
HOUR = 3_600_000_000


@pytest_asyncio.fixture
async def client(redis_owner_url: str) -> AsyncIterator[redis.asyncio.Redis]:
    """Looks into the server itself."""
    async with redis.asyncio.Redis.from_url(redis_owner_url, protocol=2) as made:
        yield made


async def keys_of(client: redis.asyncio.Redis, namespace: str) -> list[bytes]:
    return [key async for key in client.scan_iter(match=f"{tag(namespace)}*", count=1000)]


def name_of(key: bytes, namespace: str) -> tuple[str, str]:
    name, _, rest = key.removeprefix(tag(namespace).encode()).decode(errors="replace").partition(":")
    return name, rest


async def a_bit_of_everything(store: Door) -> Hand:
    """Every kind of key at least once. Returns a worker that still holds jobs."""
    gate, own = bucket("gate", 2), new_id().bytes
    follow = FollowUp(State.SUCCEEDED, job(id=derived_id(own, b"then"), queue="then", record=b"x" * 5000))
    parent = job(id=own, buckets=[gate], marks=["red"], follows=[follow], unique=UniqueKey(b"k" * 16, window=HOUR))
    listener = await store.listen("w", ["q"])
    await put_in(store, parent, job(after=[parent]), job(delay=HOUR, expires_in=2 * HOUR), job(record=b"x" * 5000))
    await put_in(store, job(keep=HOUR), job(expires_in=0), job(), job(after=[parent]))
    await store.put_document(Document("kind", "name", 1, b"data"))
    await store.set_queue_mode(["closed"], QueueMode.PAUSED)
    await store.configure_queue("deep", QueueSettings(max_depth=9))
    await put_in(store, job(queue="deep"))
    await store.declare_limits([Limit(name="api:breaker", kind="breaker", size=1, per=HOUR, burst=1)])
    await trip(store, "api:breaker", None)
    hand, dead = await Hand(store).join(), await Hand(store).join()
    await store.lead(hand.name, ("jobs",), HOUR)
    first, second, third = await hand.take(3)
    report = AttemptReport(
        id=first.id, token=first.token, progress=b"1", logs=(LogLine(1, "INFO", "x"),), items=((1, b"x"),)
    )
    assert await store.report(hand.name, [report]) == [True]
    await dead.take(1)
    await dead.crash()
    await hand.turn(Ack.succeeded(lease(first), bytes(5000)), Ack.dead(lease(second), ERROR, Reason.NOT_RETRYABLE))
    assert await store.prune(Retention(keep=0, keep_at_least=0)) == 0
    await hand.turn(Ack.succeeded(lease(third), b"1"))
    await hand.take(1, suspects=1)
    held = await hand.take(1, "then/any")
    await store.act(Action.CANCEL, Query(ids=(held[0].id,)))
    await store.act(Action.REPRIORITISE, Query.where(states=["ready"]), priority=7)
    await put_in(store, late := job(), job(after=[late]), gone := job())
    await store.act(Action.CANCEL, Query(ids=(gone.id,)))
    await put_in(store, job(queue="gated", buckets=[gate]))
    await hand.take(1, "gated/any")
    await held_back(store, hand)
    await scheduled(store)
    await flows(store, hand)
    await put_in(store, *(job(queue="fair", fair=FairKey(key)) for key in "aab"))
    assert len(await hand.take(1, "fair/any")) == 1
    listener.close()
    return hand


async def held_back(store: Door, hand: Hand) -> None:
    """Lanes that wait for capacity and for a moment, a lane set that waits for an unkeyed limit, a holder."""
    full, slow, shut = bucket("full", 1, key="k"), bucket("slow", 1, key="k", per=HOUR), bucket("shut", 1)
    for each in (full, slow, shut):
        await put_in(store, *(job(queue="held back", buckets=[each]) for _ in range(2)))
    assert len(await hand.take(9, "held back/any")) == 3
    await put_in(store, job(queue="nobody asks", buckets=[full]))
    assert (await store.hold(b"holder", [bucket("table", 1)], HOUR, fenced=True)).ok


async def flows(store: Door, hand: Hand) -> None:
    """A flow with a dead job, a cancelled flow, and a join that has ended before all of its children are resolved."""
    roots = [job(join=Join(open=True), queue="flows") for _ in range(2)]
    for n, root in enumerate(roots):
        marks = [f"%{root.id.hex()}"]
        await put_in(store, root, *(job(before=[root], queue=f"flow {n}", marks=marks, keep=FLOW_KEEP) for _ in "ab"))
    await hand.kill(await hand.take_one("flow 0/any"))
    await store.act(Action.CANCEL, Query(ids=(roots[1].id,)))
    gate = job(join=Join(open=True), queue="flows")
    await put_in(store, gate)
    for n in (CHILDREN_AT_ONCE // 2, CHILDREN_AT_ONCE // 2, 1):
        await put_in(store, *(job(queue="released", after=[Edge(gate.id)]) for _ in range(n)))
    await store.close_join(gate.id)


async def scheduled(store: Door) -> None:
    """A schedule with a run, and a deleted schedule."""
    await store.swap_schedule(ScheduleSwap(name="stays", rev=0, doc=b"{}", look=HOUR, runs=(ScheduleRun(at=1),)))
    made = await store.swap_schedule(ScheduleSwap(name="goes", rev=0, doc=b"{}"))
    await store.swap_schedule(ScheduleSwap(name="goes", rev=made.rev, doc=None))


async def test_every_key_is_in_the_catalogue(store: Door, namespace: str, client: redis.asyncio.Redis) -> None:
    """Known names, right types, one hash tag; only keys of listeners have a time to live."""
    await a_bit_of_everything(store)
    found = await keys_of(client, namespace)
    for key in found:
        name, rest = name_of(key, namespace)
        assert bool(rest) is bool(KNOWN[name].per), name
        assert await client.type(key) == KNOWN[name].type.encode(), name
        assert (await client.ttl(key) == -1) is ("expires" not in KNOWN[name].deleted_by), name
    assert len({key.partition(b":")[0] for key in found}) == 1
    seen = {name_of(key, namespace)[0] for key in found}
    assert KNOWN.keys() - seen <= {"wake", "listeners", "recheck"}, "not shown here, so not tested"


def test_the_scripts_name_exactly_the_keys_of_the_catalogue() -> None:
    """Every key has a name in the text of a script, so a misspelt or forgotten key is found without running it."""
    texts = "".join(sources().values())
    named = set(re.findall(r"\bnamed\('(\w+)'|TAG \.\. '(\w+)'", texts))
    either = set(re.findall(r"named\([^()]*'(\w+)' or '(\w+)'", texts))
    assert {name for pair in named | either for name in pair if name} | {"meta"} == KNOWN.keys()


async def test_nothing_is_left_when_all_jobs_are_deleted(
    store: Door, namespace: str, client: redis.asyncio.Redis
) -> None:
    """What remains does not belong to jobs: schema, documents, queues, limits, breakers, rates, fencing tokens,
    schedules, dependencies, the row of the lost worker."""
    hand = await a_bit_of_everything(store)
    assert await store.release(b"holder")
    await store.retire(hand.name, Outcome.INTERRUPTED)
    while (deleted := await store.act(Action.DELETE, Query.everything())).more:
        assert not deleted.refused
    await store.promote()
    for worker in await store.workers():
        await store.retire(worker.id, Outcome.INTERRUPTED)
    left = {name_of(key, namespace)[0] for key in await keys_of(client, namespace)}
    of_limits = {"limits", "breakers", "rates", "rate_ends", "rate_starts", "fences"}
    of_schedules = {"schedules", "schedule_looks", "occurrences", "runs", "schedules_gone"}
    assert (
        left - {"wake", "listeners"} == {"meta", "documents", "queues", "workers", "worker"} | of_limits | of_schedules
    )
    assert [each.lost for each in await store.workers()] == [True]
    assert sum((await store.count(Query.everything())).values()) == 0


@pytest.mark.parametrize("action", [Action.CANCEL, Action.DELETE])
async def test_many_jobs_that_leave_together_leave_no_entries(
    store: Door, namespace: str, client: redis.asyncio.Redis, action: Action
) -> None:
    """No claim is needed to remove their entries."""
    for _ in range(3):
        await put_in(store, *(job(priority=n % 2) for n in range(300)))
    await store.act(Action.REPRIORITISE, Query.where(states=["ready"]), limit=100, priority=2)
    await store.act(action, Query.everything(), limit=1000)
    left = {name_of(key, namespace)[0] for key in await keys_of(client, namespace)}
    assert not left & {"line", "line_moved", "index"}


async def test_nothing_is_left_of_live_jobs_when_all_have_ended(
    store: Door, namespace: str, client: redis.asyncio.Redis
) -> None:
    """Indexes, lists, buckets, edges and keys of workers are removed with their last member."""
    gate, key = bucket("gate", 5), bucket("key", 1, key="k")
    parent = job(buckets=[gate], expires_in=HOUR)
    await put_in(store, parent, job(after=[parent], priority=3), job(delay=HOUR), job(buckets=[gate]))
    await put_in(store, *(job(buckets=[gate, key], priority=n) for n in range(3)), job(buckets=[bucket("shut", 1)]))
    await store.act(Action.CANCEL, Query.where(states=["scheduled"]))
    hand = await Hand(store).join()
    while claims := await hand.take(5):
        await hand.succeed(*claims)
    await store.retire(hand.name, Outcome.INTERRUPTED)
    left = {name_of(key, namespace)[0] for key in await keys_of(client, namespace)}
    assert left == {"meta", "ids", "jobs", "done", "counts", "limits"}
    counts = await store.count(Query.everything())
    assert (counts[State.SUCCEEDED], counts[State.CANCELLED], sum(counts.values())) == (7, 1, 8)
