"""The depth of a queue: exact over all producers; jobs that were accepted before are never refused."""

from __future__ import annotations

import asyncio

import pytest

from mainspring.common.clock import MovableClock
from mainspring.common.ids import new_id
from mainspring.errors import QueueFull
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import Enqueued, FollowUp, JobBatch, NewJob, UniqueKey
from mainspring.queues.records import DisabledMode, QueueSettings
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import (
    ERROR,
    SECOND,
    Hand,
    ending,
    gone,
    ignoring,
    job,
    lease,
    one,
    put_in,
    row,
    running,
    state,
)

__all__ = ["TestAcceptedJobs", "TestDepth", "TestDropOldest"]

ERRORS = QueueSettings(max_depth=3)
DROPS = QueueSettings(max_depth=3, on_full="drop_oldest")


async def full(store: Store, *jobs: NewJob) -> None:
    """These are refused, and nothing of them is there."""
    with pytest.raises(QueueFull):
        await put_in(store, *jobs)
    assert all([await gone(store, each) for each in jobs])


@pytest.mark.asyncio
class TestDepth:
    async def test_no_more_jobs_wait_than_max_depth(self, store: Store, second_store: Store) -> None:
        await store.configure_queue("q", ERRORS)
        await put_in(store, job(), job())
        await one(second_store)
        await full(second_store, job())
        await full(store, job(buckets=[], marks=["red"]))
        await one(store, job(queue="other"))

    async def test_a_batch_that_is_too_large_is_refused_as_a_whole(self, store: Store) -> None:
        """Also its jobs for queues that are not full, and its unique keys."""
        await store.configure_queue("q", ERRORS)
        keyed = job(queue="other", unique=UniqueKey(b"k" * 16))
        await full(store, keyed, job(), job(), job(), job())
        assert (await put_in(store, job(queue="other", unique=UniqueKey(b"k" * 16))))[0].created
        await put_in(store, job(), job(), job())

    async def test_every_waiting_state_counts(self, store: Store) -> None:
        """Blocked, scheduled, retrying and ready jobs. Running and ended jobs do not count."""
        await store.configure_queue("q", ERRORS)
        hand, claim = await running(store, job())
        await put_in(store, job(delay=SECOND), job(after=[job(id=claim.id)]))
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=SECOND))
        await full(store, job())
        await store.act(Action.CANCEL, Query(ids=(claim.id,)))
        assert (await put_in(store, job()))[0].created

    async def test_a_claim_frees_depth(self, store: Store) -> None:
        await store.configure_queue("q", ERRORS)
        await put_in(store, job(), job(), job())
        hand = await Hand(store).join()
        claims = await hand.take(2)
        await put_in(store, job(), job())
        await full(store, job())
        await hand.succeed(*claims)
        await full(store, job())

    async def test_jobs_that_waited_before_the_setting_count(self, store: Store) -> None:
        hand, claim = await running(store, job())
        await put_in(store, job(), job(delay=SECOND))
        await store.configure_queue("q", ERRORS)
        await one(store)
        await full(store, job())
        await hand.turn(Ack.interrupted(lease(claim)))
        assert len(await hand.take(1)) == 1
        await full(store, job())
        assert len(await hand.take(1)) == 1
        await one(store)

    async def test_enqueue_now_obeys_the_depth(self, store: Store) -> None:
        await store.configure_queue("q", ERRORS)
        store.enqueue_now(JobBatch(id=new_id().bytes, jobs=(job(), job(), job())))
        with pytest.raises(QueueFull, match="'q' is full"):
            store.enqueue_now(JobBatch(id=new_id().bytes, jobs=(job(),)))

    async def test_the_error_has_depth_and_retry_after(self, store: Store, clock: MovableClock) -> None:
        """Estimated from how long the waiting jobs have waited: three took six seconds."""
        await store.configure_queue("q", QueueSettings(max_depth=3, on_full="wait"))
        await put_in(store, job(), job(), job())
        clock.advance("6s")
        with pytest.raises(QueueFull) as said:
            await put_in(store, job())
        assert (said.value.queue, said.value.max_depth, said.value.waits) == ("q", 3, True)
        assert said.value.retry_after == pytest.approx(2.0, abs=0.6)

    async def test_a_repeated_enqueue_needs_no_depth(self, store: Store) -> None:
        await store.configure_queue("q", ERRORS)
        jobs = [job(), job(), job()]
        await put_in(store, *jobs)
        for retry in (True, False):
            assert await put_in(store, *jobs, retry=retry) == [Enqueued(each.id, False) for each in jobs]

    async def test_an_enqueue_that_returns_the_holder_needs_no_depth(self, store: Store) -> None:
        """And a job that supersedes another uses the depth of that job."""
        await store.configure_queue("q", ERRORS)
        holder = job(unique=UniqueKey(b"k" * 16))
        await put_in(store, holder, job(), job())
        assert await put_in(store, job(unique=UniqueKey(b"k" * 16))) == [Enqueued(holder.id, False)]
        assert (await put_in(store, job(unique=UniqueKey(b"k" * 16, conflict="replace"))))[0].created
        assert await ending(store, holder) == (State.CANCELLED, Reason.SUPERSEDED)

    async def test_a_depth_can_be_changed_and_removed(self, store: Store, second_store: Store) -> None:
        await store.configure_queue("q", ERRORS)
        await put_in(store, job(), job(), job())
        await second_store.configure_queue("q", QueueSettings(max_depth=4))
        await one(store)
        await second_store.configure_queue("q", QueueSettings(max_depth=2))
        await full(store, job())
        await second_store.configure_queue("q", None)
        await put_in(store, *(job() for _ in range(9)))
        await second_store.configure_queue("q", QueueSettings(max_depth=14))
        await one(store)
        await full(store, job())

    async def test_many_producers_never_exceed_the_depth(self, store: Store, second_store: Store) -> None:
        await store.configure_queue("q", QueueSettings(max_depth=10))
        said = await asyncio.gather(
            *(put_in(each, job(), job()) for _ in range(10) for each in (store, second_store)), return_exceptions=True
        )
        assert sum(isinstance(each, QueueFull) for each in said) == 15
        assert (await store.count(Query.where(queues=["q"])))[State.READY] == 10


