"""Keys under which the newest enqueue replaces the job that waits, in queues that are full or switched off.

A job that is replaced in its queue is not a new one there; one that goes to another queue is.
"""

from __future__ import annotations

import asyncio

import pytest

from mainspring.common.clock import MovableClock
from mainspring.common.ids import new_id
from mainspring.errors import KeyConflict, QueueDisabled, QueueFull
from mainspring.jobs.query import Query
from mainspring.jobs.records import Enqueued, JobBatch, NewJob, UniqueKey
from mainspring.queues.records import DisabledMode, QueueSettings
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import HOUR, SECOND, Hand, ending, gone, job, one, put_in, row, running, state

from .replace import MODES, KeyMode, latest, ready_of, said

__all__ = ["TestReplacedInDisabledQueues", "TestReplacedInFullQueues"]

ERRORS = QueueSettings(max_depth=2)
DROPS = QueueSettings(max_depth=2, on_full="drop_oldest")


async def full(store: Store, *jobs: NewJob) -> None:
    """These are refused, and nothing of them is there."""
    with pytest.raises(QueueFull):
        await put_in(store, *jobs)
    assert all([await gone(store, each) for each in jobs])


@pytest.mark.asyncio
class TestReplacedInFullQueues:
    @pytest.mark.parametrize("mode", MODES)
    async def test_a_replaced_job_needs_no_depth_and_counts_once(self, store: Store, mode: KeyMode) -> None:
        await store.configure_queue("q", ERRORS)
        first = await one(store, latest(mode))
        other = await one(store)
        for n in range(3):
            assert await said(store, latest(mode, record=b"%d" % n)) == Enqueued(first.id, False)
        await full(store, job())
        await store.act(Action.CANCEL, Query(ids=(other.id,)))
        assert await said(store, latest(mode, record=b"last")) == Enqueued(first.id, False)
        await one(store)
        await full(store, job())
        await store.configure_queue("q", QueueSettings(max_depth=1))
        assert await said(store, latest(mode, record=b"of too many")) == Enqueued(first.id, False)
        assert (await row(store, first)).record == b"of too many"

    @pytest.mark.parametrize("mode", MODES)
    async def test_a_replaced_ready_job_counts_once(self, store: Store, clock: MovableClock, mode: KeyMode) -> None:
        await store.configure_queue("q", ERRORS)
        await ready_of(store, clock, mode)
        await one(store)
        await put_in(store, latest(mode))
        await full(store, job())

    @pytest.mark.parametrize("mode", MODES)
    async def test_a_second_job_needs_depth(self, store: Store, clock: MovableClock, mode: KeyMode) -> None:
        """The first job runs, so the next enqueue under its key makes a new job. A refused enqueue does not change
        the key.
        """
        await store.configure_queue("q", ERRORS)
        await ready_of(store, clock, mode)
        hand = await Hand(store).join()
        claim = await hand.take_one()
        others = [await one(store), await one(store)]
        await full(store, latest(mode))
        await store.act(Action.CANCEL, Query(ids=(others[0].id,)))
        second = latest(mode, record=b"2")
        assert await said(store, second) == Enqueued(second.id, True)
        assert await said(store, latest(mode, record=b"3")) == Enqueued(second.id, False)
        await full(store, job())
        await hand.succeed(claim)
        await full(store, job())

    @pytest.mark.parametrize("mode", MODES)
    async def test_a_job_moved_to_a_full_queue_needs_depth_there(self, store: Store, mode: KeyMode) -> None:
        """And frees depth in its old queue."""
        for queue in ("q", "other"):
            await store.configure_queue(queue, ERRORS)
        first = await one(store, latest(mode, record=b"1"))
        await put_in(store, job(), job(queue="other"), job(queue="other"))
        with pytest.raises(QueueFull, match="'other' is full"):
            await put_in(store, latest(mode, queue="other", record=b"2"))
        found = await row(store, first)
        assert (found.queue, found.record) == ("q", b"1")
        await store.configure_queue("other", QueueSettings(max_depth=3))
        assert await said(store, latest(mode, queue="other", record=b"2")) == Enqueued(first.id, False)
        await full(store, job(queue="other"))
        await one(store)
        await full(store, job())

    async def test_depth_freed_and_used_in_one_batch(self, store: Store) -> None:
        await store.configure_queue("q", ERRORS)
        moving = await one(store, latest("keep_last"))
        await one(store)
        await put_in(store, latest("keep_last", queue="other"), job())
        assert (await row(store, moving)).queue == "other"
        await full(store, job())

    @pytest.mark.parametrize("mode", MODES)
    async def test_an_expired_job_frees_its_depth(self, store: Store, clock: MovableClock, mode: KeyMode) -> None:
        await store.configure_queue("q", ERRORS)
        old = await one(store, latest(mode, expires_in=SECOND))
        await one(store)
        clock.advance("2s")
        new = latest(mode)
        assert await said(store, new) == Enqueued(new.id, True)
        assert await ending(store, old) == (State.CANCELLED, Reason.EXPIRED)

    @pytest.mark.parametrize("mode", MODES)
    async def test_a_dropped_job_releases_its_key(self, store: Store, clock: MovableClock, mode: KeyMode) -> None:
        await store.configure_queue("q", DROPS)
        first = await one(store, latest(mode))
        clock.advance("1s")
        await put_in(store, job(), job())
        assert await ending(store, first) == (State.CANCELLED, Reason.SUPERSEDED)
        second = latest(mode)
        assert await said(store, second) == Enqueued(second.id, True)

    async def test_a_dropped_job_behind_a_running_one(self, store: Store, clock: MovableClock) -> None:
        """The next job waits for the running job in the same way."""
        await store.configure_queue("q", DROPS)
        hand, claim = await running(store, latest("keep_last"))
        waiting = await one(store, latest("keep_last"))
        clock.advance("1s")
        await put_in(store, job(), job())
        assert await ending(store, waiting) == (State.CANCELLED, Reason.SUPERSEDED)
        third = await one(store, latest("keep_last"))
        assert await state(store, third) == State.BLOCKED
        await hand.succeed(claim)
        assert await state(store, third) == State.READY

    @pytest.mark.parametrize("mode", MODES)
    async def test_a_job_replaced_by_the_batch_is_not_dropped(
        self, store: Store, clock: MovableClock, mode: KeyMode
    ) -> None:
        """It is the oldest job and belongs to this batch: the next oldest is dropped."""
        await store.configure_queue("q", DROPS)
        first = await one(store, latest(mode))
        clock.advance("1s")
        second = await one(store)
        clock.advance("1s")
        third = job()
        await put_in(store, third, latest(mode, record=b"2"))
        assert (await row(store, first)).record == b"2"
        assert await ending(store, second) == (State.CANCELLED, Reason.SUPERSEDED)
        assert await state(store, third) == State.READY
        await full(store, latest(mode), job(), job())

    async def test_several_jobs_of_one_key_count_once(self, store: Store) -> None:
        await store.configure_queue("q", ERRORS)
        batch = [latest("debounce", record=b"%d" % n) for n in range(5)]
        made = await put_in(store, *batch, job())
        assert [each.created for each in made] == [True, False, False, False, False, True]
        await full(store, job())

    async def test_an_enqueue_of_a_kept_key_needs_no_depth(self, store: Store) -> None:
        """And an enqueue with other arguments is refused at once, without waiting for depth."""
        await store.configure_queue("q", QueueSettings(max_depth=1))
        first = await one(store, job(unique=UniqueKey(b"k" * 16, keep=HOUR, print=b"1" * 16)))
        assert await said(store, job(unique=UniqueKey(b"k" * 16, keep=HOUR, print=b"1" * 16))) == Enqueued(
            first.id, False
        )
        with pytest.raises(KeyConflict):
            await one(store, job(unique=UniqueKey(b"k" * 16, keep=HOUR, print=b"2" * 16)))
        await full(store, job(unique=UniqueKey(b"l" * 16, keep=HOUR, print=b"1" * 16)))
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one())
        assert await said(store, job(unique=UniqueKey(b"k" * 16, keep=HOUR, print=b"1" * 16))) == Enqueued(
            first.id, False
        )
        await one(store, job(unique=UniqueKey(b"l" * 16, keep=HOUR, print=b"1" * 16)))

    async def test_many_producers_never_exceed_the_depth(self, store: Store, second_store: Store) -> None:
        """Each batch replaces a job and brings another job that drops an old one. Workers claim some meanwhile."""
        await store.configure_queue("q", QueueSettings(max_depth=5, on_full="drop_oldest"))
        keys = [bytes([n]) * 16 for n in range(3)]

        async def produce(own: Store, n: int) -> None:
            for turn in range(10):
                key = keys[(n + turn) % 3]
                await put_in(own, latest("keep_last", key=key, record=b"%d" % turn), job())

        async def work() -> None:
            hand = await Hand(second_store).join()
            for _ in range(10):
                await hand.succeed(*await hand.take(2))

        await asyncio.gather(work(), *(produce(each, n) for n in range(3) for each in (store, second_store)))
        counts = await store.count(Query.where(queues=["q"]))
        assert counts[State.READY] + counts[State.BLOCKED] <= 5
        assert counts[State.RUNNING] == 0
        await store.configure_queue("q", QueueSettings(max_depth=counts[State.READY] + counts[State.BLOCKED] + 1))
        await one(store)
        await full(store, job())


