"""What the store keeps of a job beside its state: marks, retention, error type, and the reason of a cancel."""

from __future__ import annotations

import pytest

from mainspring.common.clock import MovableClock
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import NewJob, Retention
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import (
    ERROR,
    HOUR,
    SECOND,
    Hand,
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

__all__ = ["TestExpiredIds", "TestKeepOfEveryEnd", "TestLabels", "TestMarks", "TestNotes"]


async def marked(store: Store, *marks: str) -> list[bytes]:
    return sorted(ids((await store.find(Query(marks=marks))).jobs))


@pytest.mark.asyncio
class TestMarks:
    async def test_a_job_is_found_by_its_marks(self, store: Store) -> None:
        """Inserted in bulk, alone, and with an option that takes the slow path."""
        first, second, third = job(marks=["red", "^p"]), job(marks=["red"]), job()
        await put_in(store, first, second, third)
        fourth = await one(store, job(marks=["red"], after=[third]))
        assert await marked(store, "red") == sorted(ids([first, second, fourth]))
        assert await marked(store, "red", "^p") == [first.id]
        assert await marked(store, "blue") == []

    async def test_marks_stay_in_every_state(self, store: Store) -> None:
        jobs = [job(marks=["red"]) for _ in range(4)]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one())
        await hand.kill(await hand.take_one())
        await hand.turn(Ack.cancelled(lease(await hand.take_one())))
        assert await marked(store, "red") == sorted(ids(jobs))
        await store.act(Action.RETRY, Query.where(states=[State.DEAD]))
        assert await marked(store, "red") == sorted(ids(jobs))

    async def test_marks_are_deleted_with_the_job(self, store: Store, clock: MovableClock) -> None:
        """Deleted or pruned: a new job with the same id has only its own marks."""
        waiting, ended = job(marks=["red"]), job(marks=["red"], queue="b")
        await put_in(store, waiting, ended)
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one("b/any"))
        await store.act(Action.DELETE, Query(ids=(waiting.id,)))
        clock.advance("1s")
        await store.prune(Retention(keep=0, keep_at_least=0))
        await put_in(store, job(id=waiting.id), job(id=ended.id))
        assert await marked(store, "red") == []

    async def test_a_repeated_enqueue_adds_no_marks(self, store: Store) -> None:
        made = await one(store, job(marks=["red"]))
        await put_in(store, job(id=made.id, marks=["blue"]), retry=True)
        await put_in(store, job(id=made.id, marks=["blue"]))
        assert (await marked(store, "red"), await marked(store, "blue")) == ([made.id], [])

    async def test_a_thousand_jobs_with_marks_in_one_batch(self, store: Store) -> None:
        jobs = [job(marks=["red", f"n{n % 10}"]) for n in range(1000)]
        await put_in(store, *jobs)
        assert (await store.count(Query(marks=("red",))))[State.READY] == 1000
        assert (await store.count(Query(marks=("n3", "red"))))[State.READY] == 100


@pytest.mark.asyncio
class TestKeepOfEveryEnd:
    """A ``keep`` of the job's own counts from its end, whichever end that is but death."""

    async def pruned(self, store: Store, clock: MovableClock, made: NewJob) -> None:
        clock.advance("9s")
        await store.prune(Retention())
        assert not await gone(store, made)
        clock.advance("2s")
        await store.prune(Retention())
        assert await gone(store, made)

    async def test_keep_of_a_success(self, store: Store, clock: MovableClock) -> None:
        hand, claim = await running(store, made := job(keep=10 * SECOND))
        clock.advance("1h")
        await hand.succeed(claim)
        await self.pruned(store, clock, made)

    async def test_keep_of_a_success_with_dependents(self, store: Store, clock: MovableClock) -> None:
        hand, claim = await running(store, made := job(keep=10 * SECOND))
        await put_in(store, job(after=[made]))
        await hand.succeed(claim)
        await self.pruned(store, clock, made)

    async def test_keep_of_a_cancelled_job(self, store: Store, clock: MovableClock) -> None:
        made = await one(store, job(keep=10 * SECOND))
        clock.advance("1h")
        await store.act(Action.CANCEL, Query(ids=(made.id,)))
        await self.pruned(store, clock, made)

    async def test_keep_longer_than_retention(self, store: Store, clock: MovableClock) -> None:
        kept, plain = job(keep=HOUR), job()
        await put_in(store, kept, plain)
        hand = await Hand(store).join()
        await hand.succeed(*await hand.take(9))
        clock.advance("30m")
        await store.prune(Retention(keep=0, keep_count=0, keep_at_least=0))
        assert await gone(store, plain)
        assert await state(store, kept) == State.SUCCEEDED

    async def test_a_dead_job_ignores_keep(self, store: Store, clock: MovableClock) -> None:
        """Retention decides. After a retry its ``keep`` counts again."""
        hand, claim = await running(store, made := job(keep=10 * SECOND))
        await hand.kill(claim)
        clock.advance("1m")
        await store.prune(Retention())
        assert await state(store, made) == State.DEAD
        await store.act(Action.RETRY, Query(ids=(made.id,)))
        await hand.succeed(await hand.take_one())
        await self.pruned(store, clock, made)

    async def test_a_retried_job_is_not_pruned_while_it_is_live(self, store: Store, clock: MovableClock) -> None:
        hand, claim = await running(store, made := job(keep=10 * SECOND))
        await hand.succeed(claim)
        await store.act(Action.RETRY, Query(ids=(made.id,)))
        clock.advance("1m")
        await store.prune(Retention())
        assert await state(store, made) == State.READY

    @pytest.mark.parametrize("children", [0, 1])
    async def test_the_largest_keep_is_for_ever(self, store: Store, clock: MovableClock, children: int) -> None:
        hand, claim = await running(store, made := job(keep=2**63 - 1))
        await put_in(store, *(job(after=[made]) for _ in range(children)))
        await hand.succeed(claim)
        clock.advance("1000d")
        await store.prune(Retention(keep=0, keep_at_least=0))
        assert not await gone(store, made)