@pytest.mark.asyncio
class TestAcceptedJobs:
    async def test_a_batch_of_a_running_job_is_accepted(self, store: Store) -> None:
        """And counts."""
        await store.configure_queue("q", ERRORS)
        await put_in(store, job(), job(), job())
        await store.enqueue(JobBatch(id=new_id().bytes, jobs=(job(), job()), accepted=True, retry=True))
        hand = await Hand(store).join()
        await hand.take(2)
        await full(store, job())

    async def test_a_follow_up_job_is_accepted(self, store: Store) -> None:
        """And counts."""
        await store.configure_queue("q", ERRORS)
        next_one = job(id=new_id().bytes[:14] + b"\0\0")
        hand, claim = await running(store, job(queue="first", follows=[FollowUp(State.SUCCEEDED, next_one)]))
        await put_in(store, job(), job(), job())
        await hand.succeed(claim)
        assert len(await hand.take(1)) == 1
        await full(store, job())

    async def test_retries_and_rescues_are_accepted(self, store: Store, clock: MovableClock) -> None:
        await store.configure_queue("q", ERRORS)
        await put_in(store, *(job() for _ in range(3)))
        hand = await Hand(store).join()
        failed, lost, dead = await hand.take(3)
        await put_in(store, *(job() for _ in range(3)))
        await hand.turn(Ack.failed(lease(failed), ERROR, retry_in=SECOND))
        await hand.kill(dead)
        await store.rescue(hand.name, hand.beats, Outcome.LOST)
        assert (await store.act(Action.RETRY, Query(ids=(dead.id,)))).done == (dead.id,)
        clock.advance("1s")
        await store.promote()
        assert [await state(store, each) for each in (failed, lost, dead)] == [State.READY] * 3
        hand = await Hand(store).join()
        await hand.take(3)
        await full(store, job())

    async def test_retries_by_hand_count_for_the_depth(self, store: Store) -> None:
        """A job that had ended before the depth was set, and a job that was skipped."""
        before = await one(store)
        await store.act(Action.CANCEL, Query(ids=(before.id,)))
        await store.configure_queue("q", ERRORS)
        await store.disable_queues(["q"], DisabledMode.SKIP)
        skipped = await one(store)
        await store.disable_queues(["q"], None)
        await store.act(Action.RETRY, Query(ids=(before.id, skipped.id)))
        await one(store)
        await full(store, job())


