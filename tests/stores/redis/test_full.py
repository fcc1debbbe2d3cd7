"""A server at its maxmemory: enqueue is refused, acks are applied, and pruning frees memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest
import pytest_asyncio
import redis.asyncio

from mainspring.common.ids import new_id
from mainspring.errors import StoreFull
from mainspring.jobs.outcomes import Ack
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobBatch, Join, Retention
from mainspring.schedules.records import ScheduleRun, ScheduleSwap
from mainspring.states import Action, State
from mainspring.stores.door import Door
from mainspring.stores.redis import RedisStore
from mainspring.testing import servers
from mainspring.testing.contract.hands import SECOND, Hand, bucket, gone, job, lease, put_in, state
from mainspring.worker.records import Claim

RECORD = bytes(20_000)
FORGET = Retention(keep=0, keep_at_least=0)


@pytest.fixture
def small_server() -> Iterator[servers.Valkey]:
    server = servers.valkey(own=True, settings={"maxmemory": "6mb"})
    assert isinstance(server, servers.Valkey)
    with server:
        yield server


@pytest_asyncio.fixture
async def small_store(small_server: servers.Valkey, namespace: str) -> AsyncIterator[Door]:
    store = Door(RedisStore(small_server.url, namespace=namespace))
    await store.open()
    yield store
    await store.close()


async def fill(store: Door) -> int:
    """Enqueue until the store refuses; how many were taken."""
    taken = 0
    while True:
        try:
            await put_in(store, job(record=RECORD))
        except StoreFull:
            return taken
        taken += 1


async def report(hand: Hand, claims: tuple[Claim, ...]) -> None:
    said = await hand.turn(*(Ack.succeeded(lease(each), b"result") for each in claims))
    assert (said.stale, said.already) == ((), ())


async def test_a_full_store_takes_acks_and_continues_when_there_is_memory(
    small_store: Door, small_server: servers.Valkey
) -> None:
    hand = await Hand(small_store).join()
    await put_in(small_store, *(job(record=RECORD) for _ in range(20)))
    running = await hand.take(20)
    waiting = await fill(small_store)
    assert waiting > 20
    with pytest.raises(StoreFull, match="maxmemory"):
        small_store.enqueue_now(JobBatch(id=new_id().bytes, jobs=(job(record=RECORD),)))

    assert await hand.beat()
    await report(hand, running)
    assert [await state(small_store, each) for each in running] == [State.SUCCEEDED] * 20

    done = 0
    while done < waiting:
        await small_store.prune(FORGET)
        claims = await hand.take(10)
        assert claims
        await report(hand, claims)
        done += len(claims)
    await small_store.prune(FORGET)
    assert not any((await small_store.count(Query.everything())).values())
    assert await fill(small_store) > 20


async def test_a_full_store_frees_capacity_and_corrects_rates(small_store: Door) -> None:
    """Jobs that wait for the capacity are claimed when there is memory again."""
    gate, key, calls = bucket("gate", 2), bucket("key", 1, key="k"), bucket("calls", 9, key="k", per=3600 * SECOND)
    await put_in(small_store, *(job(buckets=[gate, key, calls]) for _ in range(2)))
    assert (await small_store.hold(b"holder", [gate], 3600 * SECOND)).ok
    hand = await Hand(small_store).join()
    (claim,) = await hand.take(9)
    waiting = await fill(small_store)
    ack = msgspec.structs.replace(Ack.succeeded(lease(claim)), spent=(("calls", 3),))
    said = await hand.turn(ack)
    assert (said.stale, said.already) == ((), ())
    assert await small_store.release(b"holder")
    assert await small_store.set_limit_size("gate", 1)
    assert [row.used for row in await small_store.buckets([gate, key, calls])] == [0, 0, 3]
    cleared = await small_store.act(Action.DELETE, Query.where(queues=["q"], states=["ready"]), limit=waiting - 1)
    assert len(cleared.done) == waiting - 1
    assert [claim.lane for claim in await hand.take(waiting)].count(claim.lane) == 1


async def test_a_full_store_refuses_swaps_but_deletes_schedules(small_store: Door) -> None:
    made = await small_store.swap_schedule(
        ScheduleSwap(name="s", rev=0, doc=b"before", look=1, runs=(ScheduleRun(at=1),))
    )
    await fill(small_store)
    wanted = job()
    after = ScheduleSwap(name="s", rev=made.rev, doc=RECORD, runs=(ScheduleRun(at=2, job=wanted.id),))
    for batch in (None, JobBatch(id=new_id().bytes, jobs=(wanted,))):
        with pytest.raises(StoreFull):
            await small_store.swap_schedule(after, batch)
    (row,) = await small_store.schedules()
    assert (row.rev, row.doc, await small_store.schedule_runs("s")) == (made.rev, b"before", [ScheduleRun(at=1)])
    assert await gone(small_store, wanted)
    assert (await small_store.swap_schedule(ScheduleSwap(name="s", rev=made.rev, doc=None))).ok
    assert (await small_store.schedules(), (await small_store.due_schedules()).rows) == ([], ())


async def test_a_full_store_wakes_listeners(small_store: Door, small_server: servers.Valkey) -> None:
    """A wake-up token that does not fit into memory must not undo the write before it."""
    hand = await Hand(small_store).join()
    parent = job()
    await put_in(small_store, parent, job(after=[parent]))
    (running,) = await hand.take(1)
    listener = await small_store.listen("w", ["q"])
    async with redis.asyncio.Redis.from_url(small_server.url, protocol=2) as client:
        await client.config_set("maxmemory", "1mb")
        await report(hand, (running,))
        assert await listener.wait(30)
        again = await small_store.listen("w2", ["q"])
        again.close()
    listener.close()


async def test_a_full_store_ends_a_join_with_its_last_member(small_store: Door) -> None:
    join = job(join=Join())
    child = job(after=[join], queue="c")
    await put_in(small_store, join, *(job(before=[join]) for _ in range(3)), child)
    hand = await Hand(small_store).join()
    claims = await hand.take(3)
    await fill(small_store)
    with pytest.raises(StoreFull):
        await small_store.enqueue(JobBatch(id=new_id().bytes, jobs=(job(before=[join], record=RECORD),), accepted=True))
    assert (await small_store.joins([join.id]))[0].total == 3
    await report(hand, claims)
    assert await state(small_store, join) == State.SUCCEEDED
    assert await state(small_store, child) == State.READY
