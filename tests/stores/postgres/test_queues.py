"""Settings of queues while transactions are open: no count misses the jobs of another transaction, no worker waits."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from mainspring.errors import QueueFull
from mainspring.jobs.query import Query
from mainspring.queues.records import DisabledMode, QueueSettings
from mainspring.states import State
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.postgres.driver import errors
from mainspring.testing.contract.hands import LANE, Hand, ids, job, one, put_in, state
from mainspring.worker.records import Turn, Want
from tests.stores.postgres.sides import Side, Sides

TWO = QueueSettings(max_depth=2)


async def refused(side: Side, batch: bytes) -> None:
    with pytest.raises(psycopg.Error) as said:
        await side.enqueue(job(), batch=batch)
    assert isinstance(errors.translate(said.value), QueueFull)
    await side.rollback()


class TestDepth:
    async def test_a_producer_waits_for_another_that_has_counted(self, store: PostgresStore, sides: Sides) -> None:
        await store.configure_queue("q", TWO)
        await one(store)
        first, second = await sides.open(), await sides.open()
        await first.enqueue(job(), batch=b"1")
        await sides.behind(first, second, lambda: refused(second, b"2"))
        assert (await store.count(Query.where(queues=["q"])))[State.READY] == 2

    async def test_a_rolled_back_enqueue_leaves_its_space(self, store: PostgresStore, sides: Sides) -> None:
        await store.configure_queue("q", TWO)
        await one(store)
        first, second = await sides.open(), await sides.open()
        await first.enqueue(job(), batch=b"1")
        waiting = asyncio.create_task(second.enqueue(job(), batch=b"2"))
        await sides.until_blocked(first, second, waiting)
        await first.rollback()
        assert (await waiting)[0].created
        await second.commit()

    async def test_workers_and_other_queues_do_not_wait_for_an_open_enqueue(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        """Claims, acks and hand-backs, while a caller that enqueued in the queue keeps its transaction open. A call
        that waited would fail by the time limit.
        """
        await store.configure_queue("q", TWO)
        await one(store)
        side = await sides.open()
        await side.enqueue(job(), batch=b"1")
        async with asyncio.timeout(30):
            hand = await Hand(store).join()
            claim = await hand.take_one()
            await hand.succeed(claim)
            (other,) = await put_in(store, job(queue="other"))
        assert other.created
        await side.commit()

    async def test_a_job_that_is_being_claimed_is_not_dropped(self, store: PostgresStore, sides: Sides) -> None:
        """The next oldest job is dropped instead."""
        await store.configure_queue("q", QueueSettings(max_depth=2, on_full="drop_oldest"))
        oldest, older = await one(store), await one(store)
        hand = await Hand(store).join()
        first, second = await sides.open(), await sides.open()
        turn = Turn(worker=hand.name, number=1, seen=0, wants=(Want((LANE,), 1),))
        assert ids((await first.turn(turn)).claims) == [oldest.id]
        await sides.behind(first, second, lambda: second.enqueue(job(), batch=b"1"))
        assert [await state(store, each) for each in (oldest, older)] == [State.RUNNING, State.READY]


class TestDisabled:
    async def test_disable_waits_for_a_turn_that_has_read_the_mode(self, store: PostgresStore, sides: Sides) -> None:
        """No job of the queue starts after it is confirmed."""
        await one(store)
        hand, other = await Hand(store).join(), await Hand(store).join()
        first, second = await sides.open(), await sides.open()
        turn = Turn(worker=hand.name, number=1, seen=0, wants=(Want((LANE,), 1),))
        assert len((await first.turn(turn)).claims) == 1
        text = f"select {store.schema}.disable_queues_v1(%(queues)b::text[], %(how)s, '', null)"
        asked = {"queues": ["q"], "how": DisabledMode.HOLD.value}
        await sides.behind(first, second, lambda: second.run(text, asked))
        await one(store)
        assert await other.take(5) == ()
