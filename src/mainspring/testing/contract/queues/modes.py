"""Modes of queues: a paused queue hands out no job, a draining queue accepts none, for every client."""

from __future__ import annotations

import asyncio

import pytest

from mainspring.common.clock import MovableClock
from mainspring.common.ids import new_id
from mainspring.errors import QueueDraining
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import Enqueued, JobBatch, UniqueKey
from mainspring.queues.records import QueueMode, QueueRow
from mainspring.states import Action, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import (
    ERROR,
    LANE,
    SECOND,
    Hand,
    bucket,
    gone,
    ids,
    job,
    lease,
    one,
    put_in,
    row,
    running,
    state,
)
from mainspring.worker.records import Want

__all__ = ["TestDraining", "TestModes", "TestPaused"]

PAUSED, DRAINING, OPEN = QueueMode.PAUSED, QueueMode.DRAINING, QueueMode.OPEN


@pytest.mark.asyncio
class TestModes:
    async def test_a_queue_is_open_by_default(self, store: Store) -> None:
        await one(store)
        assert await store.queues() == []

    async def test_every_client_sees_the_mode(self, store: Store, second_store: Store, clock: MovableClock) -> None:
        """By name, with the moment."""
        first = clock.now_us()
        await store.set_queue_mode(["b", "a"], PAUSED)
        clock.advance("1s")
        await second_store.set_queue_mode(["c"], DRAINING)
        expected = [
            QueueRow("a", PAUSED, first), QueueRow("b", PAUSED, first), QueueRow("c", DRAINING, clock.now_us()),
        ]  # fmt: skip
        assert await store.queues() == expected
        assert await second_store.queues() == expected

    async def test_a_repeated_mode_keeps_its_moment(self, store: Store, clock: MovableClock) -> None:
        first = clock.now_us()
        await store.set_queue_mode(["q"], PAUSED)
        clock.advance("1s")
        await store.set_queue_mode(["q"], PAUSED)
        assert await store.queues() == [QueueRow("q", PAUSED, first)]

    async def test_a_mode_replaces_another(self, store: Store, clock: MovableClock) -> None:
        await store.set_queue_mode(["q"], PAUSED)
        clock.advance("1s")
        await store.set_queue_mode(["q"], DRAINING)
        assert await store.queues() == [QueueRow("q", DRAINING, clock.now_us())]
        await one(store, job(queue="other"))
        with pytest.raises(QueueDraining):
            await one(store)

    async def test_an_open_queue_has_no_row(self, store: Store) -> None:
        await store.set_queue_mode(["q", "r"], PAUSED)
        await store.set_queue_mode(["q"], OPEN)
        await store.set_queue_mode(["never"], OPEN)
        assert [each.name for each in await store.queues()] == ["r"]

    async def test_names_may_be_any_text(self, store: Store) -> None:
        name = 'it\'s; "q" {x}:*%_\\ Größe 🐛'
        await one(store, job(queue=name))
        await store.set_queue_mode([name], PAUSED)
        hand = await Hand(store, queues=(name,)).join()
        assert await hand.take(1, f"{name}/any") == ()
        assert [each.name for each in await store.queues()] == [name]

    async def test_namespaces_have_separate_modes(self, store: Store, elsewhere: Store) -> None:
        await store.set_queue_mode(["q"], PAUSED)
        assert await elsewhere.queues() == []


