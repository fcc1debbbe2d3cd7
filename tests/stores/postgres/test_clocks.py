"""Time and order are the store's: clocks of producers decide nothing."""

from __future__ import annotations

import asyncio
import time
from uuid import UUID

import psycopg

from mainspring.common.clock import MovableClock, to_datetime
from mainspring.common.ids import new_id
from mainspring.jobs.outcomes import Outcome
from mainspring.jobs.records import JobBatch
from mainspring.queues.records import QueueMode
from mainspring.stores.postgres import PostgresStore
from mainspring.testing.contract.hands import HOUR, LANE, SECOND, Hand, ids, job, one, put_in, row
from mainspring.worker.records import Turn, Want
from tests.stores.postgres.sides import Sides


def id_of_a_clock(off_by: int) -> bytes:
    """A UUIDv7 as made by a machine whose clock is off by this many microseconds."""
    milliseconds = (time.time_ns() // 1000 + off_by) // 1000
    return UUID(bytes=milliseconds.to_bytes(6, "big") + new_id().bytes[6:]).bytes


async def test_producers_with_clocks_an_hour_off_are_served_in_the_order_of_arrival(store: PostgresStore) -> None:
    """One producer is an hour ahead, one an hour behind: no job starves, and no job overtakes another."""
    jobs = [job(id=id_of_a_clock(off)) for off in (HOUR, -HOUR, 0, -HOUR, HOUR, 0)]
    for each in jobs:
        await one(store, each)
    hand = await Hand(store).join()
    assert ids(await hand.take(6)) == ids(jobs)


async def test_the_time_of_arrival_is_the_time_of_the_server(store: PostgresStore) -> None:
    early, late = job(id=id_of_a_clock(-HOUR)), job(id=id_of_a_clock(HOUR))
    await put_in(store, late)
    await put_in(store, early)
    first, second = await row(store, late), await row(store, early)
    assert first.enqueued <= second.enqueued
    assert first.seq < second.seq
    assert abs(first.enqueued - time.time_ns() // 1000) < HOUR // 2


async def test_tokens_grow_also_when_the_clock_steps_back(postgres_owner_url: str, namespace: str) -> None:
    clock = MovableClock()
    store = PostgresStore(postgres_owner_url, namespace=namespace, clock=clock)
    await store.open()
    await store.migrate()
    made = await one(store)
    hand = await Hand(store).join()
    claim = await hand.take_one()
    clock.set(to_datetime(claim.token - HOUR))
    await store.retire(hand.name, Outcome.INTERRUPTED)
    again = await (await Hand(store).join()).take_one()
    assert (again.id, again.token) == (made.id, claim.token + 1)
    await store.close()


async def test_the_age_of_jobs_grows_while_a_transaction_of_a_caller_is_open(
    postgres_owner_url: str, namespace: str
) -> None:
    """Its enqueue has moved the order of arrival to the time. Those of others do so after it, before its end."""
    clock = MovableClock()
    store = PostgresStore(postgres_owner_url, namespace=namespace, clock=clock)
    await store.open()
    await store.migrate()
    await one(store)
    with psycopg.connect(postgres_owner_url) as caller:
        clock.advance("1h")
        await asyncio.to_thread(store.enqueue_now, JobBatch(id=new_id().bytes, jobs=(job(),)), caller)
        clock.advance("1h")
        late = await one(store)
        assert clock.now_us() - (await row(store, late)).seq < SECOND
    await store.close()


async def test_a_job_does_not_start_before_it_was_enqueued(store: PostgresStore, sides: Sides) -> None:
    """A turn reads the time when it has locked the worker. It can still claim a job that arrives after that."""
    hand = await Hand(store).join()
    holder, side = await sides.open(), await sides.open()
    await holder.set_mode("other", QueueMode.PAUSED)  # a turn has taken its time by the moment it waits for this
    turn = Turn(worker=hand.name, number=1, seen=0, wants=(Want((LANE,), 1),))
    waiting = asyncio.create_task(side.turn(turn))
    await sides.until_blocked(holder, side, waiting)
    made = await one(store)
    await holder.commit()
    (claim,) = (await waiting).claims
    await side.commit()
    found = await row(store, made)
    assert claim.id == made.id
    assert found.started is not None
    assert found.started >= found.enqueued
