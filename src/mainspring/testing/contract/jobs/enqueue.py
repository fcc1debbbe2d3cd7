"""Enqueue: all jobs of a batch or none, in order, and once."""

from __future__ import annotations

from functools import partial

import pytest
from msgspec.structs import replace

from mainspring.common.clock import MovableClock
from mainspring.common.ids import new_id, new_ids
from mainspring.errors import StoreConflict
from mainspring.jobs.outcomes import Ack
from mainspring.jobs.query import Query
from mainspring.jobs.records import Edge, Enqueued, JobBatch
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import (
    HOUR,
    LANE,
    SECOND,
    Hand,
    bucket,
    ending,
    gone,
    ids,
    ignoring,
    job,
    lease,
    one,
    put_in,
    row,
    running,
    state,
)

__all__ = ["TestEnqueue", "TestParents", "TestRecords"]


@pytest.mark.asyncio
class TestEnqueue:
    async def test_a_plain_job_is_ready(self, store: Store, clock: MovableClock) -> None:
        """It is in its base lane, without attempts, without an owner, with the store's time of the enqueue."""
        made = await one(store, job(priority=7, crashes=2))
        found = await row(store, made)
        assert (found.state, found.reason, found.lane, found.queue, found.task) == (
            State.READY, None, LANE, "q", made.task,
        )  # fmt: skip
        assert (found.priority, found.attempt, found.crashes, found.crash_limit, found.deps) == (7, 0, 0, 2, 0)
        assert (found.enqueued, found.due, found.expires) == (clock.now_us(), None, None)
        assert not found.early
        assert not found.ordered

    async def test_replies_come_in_the_order_of_the_batch(self, store: Store) -> None:
        jobs = [job() for _ in range(5)][::-1]
        assert await put_in(store, *jobs) == [Enqueued(each.id, True) for each in jobs]

    async def test_seq_follows_the_order_of_the_batch_not_the_ids(self, store: Store) -> None:
        jobs = [job() for _ in range(5)][::-1]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        assert ids(await hand.take(5)) == ids(jobs)

    async def test_a_delay_makes_a_job_scheduled(self, store: Store, clock: MovableClock) -> None:
        """The delay counts from the store's now."""
        made = await one(store, job(delay=30 * SECOND))
        found = await row(store, made)
        assert (found.state, found.due) == (State.SCHEDULED, clock.now_us() + 30 * SECOND)

    async def test_a_run_at_in_the_future_makes_a_job_scheduled(self, store: Store, clock: MovableClock) -> None:
        made = await one(store, job(run_at=clock.now_us() + SECOND))
        found = await row(store, made)
        assert (found.state, found.due) == (State.SCHEDULED, clock.now_us() + SECOND)

    async def test_a_run_at_in_the_past_makes_a_job_ready(self, store: Store, clock: MovableClock) -> None:
        made = await one(store, job(run_at=clock.now_us() - SECOND))
        assert await state(store, made) == State.READY

    async def test_expires_counts_from_the_stores_now(self, store: Store, clock: MovableClock) -> None:
        made = await one(store, job(expires_in=HOUR))
        assert (await row(store, made)).expires == clock.now_us() + HOUR

    async def test_a_thousand_jobs_in_one_batch(self, store: Store) -> None:
        """Large batches are one step too, each job with its own options."""
        jobs = [job(id=made.bytes, priority=n % 3, delay=SECOND * (n % 2)) for n, made in enumerate(new_ids(1000))]
        said = await put_in(store, *jobs)
        assert all(each.created for each in said)
        counts = await store.count(Query.everything())
        assert (counts[State.READY], counts[State.SCHEDULED]) == (500, 500)

    async def test_jobs_of_several_tasks_are_claimed_in_the_order_of_the_batch(self, store: Store) -> None:
        """Also new jobs among others that exist already."""
        jobs = [job(task=f"task-{n % 3}", crashes=3 + n % 2) for n in range(40)]
        await put_in(store, *jobs[10:30:3])
        said = await put_in(store, *jobs)
        assert [each.created for each in said] == [each not in jobs[10:30:3] for each in jobs]
        hand = await Hand(store).join()
        new = [each for each in jobs if each not in jobs[10:30:3]]
        assert ids(await hand.take(50)) == ids([*jobs[10:30:3], *new])

    @pytest.mark.parametrize("delay", [0, SECOND])
    async def test_every_job_with_equal_options_gets_the_options(
        self, store: Store, clock: MovableClock, delay: int
    ) -> None:
        """A store can write common options once. A job with other options among them keeps its own."""
        alike = partial(job, task="t", queue="mine", kind="async", priority=7, crashes=5, early=True, delay=delay)
        jobs = [alike(record=b"%d" % n) for n in range(4)]
        odd = job(id=jobs[1].id, queue="q", delay=2 * SECOND, expires_in=HOUR, record=b"odd")
        for batch in (jobs, [jobs[0], odd, *jobs[2:]]):
            await put_in(store, *batch)
            for asked in batch:
                found = await row(store, asked)
                assert (found.task, found.queue, found.lane) == (asked.task, asked.queue, f"{asked.queue}/{asked.kind}")
                assert (found.priority, found.crash_limit, found.early) == (asked.priority, asked.crashes, asked.early)
                assert found.due == (clock.now_us() + asked.delay if asked.delay else None)
                assert found.expires == (clock.now_us() + asked.expires_in if asked.expires_in else None)
                assert found.record == asked.record
            await store.act(Action.DELETE, Query(ids=tuple(ids(batch))))

    async def test_a_job_that_is_twice_in_a_batch_is_made_once(self, store: Store) -> None:
        made, other = job(), job()
        said = await put_in(store, made, other, made)
        assert [each.created for each in said] == [True, True, False]
        hand = await Hand(store).join()
        assert ids(await hand.take(5)) == ids([made, other])

    async def test_nothing_is_inserted_when_one_job_cannot_be(self, store: Store) -> None:
        good, bad = job(), job(after=[Edge(new_id().bytes)])
        with pytest.raises(StoreConflict):
            await put_in(store, good, bad)
        assert await gone(store, good)
        assert await gone(store, bad)

    async def test_an_empty_batch_inserts_nothing(self, store: Store) -> None:
        assert await put_in(store) == []

    async def test_a_batch_sent_twice_is_inserted_once(self, store: Store) -> None:
        """Also without the retry flag, while the job is live. The options of the first batch are kept."""
        made = await one(store, job(priority=1))
        again = job(id=made.id, priority=2)
        assert await put_in(store, again) == [Enqueued(made.id, False)]
        assert (await row(store, made)).priority == 1

    async def test_retry_inserts_only_the_missing_jobs(self, store: Store) -> None:
        first, second = job(), job()
        batch = new_id().bytes
        await store.enqueue(JobBatch(id=batch, jobs=(first,)))
        said = await store.enqueue(JobBatch(id=batch, jobs=(first, second), retry=True))
        assert said == [Enqueued(first.id, False), Enqueued(second.id, True)]

    async def test_retry_finds_a_running_job(self, store: Store) -> None:
        _, claim = await running(store)
        assert await put_in(store, job(id=claim.id), retry=True) == [Enqueued(claim.id, False)]
        assert await state(store, claim) == State.RUNNING

    async def test_retry_finds_a_finished_job(self, store: Store) -> None:
        """The first try arrived, and its job was claimed and finished before the repeat came: it must not run twice."""
        hand, claim = await running(store)
        await hand.succeed(claim)
        assert await put_in(store, job(id=claim.id), retry=True) == [Enqueued(claim.id, False)]
        assert await state(store, claim) == State.SUCCEEDED

    async def test_retry_finds_a_dead_job(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.kill(claim)
        assert await put_in(store, job(id=claim.id), retry=True) == [Enqueued(claim.id, False)]
        assert await state(store, claim) == State.DEAD

    async def test_retry_finds_a_cancelled_job(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.turn(Ack.cancelled(lease(claim)))
        assert await put_in(store, job(id=claim.id), retry=True) == [Enqueued(claim.id, False)]
        assert await state(store, claim) == State.CANCELLED

    async def test_a_delayed_first_try_acts_as_a_retry(self, store: Store) -> None:
        """The repeat came first, and its job was run and ended meanwhile. Also with the blocking enqueue."""
        made, more = job(), job()
        batch = JobBatch(id=new_id().bytes, jobs=(made, more))
        said = await store.enqueue(replace(batch, retry=True))
        assert said == [Enqueued(made.id, True), Enqueued(more.id, True)]
        hand = await Hand(store).join()
        await hand.succeed(*await hand.take(2))
        assert await store.enqueue(batch) == [Enqueued(made.id, False), Enqueued(more.id, False)]
        assert store.enqueue_now(batch) == [Enqueued(made.id, False), Enqueued(more.id, False)]
        assert [await state(store, made), await state(store, more)] == [State.SUCCEEDED] * 2
        assert not await hand.take(2)

    async def test_retry_keeps_the_parents_it_found(self, store: Store) -> None:
        """A repeated batch with edges adds no second edge: one end of the parent frees the child."""
        parent = job()
        child = job(after=[parent])
        await put_in(store, parent, child)
        await put_in(store, parent, child, retry=True)
        assert (await row(store, child)).deps == 1
        hand = await Hand(store).join()
        await hand.succeed(*await hand.take(5))
        assert await state(store, child) == State.READY

    async def test_enqueue_now_inserts_the_same(self, store: Store) -> None:
        parent = job()
        child = job(after=[parent])
        said = store.enqueue_now(JobBatch(id=new_id().bytes, jobs=(parent, child)))
        assert said == [Enqueued(parent.id, True), Enqueued(child.id, True)]
        assert await state(store, parent) == State.READY
        assert await state(store, child) == State.BLOCKED
        again = JobBatch(id=new_id().bytes, jobs=(parent,), retry=True)
        assert store.enqueue_now(again) == [Enqueued(parent.id, False)]


@pytest.mark.asyncio
class TestParents:
    async def test_a_job_with_a_live_parent_is_blocked(self, store: Store) -> None:
        parent = await one(store)
        child = await one(store, job(after=[parent]))
        found = await row(store, child)
        assert (found.state, found.deps) == (State.BLOCKED, 1)

    async def test_a_parent_of_the_same_batch(self, store: Store) -> None:
        """In either order."""
        parent = job()
        younger, older = job(after=[parent]), job(after=[parent])
        await put_in(store, older, parent, younger)
        assert [await state(store, each) for each in (older, parent, younger)] == [
            State.BLOCKED, State.READY, State.BLOCKED,
        ]  # fmt: skip

    async def test_an_unknown_parent_is_named(self, store: Store) -> None:
        missing = new_id()
        with pytest.raises(StoreConflict, match=f"(?i){missing}|{missing.hex}"):
            await put_in(store, job(after=[Edge(missing.bytes)]))

    async def test_a_dead_parent_does_not_hide_a_missing_one(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.kill(claim)
        with pytest.raises(StoreConflict):
            await put_in(store, job(after=[Edge(claim.id), Edge(new_id().bytes)]))

    async def test_a_child_of_a_succeeded_parent_is_ready(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.succeed(claim)
        child = await one(store, job(after=[Edge(claim.id)]))
        found = await row(store, child)
        assert (found.state, found.deps) == (State.READY, 0)

    async def test_a_child_of_a_dead_parent_is_inserted_as_cancelled(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.kill(claim)
        child, waiting = job(after=[Edge(claim.id)]), await one(store)
        assert await put_in(store, child) == [Enqueued(child.id, True)]
        assert await ending(store, child) == (State.CANCELLED, Reason.PARENT)
        assert await state(store, waiting) == State.READY

    async def test_a_child_of_a_cancelled_parent_is_inserted_as_cancelled(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.turn(Ack.cancelled(lease(claim)))
        child = await one(store, job(after=[Edge(claim.id)]))
        assert await ending(store, child) == (State.CANCELLED, Reason.PARENT)

    async def test_a_child_that_ignores_its_dead_parent_is_ready(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.kill(claim)
        child = await one(store, job(after=[Edge(claim.id, "ignore")]))
        assert await state(store, child) == State.READY

    async def test_a_job_inserted_as_cancelled_ends_its_own_children(self, store: Store) -> None:
        """The whole rest of the chain is resolved in the same step."""
        hand, claim = await running(store)
        await hand.kill(claim)
        child = job(after=[Edge(claim.id)])
        grandchild, unmoved = job(after=[child]), job(after=[ignoring(child)])
        await put_in(store, child, grandchild, unmoved)
        assert await ending(store, grandchild) == (State.CANCELLED, Reason.PARENT)
        assert await state(store, unmoved) == State.READY

    async def test_one_final_parent_and_one_live(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.succeed(claim)
        live = await one(store)
        child = await one(store, job(after=[Edge(claim.id), Edge(live.id)]))
        found = await row(store, child)
        assert (found.state, found.deps) == (State.BLOCKED, 1)

    async def test_a_late_child_of_a_final_parent_is_scheduled_by_its_delay(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.succeed(claim)
        child = await one(store, job(after=[Edge(claim.id)], delay=SECOND))
        assert await state(store, child) == State.SCHEDULED


EVERY_BYTE = bytes(range(256))


@pytest.mark.asyncio
class TestRecords:
    @pytest.mark.parametrize("record", [b"", b"{}", b"\x00", EVERY_BYTE, b"\xff\xfe\x00'\"\\;--", b"x" * 1_000_000])
    async def test_a_record_comes_back_byte_for_byte(self, store: Store, record: bytes) -> None:
        made = await one(store, job(record=record))
        assert (await row(store, made)).record == record
        hand = await Hand(store).join()
        assert (await hand.take_one()).record == record

    async def test_results_and_errors_are_bytes_too(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.turn(Ack.succeeded(lease(claim), EVERY_BYTE, error=EVERY_BYTE))
        found = await row(store, claim)
        assert (found.result, found.error) == (EVERY_BYTE, EVERY_BYTE)

    async def test_an_errors_bytes_are_kept_in_the_attempt(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.turn(Ack.failed(lease(claim), EVERY_BYTE, retry_in=0))
        (attempt,) = await store.attempts(claim.id)
        assert attempt.error == EVERY_BYTE

    async def test_names_may_be_any_text(self, store: Store) -> None:
        """Names reach every statement and key: quotes, spaces, braces and wide letters stay what they are."""
        queue, task = 'it\'s; "q" {x}:*%_\\ Größe 🐛', "модуль.задача'%s{}"
        gate = bucket("tenant:it's {7} 🐛", 1)
        made = await one(store, job(queue=queue, task=task, buckets=[gate]))
        hand = await Hand(store, tasks=(task,), queues=(queue,)).join()
        claim = await hand.take_one(f"{queue}/any")
        assert (claim.id, claim.queue, claim.task) == (made.id, queue, task)
        await hand.succeed(claim)
        assert await state(store, made) == State.SUCCEEDED
