"""More pairs of transactions, one of them held: keys, modes, reports, acts by hand, buckets that are pruned."""

from __future__ import annotations

import asyncio
from typing import Literal

import psycopg
import pytest

from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import AttemptReport, Edge, Enqueued, LogLine, NewJob, UniqueKey
from mainspring.queues.records import QueueMode
from mainspring.states import Action, Reason, State
from mainspring.stores.postgres import PostgresStore
from mainspring.testing.contract.hands import (
    HOUR,
    LANE,
    SECOND,
    Hand,
    bucket,
    ending,
    gone,
    job,
    one,
    put_in,
    row,
    running,
    state,
)
from mainspring.worker.records import Turn, Want
from tests.stores.postgres.sides import Sides

KEY = b"k" * 16
OTHER = b"o" * 16


def keyed(conflict: Literal["return", "replace", "error"] = "return", key: bytes = KEY) -> NewJob:
    return job(unique=UniqueKey(key, 0, conflict))


def want_turn(hand: Hand, n: int, *acks: Ack) -> Turn:
    return Turn(worker=hand.name, number=hand.number + 1, seen=hand.seen, acks=acks, wants=(Want((LANE,), n),))


class TestKeys:
    async def test_two_producers_of_one_key_make_one_job(self, store: PostgresStore, sides: Sides) -> None:
        """The second waits for the first and gets its job."""
        first, second = await sides.open(), await sides.open()
        one_job, other = keyed(), keyed()
        await first.enqueue(one_job, batch=b"1")
        said = await sides.behind(first, second, lambda: second.enqueue(other, batch=b"2"))
        assert said == [Enqueued(one_job.id, False)]
        assert await gone(store, other)

    async def test_the_second_producer_of_a_key_inserts_when_the_first_rolls_back(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        first, second = await sides.open(), await sides.open()
        one_job, other = keyed(), keyed()
        await first.enqueue(one_job, batch=b"1")
        waiting = asyncio.create_task(second.enqueue(other, batch=b"2"))
        await sides.until_blocked(first, second, waiting)
        await first.rollback()
        assert await waiting == [Enqueued(other.id, True)]
        await second.commit()
        assert await gone(store, one_job)
        assert await put_in(store, keyed()) == [Enqueued(other.id, False)]

    async def test_two_batches_with_the_same_keys_in_opposite_order(self, store: PostgresStore, sides: Sides) -> None:
        """Keys are locked in their own order, not in the order of the batch: no deadlock."""
        holder, first, second = await sides.open(), await sides.open(), await sides.open()
        await holder.enqueue(keyed(), batch=b"0")
        tasks = {
            asyncio.create_task(first.enqueue(keyed(), keyed(key=OTHER), batch=b"1")): first,
            asyncio.create_task(second.enqueue(keyed(key=OTHER), keyed(), batch=b"2")): second,
        }
        await sides.until_waiting(2)
        await holder.rollback()
        made = []
        while tasks:
            done, _ = await asyncio.wait(tasks, timeout=30, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                made += [said.created for said in await each]
                await tasks.pop(each).commit()
        assert made == [True, True, False, False]

    async def test_a_replacement_that_waited_for_a_claim_leaves_the_holder_running(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        """The holder was claimed while the replacement waited: it runs on without the key."""
        holder = await one(store, keyed())
        hand = await Hand(store).join()
        first, second = await sides.open(), await sides.open()
        await first.turn(want_turn(hand, 1))
        new = keyed("replace")
        await sides.behind(first, second, lambda: second.enqueue(new))
        assert await state(store, holder) == State.RUNNING
        assert await put_in(store, keyed()) == [Enqueued(new.id, False)]

    async def test_a_claim_skips_a_job_that_is_being_replaced(self, store: PostgresStore, sides: Sides) -> None:
        holder = await one(store, keyed())
        hand = await Hand(store).join()
        first, second = await sides.open(), await sides.open()
        await first.enqueue(keyed("replace"))
        assert (await second.turn(want_turn(hand, 5))).claims == ()
        await first.commit()
        await second.commit()
        assert await ending(store, holder) == (State.CANCELLED, Reason.SUPERSEDED)

    async def test_a_retry_by_hand_that_waited_for_an_enqueue_finds_the_key_held(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        hand, claim = await running(store, keyed())
        await hand.kill(claim)
        first, second = await sides.open(), await sides.open()
        holder = keyed()
        await first.enqueue(holder)
        said = await sides.behind(first, second, lambda: second.act(Action.RETRY, claim.id))
        assert (said.done, said.held) == ((), ((claim.id, holder.id),))
        assert await state(store, claim) == State.DEAD

    async def test_an_enqueue_that_waited_for_a_retry_by_hand_finds_the_key_held(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        hand, claim = await running(store, keyed())
        await hand.kill(claim)
        first, second = await sides.open(), await sides.open()
        assert (await first.act(Action.RETRY, claim.id)).done == (claim.id,)
        said = await sides.behind(first, second, lambda: second.enqueue(keyed()))
        assert said == [Enqueued(claim.id, False)]

    async def test_an_enqueue_that_waited_for_the_deletion_of_the_holder_takes_the_key(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        """The deletion removes the row of the key, so the enqueue inserts it again."""
        holder, new = await one(store, keyed()), keyed()
        first, second = await sides.open(), await sides.open()
        await first.act(Action.DELETE, holder.id)
        said = await sides.behind(first, second, lambda: second.enqueue(new))
        assert said == [Enqueued(new.id, True)]
        assert await put_in(store, keyed()) == [Enqueued(new.id, False)]


class TestModes:
    async def test_a_pause_waits_for_a_turn_that_has_read_the_mode(self, store: PostgresStore, sides: Sides) -> None:
        """No job of the queue starts after the pause is confirmed."""
        made, later = await one(store), job()
        hand, other = await Hand(store).join(), await Hand(store).join()
        first, second = await sides.open(), await sides.open()
        assert len((await first.turn(want_turn(hand, 1))).claims) == 1
        await sides.behind(first, second, lambda: second.set_mode("q", QueueMode.PAUSED))
        await put_in(store, later)
        assert await other.take(5) == ()
        assert (await state(store, made), await state(store, later)) == (State.RUNNING, State.READY)

    async def test_a_turn_that_waited_for_a_pause_obeys_it(self, store: PostgresStore, sides: Sides) -> None:
        made = await one(store)
        hand = await Hand(store).join()
        first, second = await sides.open(), await sides.open()
        await first.set_mode("q", QueueMode.PAUSED)
        said = await sides.behind(first, second, lambda: second.turn(want_turn(hand, 1)))
        assert said.claims == ()
        assert await state(store, made) == State.READY

    async def test_acks_do_not_wait_for_a_pause(self, store: PostgresStore, sides: Sides) -> None:
        hand, claim = await running(store)
        side = await sides.open()
        await side.set_mode("q", QueueMode.PAUSED)
        await asyncio.wait_for(hand.succeed(claim), 30)
        assert (await store.find(Query(ids=(claim.id,)))).jobs[0].state == State.SUCCEEDED
        await side.rollback()


class TestReports:
    async def test_a_report_that_waited_for_a_rescue_is_refused(self, store: PostgresStore, sides: Sides) -> None:
        """The earlier owner writes neither progress nor log lines."""
        hand, claim = await running(store)
        news = AttemptReport(id=claim.id, token=claim.token, progress=b"1", logs=(LogLine(1, "INFO", "x"),))
        first, second = await sides.open(), await sides.open()
        await first.rescue(hand.name, hand.beats)
        assert not await sides.behind(first, second, lambda: second.report(hand.name, news))
        assert (await row(store, claim)).progress is None
        assert await store.logs(claim.id) == []

    async def test_a_rescue_waits_for_a_report(self, store: PostgresStore, sides: Sides) -> None:
        hand, claim = await running(store)
        first, second = await sides.open(), await sides.open()
        assert await first.report(hand.name, AttemptReport(id=claim.id, token=claim.token, progress=b"1"))
        said = await sides.behind(first, second, lambda: second.rescue(hand.name, hand.beats))
        assert said.ready == (claim.id,)
        assert (await row(store, claim)).progress == b"1"

    async def test_two_reports_of_one_job_are_numbered_one_after_the_other(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        hand, claim = await running(store)
        first, second = await sides.open(), await sides.open()
        one_report, other = (
            AttemptReport(id=claim.id, token=claim.token, logs=(LogLine(at, "INFO", "x"),)) for at in (1, 2)
        )
        await first.report(hand.name, one_report)
        assert await sides.behind(first, second, lambda: second.report(hand.name, other))
        assert [(line.n, line.at) for line in await store.logs(claim.id)] == [(1, 1), (2, 2)]

    async def test_an_enqueued_child_does_not_block_reports_of_its_parent(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        hand, claim = await running(store)
        first, second = await sides.open(), await sides.open()
        await first.enqueue(job(after=[Edge(claim.id)]))
        assert await asyncio.wait_for(
            second.report(hand.name, AttemptReport(id=claim.id, token=claim.token, progress=b"1")), 30
        )
        await first.commit()
        await second.commit()


class TestActions:
    @pytest.mark.parametrize("action", [Action.CANCEL, Action.DELETE, Action.REPRIORITISE])
    async def test_an_action_checks_again_a_job_that_was_claimed_meanwhile(
        self, store: PostgresStore, sides: Sides, action: Action
    ) -> None:
        """The query listed the job as ready, and a turn claimed it before the action: the query does not match any
        more.
        """
        made = await one(store)
        hand = await Hand(store).join()
        first, second = await sides.open(), await sides.open()
        await first.turn(want_turn(hand, 1))
        query = Query(states=(State.READY,))
        said = await sides.behind(first, second, lambda: second.act(action, made.id, query=query))
        assert (said.done, said.refused) == ((), ())
        found = await row(store, made)
        assert (found.state, found.ordered, found.priority) == (State.RUNNING, False, made.priority)

    async def test_a_deletion_that_waited_for_a_retry_finds_the_job(self, store: PostgresStore, sides: Sides) -> None:
        """The job moved to another table while the deletion waited. It is found and locked there."""
        hand, claim = await running(store)
        await hand.kill(claim)
        first, second = await sides.open(), await sides.open()
        await first.act(Action.RETRY, claim.id)
        said = await sides.behind(first, second, lambda: second.act(Action.DELETE, claim.id))
        assert said.done == (claim.id,)
        assert await gone(store, claim)

    async def test_two_retries_of_one_job_make_one_epoch(self, store: PostgresStore, sides: Sides) -> None:
        hand, claim = await running(store)
        await hand.kill(claim)
        first, second = await sides.open(), await sides.open()
        await first.act(Action.RETRY, claim.id)
        said = await sides.behind(first, second, lambda: second.act(Action.RETRY, claim.id))
        assert (said.done, said.refused) == ((), ((claim.id, State.READY),))
        assert (await row(store, claim)).epoch == 2

    async def test_run_now_and_a_promotion_make_a_job_ready_once(self, store: PostgresStore, sides: Sides) -> None:
        """A promotion skips rows that another transaction has locked."""
        made = await one(store, job(delay=SECOND))
        side = await sides.open()
        assert (await side.act(Action.RUN_NOW, made.id)).done == (made.id,)
        assert (await asyncio.wait_for(store.promote(), 30)).promoted == 0
        await side.commit()
        assert await state(store, made) == State.READY

    async def test_a_deletion_that_waited_for_the_enqueue_of_a_child_ends_the_child(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        """The parent of the child will never succeed."""
        parent = await one(store)
        child = job(after=[parent])
        first, second = await sides.open(), await sides.open()
        await first.enqueue(child)
        await sides.behind(first, second, lambda: second.act(Action.DELETE, parent.id))
        assert await ending(store, child) == (State.CANCELLED, Reason.PARENT)

    async def test_an_enqueue_of_a_child_waits_for_the_deletion_of_its_parent(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        parent = await one(store)
        child = job(after=[parent])
        first, second = await sides.open(), await sides.open()
        await first.act(Action.DELETE, parent.id)
        waiting = asyncio.create_task(second.enqueue(child))
        await sides.until_blocked(first, second, waiting)
        await first.commit()
        with pytest.raises(psycopg.Error, match="does not exist"):
            await waiting
        await second.rollback()
        assert await gone(store, child)


class TestIdleBuckets:
    async def test_a_bucket_that_is_pruned_is_inserted_again(self, store: PostgresStore, sides: Sides) -> None:
        """The limit holds, and no transaction waits for ever."""
        gate = bucket("gate", 1)
        hand, claim = await running(store, job(buckets=[gate]))
        await hand.succeed(claim)
        first, second = await sides.open(), await sides.open()
        await first.enqueue(job(buckets=[gate]), job(buckets=[gate]))
        await second.prune_others()
        assert await second.run(f"select name from {store.schema}.buckets") == []
        await second.commit()
        await first.commit()
        assert len(await hand.take(9)) == 1

    async def test_a_turn_that_waited_for_a_bucket_while_it_was_pruned(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        hand, claim = await running(store, job(buckets=[bucket("gate", 1)]))
        await hand.succeed(claim)
        await put_in(store, *(job(buckets=[bucket("gate", 1)]) for _ in range(2)))
        first, second = await sides.open(), await sides.open()
        await first.prune_others()
        said = await sides.behind(first, second, lambda: second.turn(want_turn(hand, 9)))
        assert len(said.claims) == 1

    @pytest.mark.parametrize("why", ["job", "guest", "rate"])
    async def test_a_bucket_in_use_is_not_pruned(self, store: PostgresStore, sides: Sides, why: str) -> None:
        gate = bucket("gate", 5, per=HOUR if why == "rate" else 0)
        hand, claim = await running(store, job(buckets=[gate]))
        if why != "job":
            await hand.succeed(claim)
        if why == "guest":
            assert (await store.hold(b"guest", [gate], HOUR)).ok
        side = await sides.open()
        await side.prune_others()
        assert await side.run(f"select name from {store.schema}.buckets") == [("gate",)]


class TestRescueAndOrder:
    async def test_a_cancel_that_waited_for_a_rescue_cancels_the_job(self, store: PostgresStore, sides: Sides) -> None:
        """The job is ready again by then: it ends at once, and no cancel order remains."""
        hand, claim = await running(store)
        first, second = await sides.open(), await sides.open()
        await first.rescue(hand.name, hand.beats, Outcome.CRASHED)
        said = await sides.behind(first, second, lambda: second.act(Action.CANCEL, claim.id))
        assert said.done == (claim.id,)
        assert await ending(store, claim) == (State.CANCELLED, Reason.BY_USER)
