"""Keys under which the newest enqueue replaces the job that waits: pairs of transactions, one of them held."""

from __future__ import annotations

import asyncio

import msgspec
import psycopg
import pytest

from mainspring.jobs.outcomes import Ack
from mainspring.jobs.query import Query
from mainspring.jobs.records import Enqueued
from mainspring.states import Action, State
from mainspring.stores.postgres import PostgresStore
from mainspring.testing.contract.hands import LANE, Hand, gone, lease, one, put_in, row, running, state
from mainspring.testing.contract.unique_keys.replace import KeyMode, latest
from mainspring.worker.records import Turn, Want
from tests.stores.postgres.sides import Sides
from tests.stores.used_keys import use_keys

MODES = ["debounce", "throttle", "keep_last"]


def next_turn(hand: Hand, *acks: Ack) -> Turn:
    return Turn(worker=hand.name, number=hand.number + 1, seen=hand.seen, acks=acks, wants=(Want((LANE,), 9),))


async def ready(store: PostgresStore, made_as: KeyMode) -> bytes:
    made = await one(store, latest(made_as))
    await store.act(Action.RUN_NOW, Query(ids=(made.id,)))
    return made.id


@pytest.mark.parametrize("mode", MODES)
class TestConcurrentTransactions:
    async def test_two_producers_replace_one_after_the_other(
        self, store: PostgresStore, sides: Sides, mode: KeyMode
    ) -> None:
        """The second waits for the first, and its arguments are kept."""
        first, second = await sides.open(), await sides.open()
        one_job, other = latest(mode, record=b"1"), latest(mode, record=b"2")
        await first.enqueue(one_job, batch=b"1")
        said = await sides.behind(first, second, lambda: second.enqueue(other, batch=b"2"))
        assert said == [Enqueued(one_job.id, False)]
        assert await gone(store, other)
        assert (await row(store, one_job)).record == b"2"

    async def test_a_claim_before_the_replacement(self, store: PostgresStore, sides: Sides, mode: KeyMode) -> None:
        """The job started with its old arguments: the new arguments belong to another job."""
        old = await ready(store, mode)
        worker, producer, hand = await sides.open(), await sides.open(), await Hand(store).join()
        (claim,) = (await worker.turn(next_turn(hand))).claims
        new = latest(mode, record=b"2")
        said = await sides.behind(worker, producer, lambda: producer.enqueue(new, batch=b"2"))
        assert (claim.id, said) == (old, [Enqueued(new.id, True)])
        assert ((await row(store, old)).record, (await row(store, new)).record) == (b"{}", b"2")

    async def test_a_claim_during_the_replacement(self, store: PostgresStore, sides: Sides, mode: KeyMode) -> None:
        """It does not wait and does not get the old arguments."""
        old = await ready(store, mode)
        producer, hand = await sides.open(), await Hand(store).join()
        assert await producer.enqueue(latest(mode, record=b"2", max_wait=1), batch=b"2") == [Enqueued(old, False)]
        assert await hand.take(9) == ()
        await producer.commit()
        if await state(store, old) == State.SCHEDULED:
            await store.act(Action.RUN_NOW, Query(ids=(old,)))
        (claim,) = await hand.take(9)
        assert (claim.id, claim.record) == (old, b"2")

    async def test_a_cancel_during_the_replacement(self, store: PostgresStore, sides: Sides, mode: KeyMode) -> None:
        """The cancel waits and ends the replaced job."""
        old = await ready(store, mode)
        producer = await sides.open()
        await producer.enqueue(latest(mode, record=b"2"), batch=b"2")
        acting = asyncio.create_task(store.act(Action.CANCEL, Query(ids=(old,))))
        await sides.until_waiting(1)
        await producer.commit()
        assert (await acting).done == (old,)
        assert (await row(store, old)).record == b"2"


class TestKeepLast:
    async def test_the_running_job_ends_before_the_enqueue(self, store: PostgresStore, sides: Sides) -> None:
        hand, claim = await running(store, latest("keep_last"))
        waiting = await one(store, latest("keep_last"))
        worker, producer = await sides.open(), await sides.open()
        await worker.turn(msgspec.structs.replace(next_turn(hand, Ack.succeeded(lease(claim))), wants=()))
        new = latest("keep_last", record=b"2")
        said = await sides.behind(worker, producer, lambda: producer.enqueue(new, batch=b"2"))
        assert said == [Enqueued(waiting.id, False)]
        found = await row(store, waiting)
        assert (found.state, found.deps, found.record) == (State.READY, 0, b"2")

    async def test_the_running_job_ends_during_the_enqueue(self, store: PostgresStore, sides: Sides) -> None:
        """The ack waits for the enqueue and releases the job that it inserted."""
        hand, claim = await running(store, latest("keep_last"))
        waiting = await one(store, latest("keep_last"))
        worker, producer = await sides.open(), await sides.open()
        assert await producer.enqueue(latest("keep_last", record=b"2"), batch=b"2") == [Enqueued(waiting.id, False)]
        ack = next_turn(hand, Ack.succeeded(lease(claim)))
        await sides.behind(producer, worker, lambda: worker.turn(ack))
        found = await row(store, waiting)
        assert (found.state in (State.READY, State.RUNNING), found.deps, found.record) == (True, 0, b"2")

    async def test_the_running_job_ends_during_the_first_waiting_enqueue(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        hand, claim = await running(store, latest("keep_last"))
        worker, producer = await sides.open(), await sides.open()
        new = latest("keep_last", record=b"2")
        await producer.enqueue(new, batch=b"2")
        await sides.behind(producer, worker, lambda: worker.turn(next_turn(hand, Ack.succeeded(lease(claim)))))
        assert await state(store, new) in (State.READY, State.RUNNING)


async def test_no_row_of_a_key_is_left(store: PostgresStore, postgres_url: str, namespace: str) -> None:
    await use_keys(store)
    async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
        for table in ("keys", "edges", "marks", "follow_ups", "jobs", "finished", "dead"):
            rows = await connection.execute(f"select count(*) from mainspring_{namespace}.{table}".encode())
            assert await rows.fetchall() == [(0,)], table


async def test_an_open_transaction_of_a_caller_does_not_block_a_turn(store: PostgresStore, sides: Sides) -> None:
    """It has replaced a job. Other jobs are claimed, and a running job with another key ends. A turn that waited
    would fail by its time limit.
    """
    hand, claim = await running(store, latest("throttle", window=1))
    await put_in(store, latest("throttle", window=1, record=b"1"))
    caller = await sides.open()
    await caller.enqueue(latest("throttle", window=1, record=b"2"), batch=b"2")
    await hand.succeed(claim)
    await store.promote()
    assert (await row(store, claim.id)).state == State.SUCCEEDED
    await caller.rollback()