@pytest.mark.asyncio
class TestPaused:
    async def test_a_paused_queue_gives_no_job_to_the_next_turn(self, store: Store, second_store: Store) -> None:
        """All jobs are claimed after the queue was opened."""
        jobs = [job() for _ in range(3)]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        await second_store.set_queue_mode(["q"], PAUSED)
        assert await hand.take(9) == ()
        assert await hand.take(9) == ()
        await second_store.set_queue_mode(["q"], OPEN)
        assert ids(await hand.take(9)) == ids(jobs)

    async def test_other_queues_are_not_paused(self, store: Store) -> None:
        paused, other = job(queue="a", priority=9), job(queue="b")
        await put_in(store, paused, other)
        await store.set_queue_mode(["a"], PAUSED)
        hand = await Hand(store).join()
        assert ids(await hand.take(9, "a/any", "b/any")) == [other.id]

    async def test_jobs_of_every_kind_of_slot_are_paused(self, store: Store) -> None:
        await put_in(store, *(job(kind=kind) for kind in ("any", "thread", "async")))
        await store.set_queue_mode(["q"], PAUSED)
        hand = await Hand(store).join()
        wants = [Want((f"q/{kind}",), 5) for kind in ("any", "thread", "async")]
        assert (await hand.turn(wants=wants)).claims == ()

    async def test_limited_parked_and_suspect_lanes_are_paused(self, store: Store) -> None:
        """Limited, parked and suspected jobs."""
        await put_in(store, job(buckets=[bucket("gate", 5)]))
        parker = await Hand(store, tasks=()).join()
        await put_in(store, job(priority=5))
        parked = await parker.take_one()
        await parker.turn(Ack.returned(lease(parked), park=True))
        suspect = job(queue="q", priority=9, crashes=2)
        await put_in(store, suspect)
        hand = await Hand(store).join()
        assert (await hand.take_one()).id == suspect.id
        await store.rescue(hand.name, hand.beats, Outcome.CRASHED, [0])
        await store.set_queue_mode(["q"], PAUSED)
        hand = await Hand(store).join()
        assert await hand.take(9) == ()
        await store.set_queue_mode(["q"], OPEN)
        assert len(await hand.take(9)) == 3

    async def test_a_paused_queue_accepts_jobs(self, store: Store) -> None:
        await store.set_queue_mode(["q"], PAUSED)
        made = job()
        assert await put_in(store, made) == [Enqueued(made.id, True)]
        assert await state(store, made) == State.READY

    async def test_running_jobs_continue(self, store: Store) -> None:
        """They end, fail and send heartbeats, and a repeated turn returns them to the worker that lost the reply."""
        hand, claim = await running(store, job())
        await store.set_queue_mode(["q"], PAUSED)
        assert ids((await hand.repeat()).claims) == [claim.id]
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=0))
        await store.promote()
        assert await state(store, claim) == State.READY
        assert await hand.take(9) == ()

    async def test_actions_work_in_a_paused_queue(self, store: Store) -> None:
        await store.set_queue_mode(["q"], PAUSED)
        first, second = job(delay=SECOND), job()
        await put_in(store, first, second)
        assert (await store.act(Action.RUN_NOW, Query(ids=(first.id,)))).done == (first.id,)
        assert (await store.act(Action.CANCEL, Query(ids=(second.id,)))).done == (second.id,)

    async def test_opening_wakes_listeners(self, store: Store, second_store: Store) -> None:
        await store.set_queue_mode(["q"], PAUSED)
        await one(store)
        listener = await store.listen("w", ["q"])
        while await listener.wait(0.05):
            pass  # whatever the enqueue left behind
        waiting = asyncio.create_task(listener.wait(30.0))
        await second_store.set_queue_mode(["q"], OPEN)
        assert await waiting
        listener.close()

    async def test_a_pause_races_a_claim(self, store: Store, second_store: Store) -> None:
        """The job was claimed before, or it is not claimed: never after the pause was confirmed."""
        hand = await Hand(store).join()
        for _ in range(8):
            made = await one(store)
            claims, _none = await asyncio.gather(hand.take(1), second_store.set_queue_mode(["q"], PAUSED))
            assert await hand.take(1) == ()
            assert await state(store, made) == (State.RUNNING if claims else State.READY)
            await store.set_queue_mode(["q"], OPEN)
            await hand.succeed(*claims or await hand.take(1))


