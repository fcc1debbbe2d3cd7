"""Disabled queues, and the stored settings of queues."""

from __future__ import annotations

import asyncio

import pytest

from mainspring.common.clock import MovableClock
from mainspring.common.ids import new_id
from mainspring.errors import QueueDisabled, QueueFull
from mainspring.jobs.outcomes import Ack
from mainspring.jobs.query import Query
from mainspring.jobs.records import Enqueued, FollowUp, JobBatch, UniqueKey
from mainspring.queues.records import DisabledMode, QueueMode, QueueRow, QueueSettings
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import (
    ERROR,
    SECOND,
    Hand,
    bucket,
    ending,
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

__all__ = ["TestDisabled", "TestQueueSettings", "TestReject", "TestSkip"]

HOLD, SKIP, REJECT = DisabledMode.HOLD, DisabledMode.SKIP, DisabledMode.REJECT


@pytest.mark.asyncio
class TestDisabled:
    @pytest.mark.parametrize("how", list(DisabledMode))
    async def test_a_disabled_queue_hands_out_no_job(
        self, store: Store, second_store: Store, how: DisabledMode
    ) -> None:
        """And nothing is dropped: all of it runs once the queue is enabled."""
        jobs = [job(), job(buckets=[bucket("gate", 5)]), job(priority=5)]
        await put_in(store, *jobs, job(queue="other"))
        await second_store.disable_queues(["q"], how)
        hand = await Hand(store).join()
        assert await hand.take(9) == ()
        assert await hand.take(9) == ()
        assert len(await hand.take(9, "other/any")) == 1
        await second_store.disable_queues(["q"], None)
        assert sorted(ids(await hand.take(9))) == sorted(ids(jobs))

    async def test_hold_accepts_jobs(self, store: Store) -> None:
        await store.disable_queues(["q"], HOLD)
        jobs = [job(), job(delay=SECOND), job(unique=UniqueKey(b"k" * 16))]
        assert await put_in(store, *jobs) == [Enqueued(each.id, True) for each in jobs]
        assert [await state(store, each) for each in jobs] == [State.READY, State.SCHEDULED, State.READY]

    async def test_disabled_and_mode_are_independent(self, store: Store) -> None:
        """Neither changes the other."""
        await one(store)
        await store.set_queue_mode(["q"], QueueMode.PAUSED)
        await store.disable_queues(["q"], HOLD)
        hand = await Hand(store).join()
        await store.set_queue_mode(["q"], QueueMode.OPEN)
        assert await hand.take(1) == ()
        await store.set_queue_mode(["q"], QueueMode.PAUSED)
        await store.disable_queues(["q"], None)
        assert await hand.take(1) == ()
        await store.set_queue_mode(["q"], QueueMode.OPEN)
        assert len(await hand.take(1)) == 1

    async def test_every_client_sees_the_disabled_queue(
        self, store: Store, second_store: Store, clock: MovableClock
    ) -> None:
        """Since when and by which user. A repeat keeps the first time."""
        first = clock.now_us()
        await store.disable_queues(["q"], HOLD, "ann@desk")
        clock.advance("1s")
        await store.disable_queues(["q"], HOLD, "bob@desk")
        assert await second_store.queues() == [
            QueueRow("q", QueueMode.OPEN, 0, disabled=HOLD, disabled_at=first, disabled_by="ann@desk")
        ]
        await store.disable_queues(["q"], SKIP, "bob@desk")
        (found,) = await second_store.queues()
        assert (found.disabled, found.disabled_at, found.disabled_by) == (SKIP, clock.now_us(), "bob@desk")
        await store.disable_queues(["q", "never"], None)
        assert await second_store.queues() == []

    async def test_running_jobs_continue(self, store: Store) -> None:
        hand, claim = await running(store, job())
        await store.disable_queues(["q"], REJECT)
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=0))
        await store.promote()
        assert await state(store, claim) == State.READY

    async def test_enabling_wakes_listeners(self, store: Store, second_store: Store) -> None:
        await store.disable_queues(["q"], HOLD)
        await one(store)
        listener = await store.listen("w", ["q"])
        while await listener.wait(0.05):
            pass  # whatever the enqueue left behind
        waiting = asyncio.create_task(listener.wait(30.0))
        await second_store.disable_queues(["q"], None)
        assert await waiting
        listener.close()


@pytest.mark.asyncio
class TestSkip:
    async def test_new_jobs_of_a_skipping_queue_end_at_once(self, store: Store, second_store: Store) -> None:
        """Whatever they wait for. They can be found."""
        parent = await one(store, job(queue="other"))
        waiting = await one(store)
        await second_store.disable_queues(["q"], SKIP, "ann")
        jobs = [job(), job(delay=SECOND), job(after=[parent]), job(buckets=[bucket("gate", 1)])]
        assert await put_in(store, *jobs) == [Enqueued(each.id, True) for each in jobs]
        assert [await ending(store, each) for each in jobs] == [(State.CANCELLED, Reason.SKIPPED)] * 4
        assert "'q' is disabled by ann" in ((await row(store, jobs[0])).note or "")
        assert await state(store, waiting) == State.READY
        await second_store.disable_queues(["q"], None)
        hand = await Hand(store).join()
        assert ids(await hand.take(9)) == [waiting.id]

    async def test_a_child_of_a_skipped_job_ends(self, store: Store) -> None:
        """A follow-up job of a cancelled one is made."""
        await store.disable_queues(["q"], SKIP)
        follow = job(id=new_id().bytes[:14] + b"\0\0", queue="after")
        parent = job(follows=[FollowUp(State.CANCELLED, follow)])
        child = job(queue="other", after=[parent])
        await put_in(store, parent, child)
        assert await ending(store, child) == (State.CANCELLED, Reason.PARENT)
        hand = await Hand(store).join()
        assert len(await hand.take(9, "after/any")) == 1

    async def test_skipped_jobs_need_no_depth(self, store: Store) -> None:
        await store.configure_queue("q", QueueSettings(max_depth=1))
        await one(store)
        await store.disable_queues(["q"], SKIP)
        assert (await put_in(store, job(), job()))[1].created

    async def test_a_retry_by_hand_waits(self, store: Store) -> None:
        await store.disable_queues(["q"], SKIP)
        made = await one(store)
        await store.act(Action.RETRY, Query(ids=(made.id,)))
        assert await state(store, made) == State.READY

    async def test_enqueue_now_skips_too(self, store: Store) -> None:
        await store.disable_queues(["q"], SKIP)
        made = job()
        store.enqueue_now(JobBatch(id=new_id().bytes, jobs=(made,)))
        assert await ending(store, made) == (State.CANCELLED, Reason.SKIPPED)