@pytest.mark.asyncio
class TestLabels:
    async def test_dead_jobs_are_grouped_by_error_type(self, store: Store) -> None:
        """Where there was no error, by the reason."""
        await put_in(store, job(), job(), job())
        hand = await Hand(store).join()
        first, second, third = await hand.take(3)
        await hand.kill(first, second, label="shop.errors.Broken")
        await hand.kill(third)
        crashed, _ = await running(store, job(crashes=1))
        await crashed.crash()
        counts = {each.value: each.count for each in await store.tally(Query.everything(), "error")}
        assert counts == {"shop.errors.Broken": 2, "not_retryable": 1, "crashed": 1}
        found = await store.find(Query.where(errors=["shop.errors.Broken"]))
        assert set(ids(found.jobs)) == {first.id, second.id}

    async def test_a_retried_job_gets_a_new_error_type(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.kill(claim, label="A")
        await store.act(Action.RETRY, Query(ids=(claim.id,)))
        await hand.kill(await hand.take_one(f"{claim.queue}/any"), label="B")
        assert [each.value for each in await store.tally(Query.everything(), "error")] == ["B"]


@pytest.mark.asyncio
class TestNotes:
    async def cancel(self, store: Store, which: bytes, reason: str) -> None:
        await store.act(Action.CANCEL, Query(ids=(which,)), reason=reason)

    async def test_the_reason_of_a_cancelled_waiting_job(self, store: Store) -> None:
        made = await one(store)
        await self.cancel(store, made.id, "not needed 🐛")
        assert (await row(store, made)).note == "not needed 🐛"

    @pytest.mark.parametrize("door", ["ack", "rescue", "retire"])
    async def test_the_reason_of_a_cancelled_running_job(self, store: Store, door: str) -> None:
        hand, claim = await running(store)
        await self.cancel(store, claim.id, "not needed")
        await self.cancel(store, claim.id, "said again")
        if door == "ack":
            await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=0))
        elif door == "rescue":
            await hand.crash()
        else:
            await store.retire(hand.name, Outcome.INTERRUPTED)
        found = await row(store, claim)
        assert (found.state, found.reason, found.note) == (State.CANCELLED, Reason.BY_USER, "not needed")

    async def test_a_cancel_without_a_reason(self, store: Store) -> None:
        hand, claim = await running(store)
        await self.cancel(store, claim.id, "")
        await hand.turn(Ack.cancelled(lease(claim)))
        waiting = await one(store)
        await self.cancel(store, waiting.id, "")
        assert [(await row(store, each)).note for each in (claim, waiting)] == [None, None]

    async def test_a_new_epoch_has_no_note(self, store: Store) -> None:
        made = await one(store)
        await self.cancel(store, made.id, "not needed")
        await store.act(Action.RETRY, Query(ids=(made.id,)))
        assert (await row(store, made)).note is None


@pytest.mark.asyncio
class TestExpiredIds:
    async def test_a_promotion_names_the_expired_jobs(self, store: Store, clock: MovableClock) -> None:
        """Neither the jobs that ended with them nor the jobs that ended before."""
        parent, other = job(expires_in=SECOND), job(expires_in=SECOND)
        child, gone_before = job(after=[parent]), job(expires_in=SECOND)
        await put_in(store, parent, other, child, gone_before)
        await store.act(Action.CANCEL, Query(ids=(gone_before.id,)))
        clock.advance("2s")
        said = await store.promote()
        assert (sorted(said.ended), said.expired) == (sorted(ids([parent, other])), 2)
        assert (await store.promote()).ended == ()

    async def test_expired_ids_in_slices(self, store: Store, clock: MovableClock) -> None:
        jobs = [job(expires_in=SECOND) for _ in range(450)]
        await put_in(store, *jobs)
        clock.advance("2s")
        first, second = await store.promote(limit=300), await store.promote(limit=300)
        assert (len(first.ended), len(second.ended)) == (300, 150)
        assert sorted(first.ended + second.ended) == sorted(ids(jobs))