@pytest.mark.asyncio
class TestDraining:
    async def test_a_draining_queue_refuses_jobs(self, store: Store, second_store: Store) -> None:
        await store.set_queue_mode(["q"], DRAINING)
        made = job()
        with pytest.raises(QueueDraining, match="'q'"):
            await put_in(second_store, made)
        assert await gone(store, made)
        await store.set_queue_mode(["q"], OPEN)
        assert (await put_in(second_store, made))[0].created

    async def test_nothing_of_the_batch_is_inserted(self, store: Store) -> None:
        await store.set_queue_mode(["q"], DRAINING)
        other, keyed = job(queue="other"), job(queue="other", unique=UniqueKey(b"k" * 16))
        with pytest.raises(QueueDraining):
            await put_in(store, other, keyed, job())
        assert [await gone(store, each) for each in (other, keyed)] == [True, True]
        assert (await put_in(store, job(queue="other", unique=UniqueKey(b"k" * 16))))[0].created

    async def test_enqueue_now_is_refused_too(self, store: Store) -> None:
        await store.set_queue_mode(["q"], DRAINING)
        with pytest.raises(QueueDraining):
            store.enqueue_now(JobBatch(id=new_id().bytes, jobs=(job(),)))

    async def test_jobs_with_limits_and_parents_are_refused_too(self, store: Store) -> None:
        parent = await one(store, job(queue="other"))
        await store.set_queue_mode(["q"], DRAINING)
        for made in (job(buckets=[bucket("gate", 1)]), job(after=[parent]), job(delay=SECOND)):
            with pytest.raises(QueueDraining):
                await put_in(store, made)
            assert await gone(store, made)

    async def test_jobs_of_a_draining_queue_continue(self, store: Store, clock: MovableClock) -> None:
        """Claims, failures, retries and scheduled jobs, until the queue is empty."""
        jobs = [job(), job(delay=SECOND)]
        await put_in(store, *jobs)
        await store.set_queue_mode(["q"], DRAINING)
        hand = await Hand(store).join()
        claim = await hand.take_one()
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=0))
        clock.advance("1s")
        assert (await store.promote()).promoted == 2
        await hand.succeed(*await hand.take(9, LANE))
        assert [await state(store, each) for each in jobs] == [State.SUCCEEDED] * 2

    async def test_a_draining_queue_accepts_a_retry_by_hand(self, store: Store) -> None:
        """The job is not new to the queue."""
        hand, claim = await running(store, job())
        await hand.kill(claim)
        await store.set_queue_mode(["q"], DRAINING)
        assert (await store.act(Action.RETRY, Query(ids=(claim.id,)))).done == (claim.id,)
        assert len(await hand.take(9)) == 1

    async def test_a_repeated_enqueue_is_not_refused(self, store: Store) -> None:
        """The reply was lost, and then the queue was drained: the repeat finds its jobs."""
        first, second = job(), job()
        await put_in(store, first)
        await store.set_queue_mode(["q"], DRAINING)
        for retry in (True, False):
            assert await put_in(store, first, retry=retry) == [Enqueued(first.id, False)]
        with pytest.raises(QueueDraining):
            await put_in(store, first, second, retry=True)
        with pytest.raises(QueueDraining):
            await put_in(store, first, second)
        assert await gone(store, second)

    async def test_an_enqueue_that_returns_the_holder_is_not_refused(self, store: Store) -> None:
        holder = await one(store, job(unique=UniqueKey(b"k" * 16)))
        await store.set_queue_mode(["q"], DRAINING)
        assert await put_in(store, job(unique=UniqueKey(b"k" * 16))) == [Enqueued(holder.id, False)]

    async def test_a_refused_replacement_cancels_no_job(self, store: Store) -> None:
        holder = await one(store, job(unique=UniqueKey(b"k" * 16)))
        await store.set_queue_mode(["q"], DRAINING)
        with pytest.raises(QueueDraining):
            await put_in(store, job(unique=UniqueKey(b"k" * 16, conflict="replace")))
        assert (await row(store, holder)).state == State.READY
        assert await put_in(store, job(unique=UniqueKey(b"k" * 16))) == [Enqueued(holder.id, False)]