@pytest.mark.asyncio
class TestReject:
    async def test_a_rejecting_queue_refuses_jobs(self, store: Store, second_store: Store) -> None:
        """Nothing of the batch is inserted; the error names the user that disabled the queue."""
        await second_store.disable_queues(["q"], REJECT, "ann@desk")
        other = job(queue="other", unique=UniqueKey(b"k" * 16))
        for made in (job(), job(delay=SECOND), job(buckets=[bucket("gate", 1)])):
            with pytest.raises(QueueDisabled, match="'q' was disabled by ann@desk"):
                await put_in(store, other, made)
            assert [await gone(store, each) for each in (other, made)] == [True, True]
        with pytest.raises(QueueDisabled):
            store.enqueue_now(JobBatch(id=new_id().bytes, jobs=(job(),)))
        await second_store.disable_queues(["q"], None)
        assert (await put_in(store, other, made))[1].created

    async def test_a_repeated_enqueue_is_not_refused(self, store: Store) -> None:
        first, second = job(), job()
        await put_in(store, first)
        await store.disable_queues(["q"], REJECT)
        for retry in (True, False):
            assert await put_in(store, first, retry=retry) == [Enqueued(first.id, False)]
        with pytest.raises(QueueDisabled):
            await put_in(store, first, second, retry=True)


@pytest.mark.asyncio
class TestQueueSettings:
    async def test_settings_by_hand_override_declared_ones(self, store: Store, second_store: Store) -> None:
        declared, given = QueueSettings(max_depth=9, order="lifo"), QueueSettings(max_depth=1)
        await store.configure_queue("q", declared, declared=True)
        await store.configure_queue("q", given)
        (found,) = await second_store.queues()
        assert (found.declared, found.given, found.mode) == (declared, given, QueueMode.OPEN)
        assert found.settings == QueueSettings(max_depth=1, order="lifo")
        await store.configure_queue("q", None)
        assert (await second_store.queues())[0].settings == declared
        await store.configure_queue("q", None, declared=True)
        assert await second_store.queues() == []

    async def test_a_depth_of_zero_by_hand_removes_a_declared_depth(self, store: Store) -> None:
        await store.configure_queue("q", QueueSettings(max_depth=1), declared=True)
        await store.configure_queue("q", QueueSettings(max_depth=0))
        assert all(made.created for made in await put_in(store, job(), job()))

    async def test_a_batch_stores_declared_settings(self, store: Store, second_store: Store) -> None:
        """If the store has no declared settings: for every producer from then on, and for this batch."""
        told = ("q", QueueSettings(max_depth=2))
        with pytest.raises(QueueFull):
            await store.enqueue(JobBatch(id=new_id().bytes, jobs=(job(), job(), job()), queues=(told,)))
        await store.enqueue(JobBatch(id=new_id().bytes, jobs=(job(), job()), queues=(told,)))
        with pytest.raises(QueueFull):
            await put_in(second_store, job())
        await second_store.configure_queue("q", QueueSettings(max_depth=3), declared=True)
        store.enqueue_now(JobBatch(id=new_id().bytes, jobs=(job(),), queues=(told,)))
        with pytest.raises(QueueFull):
            store.enqueue_now(JobBatch(id=new_id().bytes, jobs=(job(),), queues=(told,)))

    async def test_modes_do_not_change_settings(self, store: Store) -> None:
        await store.configure_queue("q", QueueSettings(max_depth=1))
        await store.set_queue_mode(["q"], QueueMode.PAUSED)
        await store.set_queue_mode(["q"], QueueMode.OPEN)
        assert await store.queues() == [QueueRow("q", QueueMode.OPEN, 0, given=QueueSettings(max_depth=1))]
        await one(store)
        with pytest.raises(QueueFull):
            await one(store)

    async def test_names_may_be_any_text(self, store: Store) -> None:
        name = 'it\'s; "q" {x}:*%_\\ Größe|+! 🐛'
        await store.configure_queue(name, QueueSettings(max_depth=1, limits=(("gate", 1),)))
        await store.disable_queues([name], HOLD, "ann: |+!")
        await one(store, job(queue=name))
        with pytest.raises(QueueFull):
            await one(store, job(queue=name))
        hand = await Hand(store).join()
        assert await hand.take(1, f"{name}/any") == ()
        await store.disable_queues([name], None)
        assert len(await hand.take(1, f"{name}/any")) == 1

    async def test_namespaces_have_separate_settings(self, store: Store, elsewhere: Store) -> None:
        await store.configure_queue("q", QueueSettings(max_depth=1))
        await store.disable_queues(["q"], REJECT)
        await put_in(elsewhere, job(), job())
        assert await elsewhere.queues() == []