@pytest.mark.asyncio
class TestDropOldest:
    async def test_the_oldest_jobs_are_dropped(self, store: Store, clock: MovableClock) -> None:
        """Their state and reason show why they ended."""
        await store.configure_queue("q", DROPS)
        jobs = []
        for _ in range(5):
            jobs.append(await one(store))
            clock.advance("1s")
        assert [await state(store, each) for each in jobs[2:]] == [State.READY] * 3
        found = await row(store, jobs[0])
        assert (found.state, found.reason) == (State.CANCELLED, Reason.SUPERSEDED)
        assert "queue 'q' was full" in (found.note or "")

    async def test_a_running_job_is_never_dropped(self, store: Store, clock: MovableClock) -> None:
        await store.configure_queue("q", DROPS)
        hand, claim = await running(store, job())
        clock.advance("1s")
        jobs = [job() for _ in range(3)]
        await put_in(store, *jobs)
        clock.advance("1s")
        await put_in(store, job(), job())
        assert await state(store, claim) == State.RUNNING
        assert [await state(store, each) for each in jobs].count(State.CANCELLED) == 2
        await hand.succeed(claim)

    async def test_scheduled_jobs_are_dropped_too(self, store: Store, clock: MovableClock) -> None:
        await store.configure_queue("q", DROPS)
        late = await one(store, job(delay=9 * SECOND))
        clock.advance("1s")
        await put_in(store, job(), job(), job())
        assert await ending(store, late) == (State.CANCELLED, Reason.SUPERSEDED)

    async def test_a_batch_larger_than_max_depth_is_refused(self, store: Store) -> None:
        """No job is dropped for the batch."""
        await store.configure_queue("q", DROPS)
        kept = await one(store)
        await full(store, *(job() for _ in range(4)))
        assert await state(store, kept) == State.READY

    async def test_dependents_of_a_dropped_job_are_resolved(self, store: Store, clock: MovableClock) -> None:
        """A child ends with it, and its follow-up job is made."""
        await store.configure_queue("q", DROPS)
        follow = job(id=new_id().bytes[:14] + b"\0\0", queue="after")
        oldest = await one(store, job(follows=[FollowUp(State.CANCELLED, follow)]))
        child = await one(store, job(queue="other", after=[oldest]))
        clock.advance("1s")
        await put_in(store, job(), job(), job())
        assert await ending(store, child) == (State.CANCELLED, Reason.PARENT)
        hand = await Hand(store).join()
        assert len(await hand.take(9, "after/any")) == 1

    async def test_a_dropped_job_wakes_the_listeners_of_its_dependents(self, store: Store, second_store: Store) -> None:
        """In their queue, not in the queue of the enqueue. The producer has notified no queue before."""
        await store.configure_queue("q", QueueSettings(max_depth=1, on_full="drop_oldest"))
        oldest = await one(store)
        child = await one(store, job(queue="other", after=[ignoring(oldest)]))
        listener = await store.listen("w", ["other"])
        while await listener.wait(0.05):
            pass  # whatever the enqueues left behind
        waiting = asyncio.create_task(listener.wait(30.0))
        await one(second_store)
        assert await waiting
        assert await state(store, child) == State.READY
        listener.close()

    async def test_many_jobs_are_dropped_at_once(self, store: Store, second_store: Store) -> None:
        await store.configure_queue("q", QueueSettings(max_depth=5, on_full="drop_oldest"))
        await asyncio.gather(*(put_in(each, job(), job()) for _ in range(10) for each in (store, second_store)))
        counts = await store.count(Query.where(queues=["q"]))
        assert (counts[State.READY], counts[State.CANCELLED]) == (5, 35)