@pytest.mark.asyncio
class TestReplacedInDisabledQueues:
    @pytest.mark.parametrize("mode", MODES)
    async def test_a_rejecting_queue_refuses_a_replacement(self, store: Store, mode: KeyMode) -> None:
        """A repeat of an accepted batch is still answered."""
        first, again = latest(mode, record=b"1"), latest(mode, record=b"2")
        await one(store, first)
        batch = JobBatch(id=new_id().bytes, jobs=(again,))
        await store.enqueue(batch)
        await store.disable_queues(["q"], DisabledMode.REJECT, "ann")
        with pytest.raises(QueueDisabled):
            await put_in(store, latest(mode, record=b"3"))
        assert (await row(store, first)).record == b"2"
        assert await store.enqueue(JobBatch(id=batch.id, jobs=(again,), retry=True)) == [Enqueued(first.id, False)]

    @pytest.mark.parametrize("mode", MODES)
    async def test_skip_leaves_a_replaced_job_waiting(self, store: Store, mode: KeyMode) -> None:
        """The job was accepted before, and the newest enqueue only changes it."""
        first = await one(store, latest(mode, record=b"1"))
        await store.disable_queues(["q"], DisabledMode.SKIP)
        assert await said(store, latest(mode, record=b"2")) == Enqueued(first.id, False)
        found = await row(store, first)
        assert (found.record, found.reason) == (b"2", None)

    @pytest.mark.parametrize("mode", MODES)
    async def test_skip_ends_new_jobs_and_releases_the_key(self, store: Store, mode: KeyMode) -> None:
        await store.disable_queues(["q"], DisabledMode.SKIP)
        first, second = latest(mode), latest(mode)
        for each in (first, second):
            assert await said(store, each) == Enqueued(each.id, True)
            assert await ending(store, each) == (State.CANCELLED, Reason.SKIPPED)
        await store.disable_queues(["q"], None)
        third = latest(mode)
        assert await said(store, third) == Enqueued(third.id, True)
        assert (await row(store, third)).reason is None

    @pytest.mark.parametrize("mode", MODES)
    async def test_a_job_moved_to_a_skipping_queue_ends(self, store: Store, mode: KeyMode) -> None:
        await store.disable_queues(["other"], DisabledMode.SKIP)
        first = await one(store, latest(mode))
        child = await one(store, job(after=[first]))
        await put_in(store, latest(mode, queue="other"))
        assert await ending(store, first) == (State.CANCELLED, Reason.SKIPPED)
        assert await ending(store, child) == (State.CANCELLED, Reason.PARENT)
