"""The server did it, the reply was lost, the call is repeated: nothing stranded, nothing doubled.

Each call goes over a wire that drops one reply. The driver must not repeat by itself (it would by default): the
server counts the scripts it ran.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import pytest
import pytest_asyncio
import redis.asyncio

from mainspring.common.ids import new_id
from mainspring.errors import StoreUnavailable
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import Enqueued, JobBatch, UniqueKey
from mainspring.states import Action, State
from mainspring.stores.door import Door
from mainspring.testing import servers
from mainspring.testing.contract.hands import (
    LANE,
    Hand,
    bucket,
    ids,
    job,
    lease,
    one,
    outcomes,
    put_in,
    row,
    running,
    state,
)
from mainspring.worker.records import Beat, Turn, Want

from .conftest import MakeStore, opened
from .lossy import LossyWire

R = TypeVar("R")


@pytest_asyncio.fixture
async def wire(own_server: servers.Valkey) -> AsyncIterator[LossyWire]:
    async with LossyWire(own_server.url) as laid:
        yield laid


@pytest_asyncio.fixture
async def wired(wire: LossyWire, own_store: Door, make_store: MakeStore) -> AsyncIterator[Door]:
    """A client at the end of the wire, connected. ``own_store`` has another way to the same server."""
    async for each in opened(make_store(wire.url)):
        await each.workers()
        yield each


@pytest.fixture
def losing(wire: LossyWire, own_client: redis.asyncio.Redis) -> Callable[[Awaitable[Any]], Awaitable[None]]:
    """Make a call, lose its reply, and see that the server ran it exactly once."""

    async def scripts_run() -> int:
        stats: dict[str, dict[str, int]] = await own_client.info("commandstats")
        return sum(stats.get(name, {}).get("calls", 0) for name in ("cmdstat_evalsha", "cmdstat_eval"))

    async def lose(call: Awaitable[Any]) -> None:
        before = await scripts_run()
        wire.lose_reply()
        with pytest.raises(StoreUnavailable):
            await call
        assert wire.lost == 1
        assert await scripts_run() == before + 1

    return lose


Losing = Callable[[Awaitable[Any]], Awaitable[None]]


async def warmed(store: Door) -> None:
    """All scripts loaded, so that a call is one EVALSHA."""
    hand = Hand(store)
    first = job(queue="warm")
    await put_in(store, first)
    await put_in(store, first, job(queue="warm"))
    await hand.join()
    claim, other = await hand.take(2, "warm/any")
    await hand.succeed(claim)
    await hand.succeed(other)
    await store.promote()
    await store.rescue("nobody", 1, Outcome.LOST)
    await store.retire(hand.name, Outcome.INTERRUPTED)
    await store.act(Action.CANCEL, Query(ids=(claim.id,)))


async def test_enqueue_with_a_lost_reply_makes_one_job(own_store: Door, wired: Door, losing: Losing) -> None:
    await warmed(own_store)
    batch = JobBatch(id=new_id().bytes, jobs=(job(), job()))
    await losing(wired.enqueue(batch))
    again = JobBatch(id=batch.id, jobs=batch.jobs, retry=True)
    assert await wired.enqueue(again) == [Enqueued(each.id, False) for each in batch.jobs]
    hand = await Hand(own_store).join()
    assert ids(await hand.take(5)) == ids(batch.jobs)


async def test_enqueue_with_a_lost_reply_whose_job_finished_runs_once(
    own_store: Door, wired: Door, losing: Losing
) -> None:
    """The job is claimed and finished before the repeat arrives."""
    await warmed(own_store)
    made = job()
    await losing(wired.enqueue(JobBatch(id=new_id().bytes, jobs=(made,))))
    hand = await Hand(own_store).join()
    await hand.succeed(await hand.take_one())
    assert await put_in(wired, made, retry=True) == [Enqueued(made.id, False)]
    assert await hand.take(5) == ()
    assert await state(own_store, made) == State.SUCCEEDED


@pytest.mark.parametrize("ended", [False, True])
async def test_enqueue_whose_first_try_arrives_after_its_retry_makes_one_job(
    store: Door, second: Door, ended: bool
) -> None:
    """The network delayed it: by now the job waits, or has ended."""
    jobs = job(), job(delay=10**9), job(unique=UniqueKey(b"k" * 16))
    batch = JobBatch(id=new_id().bytes, jobs=jobs)
    assert all(each.created for each in await second.enqueue(JobBatch(id=batch.id, jobs=jobs, retry=True)))
    hand = await Hand(second).join()
    if ended:
        await hand.succeed(*await hand.take(5))
    for late in (second.enqueue(batch), asyncio.to_thread(second.enqueue_now, batch)):
        assert await late == [Enqueued(each.id, False) for each in jobs]
    assert len(await hand.take(5)) == (0 if ended else 2)


async def test_blocking_enqueue_with_a_lost_reply_makes_one_job(own_store: Door, wired: Door, losing: Losing) -> None:
    await warmed(own_store)
    made = job()
    await asyncio.to_thread(wired.enqueue_now, JobBatch(id=new_id().bytes, jobs=()))
    batch = JobBatch(id=new_id().bytes, jobs=(made,), retry=True)
    await losing(asyncio.to_thread(wired.enqueue_now, batch))
    assert await asyncio.to_thread(wired.enqueue_now, batch) == [Enqueued(made.id, False)]
    hand = await Hand(own_store).join()
    assert ids(await hand.take(5)) == [made.id]


async def test_turn_with_a_lost_reply_gets_the_same_claims(own_store: Door, wired: Door, losing: Losing) -> None:
    """No other job is running under the worker."""
    await warmed(own_store)
    gate = bucket("gate", 2)
    await put_in(own_store, *(job(buckets=[gate]) for _ in range(5)))
    hand = await Hand(wired).join()
    turn = Turn(worker=hand.name, number=1, seen=0, wants=(Want((LANE,), 5),))
    await losing(wired.turn(turn))
    held = (await wired.turn(turn)).claims
    assert len(held) == 2
    counts = await own_store.count(Query.everything())
    assert (counts[State.RUNNING], counts[State.READY]) == (2, 3)
    following = Turn(worker=hand.name, number=2, seen=1, acks=tuple(Ack.succeeded(lease(each)) for each in held))
    assert not (await wired.turn(following)).stale


async def test_turn_with_a_lost_reply_followed_by_the_next_turn(own_store: Door, wired: Door, losing: Losing) -> None:
    """The worker continues with the next number: the reply has the claims that it missed."""
    await warmed(own_store)
    await put_in(own_store, job(), job(), job())
    hand = await Hand(wired).join()
    await losing(wired.turn(Turn(worker=hand.name, number=1, seen=0, wants=(Want((LANE,), 2),))))
    said = await wired.turn(Turn(worker=hand.name, number=2, seen=0))
    assert len(said.claims) == 2
    assert {claim.turn for claim in said.claims} == {1}


@pytest.mark.parametrize("end", ["succeeded", "failed", "snoozed", "interrupted", "cancelled", "crashed"])
async def test_ack_with_a_lost_reply_counts_once(own_store: Door, wired: Door, losing: Losing, end: str) -> None:
    await warmed(own_store)
    hand, claim = await running(own_store)
    child = await one(own_store, job(after=[job(id=claim.id)]))
    held = lease(claim)
    ack = {
        "succeeded": Ack.succeeded(held, b"1"),
        "failed": Ack.failed(held, b"{}", retry_in=1),
        "snoozed": Ack.snoozed(held, delay=1),
        "interrupted": Ack.interrupted(held),
        "cancelled": Ack.cancelled(held),
        "crashed": Ack.crashed(held, b"{}"),
    }[end]
    turn = Turn(worker=hand.name, number=2, seen=1, acks=(ack,))
    await losing(wired.turn(turn))
    before = await row(own_store, claim), await row(own_store, child), await own_store.attempts(claim.id)
    assert (await wired.turn(turn)).already == (held,)
    assert (await row(own_store, claim), await row(own_store, child), await own_store.attempts(claim.id)) == before


async def test_beat_with_a_lost_reply_counts_once(own_store: Door, wired: Door, losing: Losing) -> None:
    await warmed(own_store)
    hand = Hand(own_store)
    register = [Beat(hand.name, hand.registration)]
    await losing(wired.beat(register))
    (said,) = await wired.beat(register)
    assert said.alive
    assert [each.id for each in await own_store.workers()] == [hand.name]


async def test_rescue_with_a_lost_reply_takes_nothing_twice(own_store: Door, wired: Door, losing: Losing) -> None:
    """The job was charged once."""
    await warmed(own_store)
    hand, claim = await running(own_store)
    await losing(wired.rescue(hand.name, hand.beats, Outcome.CRASHED))
    assert not (await wired.rescue(hand.name, hand.beats, Outcome.CRASHED)).taken
    found = await row(own_store, claim)
    assert (found.state, found.crashes, found.attempt) == (State.READY, 1, 0)
    assert await outcomes(own_store, claim) == [Outcome.CRASHED]
    heir = await Hand(own_store).join()
    assert ids(await heir.take(5, f"{claim.queue}/any")) == [claim.id]


async def test_retire_with_a_lost_reply_can_be_repeated(own_store: Door, wired: Door, losing: Losing) -> None:
    await warmed(own_store)
    hand, claim = await running(own_store)
    await losing(wired.retire(hand.name, Outcome.INTERRUPTED))
    assert not (await wired.retire(hand.name, Outcome.INTERRUPTED)).taken
    heir = await Hand(own_store).join()
    assert ids(await heir.take(5, f"{claim.queue}/any")) == [claim.id]


async def test_promote_with_a_lost_reply_can_be_repeated(own_store: Door, wired: Door, losing: Losing) -> None:
    await warmed(own_store)
    hand, claim = await running(own_store)
    await hand.turn(Ack.failed(lease(claim), b"{}", retry_in=0))
    await losing(wired.promote())
    assert (await wired.promote()).promoted == 0
    assert ids(await hand.take(5, f"{claim.queue}/any")) == [claim.id]


async def test_cancel_with_a_lost_reply_can_be_repeated(own_store: Door, wired: Door, losing: Losing) -> None:
    await warmed(own_store)
    made = await one(own_store)
    await losing(wired.act(Action.CANCEL, Query(ids=(made.id,))))
    assert (await wired.act(Action.CANCEL, Query(ids=(made.id,)))).refused == ((made.id, State.CANCELLED),)


async def test_a_cancelled_call_does_not_answer_the_next_one(own_server: servers.Valkey, own_store: Door) -> None:
    """The late reply of a call past its deadline is never read as the reply of another."""
    hurried = Door(own_store.inner, deadline=0.2)
    own_server.freeze()
    try:
        with pytest.raises(StoreUnavailable):
            await hurried.enqueue(JobBatch(id=new_id().bytes, jobs=(job(), job(), job())))
    finally:
        own_server.thaw()
    assert await own_store.workers() == []
