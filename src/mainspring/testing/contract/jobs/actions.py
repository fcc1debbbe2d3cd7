"""Actions of users: retry, run now, reprioritise, delete; for one job and in slices."""

from __future__ import annotations

import pytest

from mainspring.common.clock import MovableClock
from mainspring.errors import MainspringError
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import ActResult, NewJob
from mainspring.states import Action, Reason, State
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
    outcomes,
    put_in,
    row,
    running,
    state,
)

__all__ = [
    "TestActionsInSlices",
    "TestDelete",
    "TestQueriesOfActions",
    "TestReprioritise",
    "TestRetryByHand",
    "TestRunNow",
]


BY_HAND = [Action.CANCEL, Action.RETRY, Action.RUN_NOW, Action.REPRIORITISE, Action.DELETE]


async def do(store: Store, action: Action, *jobs: NewJob | bytes, priority: int = 0) -> ActResult:
    wanted = tuple(each if isinstance(each, bytes) else each.id for each in jobs)
    return await store.act(action, Query(ids=wanted), priority=priority)


@pytest.mark.asyncio
class TestRetryByHand:
    async def test_a_dead_job_is_ready_in_a_new_epoch(self, store: Store) -> None:
        """Attempts from 1, no crashes, the same priority, and a growing token."""
        hand, claim = await running(store, job(priority=4))
        await hand.kill(claim)
        said = await do(store, Action.RETRY, claim.id)
        assert (said.done, said.refused) == ((claim.id,), ())
        found = await row(store, claim)
        assert (found.state, found.reason, found.attempt, found.crashes) == (State.READY, None, 0, 0)
        assert (found.priority, found.epoch, found.token) == (4, claim.epoch + 1, claim.token)
        again = await hand.take_one()
        assert (again.attempt, again.epoch) == (1, claim.epoch + 1)
        assert again.token > claim.token

    @pytest.mark.parametrize("end", ["succeeded", "cancelled"])
    async def test_every_final_state_can_be_retried(self, store: Store, end: str) -> None:
        hand, claim = await running(store)
        await hand.turn(Ack.succeeded(lease(claim), b"1") if end == "succeeded" else Ack.cancelled(lease(claim)))
        assert (await do(store, Action.RETRY, claim.id)).done == (claim.id,)
        found = await row(store, claim)
        assert (found.state, found.result, found.finished) == (State.READY, None, None)

    async def test_a_retried_job_is_found_once(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.kill(claim)
        await do(store, Action.RETRY, claim.id)
        counts = await store.count(Query.everything())
        assert (counts[State.READY], counts[State.DEAD], sum(counts.values())) == (1, 0, 1)

    async def test_attempts_of_earlier_epochs_stay(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.kill(claim)
        await do(store, Action.RETRY, claim.id)
        again = await hand.take_one(f"{claim.queue}/any")
        await hand.turn(Ack.dead(lease(again), ERROR, Reason.NOT_RETRYABLE))
        assert [(attempt.epoch, attempt.attempt) for attempt in await store.attempts(claim.id)] == [
            (claim.epoch, 1), (claim.epoch + 1, 1),
        ]  # fmt: skip

    async def test_the_old_owners_ack_does_not_reach_the_new_epoch(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.kill(claim)
        await do(store, Action.RETRY, claim.id)
        before = await row(store, claim)
        said = await hand.turn(Ack.dead(lease(claim), ERROR, Reason.NOT_RETRYABLE))
        assert said.already == ((claim.id, claim.token),)
        assert await row(store, claim) == before

    async def test_a_crashed_job_is_no_suspect_any_more(self, store: Store) -> None:
        hand, claim = await running(store, job(crashes=1))
        await hand.crash()
        await do(store, Action.RETRY, claim.id)
        found = await row(store, claim)
        assert (found.crashes, found.lane) == (0, LANE)
        other = await Hand(store).join()
        assert len(await other.take(1, suspects=0)) == 1

    async def test_a_cancel_order_does_not_outlive_its_epoch(self, store: Store) -> None:
        hand, claim = await running(store)
        await do(store, Action.CANCEL, claim.id)
        await hand.turn(Ack.cancelled(lease(claim)))
        await do(store, Action.RETRY, claim.id)
        again = await hand.take_one(f"{claim.queue}/any")
        assert (await hand.turn()).orders == ()
        await hand.succeed(again)
        assert await state(store, claim) == State.SUCCEEDED

    async def test_an_expired_job_can_be_retried(self, store: Store, clock: MovableClock) -> None:
        """The ``expires`` that has passed does not end the new epoch before it began."""
        made = await one(store, job(expires_in=SECOND))
        clock.advance("2s")
        await store.promote()
        await do(store, Action.RETRY, made)
        await store.promote()
        hand = await Hand(store).join()
        assert (await hand.take_one()).id == made.id

    async def test_limits_apply_in_the_new_epoch(self, store: Store) -> None:
        gate = bucket("gate", 1)
        first, second = job(buckets=[gate]), job(buckets=[gate])
        await put_in(store, first, second)
        hand = await Hand(store).join()
        for _ in range(2):
            await hand.kill(*await hand.take(1))
        await do(store, Action.RETRY, first, second)
        assert len(await hand.take(9)) == 1


@pytest.mark.asyncio
class TestRunNow:
    async def test_a_scheduled_job_is_ready(self, store: Store) -> None:
        made = await one(store, job(delay=60 * SECOND))
        assert (await do(store, Action.RUN_NOW, made)).done == (made.id,)
        assert await state(store, made) == State.READY
        hand = await Hand(store).join()
        assert (await hand.take_one()).id == made.id

    async def test_a_retrying_job_is_ready_with_its_attempts(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=60 * SECOND))
        await do(store, Action.RUN_NOW, claim.id)
        assert (await hand.take_one(f"{claim.queue}/any")).attempt == 2

    async def test_a_job_that_was_run_now_is_not_promoted_again(self, store: Store, clock: MovableClock) -> None:
        made = await one(store, job(delay=SECOND))
        await do(store, Action.RUN_NOW, made)
        clock.advance("2s")
        assert (await store.promote()).promoted == 0


@pytest.mark.asyncio
class TestReprioritise:
    async def test_a_new_priority_changes_the_order(self, store: Store) -> None:
        first, second = job(), job()
        await put_in(store, first, second)
        assert (await do(store, Action.REPRIORITISE, second, priority=50)).done == (second.id,)
        hand = await Hand(store).join()
        assert ids(await hand.take(2)) == ids([second, first])

    async def test_a_reprioritised_job_keeps_its_seq(self, store: Store) -> None:
        first, second = job(priority=5), job()
        await put_in(store, first, second)
        await do(store, Action.REPRIORITISE, first)
        hand = await Hand(store).join()
        assert ids(await hand.take(2)) == ids([first, second])

    async def test_a_scheduled_job_keeps_its_new_priority(self, store: Store, clock: MovableClock) -> None:
        made = await one(store, job(delay=SECOND))
        await do(store, Action.REPRIORITISE, made, priority=-7)
        clock.advance("1s")
        await store.promote()
        assert (await row(store, made)).priority == -7


@pytest.mark.asyncio
class TestDelete:
    async def test_a_deleted_job_is_not_found(self, store: Store) -> None:
        made = await one(store)
        assert (await do(store, Action.DELETE, made)).done == (made.id,)
        assert await gone(store, made)
        hand = await Hand(store).join()
        assert await hand.take(5) == ()
        assert sum((await store.count(Query.everything())).values()) == 0

    async def test_delete_deletes_the_attempts(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.kill(claim)
        assert await outcomes(store, claim) == [Outcome.FAILED]
        await do(store, Action.DELETE, claim.id)
        assert await store.attempts(claim.id) == []

    async def test_a_repeated_ack_of_a_deleted_job_is_answered(self, store: Store) -> None:
        """The row that would give ``already`` is deleted: the ack is stale and restores nothing."""
        hand, claim = await running(store)
        await hand.succeed(claim)
        await do(store, Action.DELETE, claim.id)
        said = await hand.turn(Ack.succeeded(lease(claim)))
        assert said.stale == ((claim.id, claim.token),)
        assert await gone(store, claim)

    async def test_a_running_job_is_refused(self, store: Store) -> None:
        hand, claim = await running(store)
        said = await do(store, Action.DELETE, claim.id)
        assert (said.done, said.refused) == ((), ((claim.id, State.RUNNING),))
        await hand.succeed(claim)

    async def test_the_id_is_free_again(self, store: Store) -> None:
        made = await one(store, job(priority=1))
        await do(store, Action.DELETE, made)
        (said,) = await put_in(store, job(id=made.id, priority=2))
        assert said.created
        assert (await row(store, made)).priority == 2


@pytest.mark.asyncio
class TestQueriesOfActions:
    @pytest.mark.parametrize("action", BY_HAND)
    async def test_an_empty_query_is_refused(self, store: Store, action: Action) -> None:
        made = await one(store)
        with pytest.raises(MainspringError):
            await store.act(action, Query())
        assert await state(store, made) == State.READY

    async def test_a_query_with_no_ids_matches_no_job(self, store: Store) -> None:
        made = await one(store)
        assert (await store.act(Action.DELETE, Query(ids=()))).done == ()
        assert await state(store, made) == State.READY

    async def test_everything_matches_all_jobs(self, store: Store) -> None:
        jobs = [job(), job(delay=5), job(queue="other")]
        await put_in(store, *jobs)
        assert set((await store.act(Action.CANCEL, Query.everything())).done) == set(ids(jobs))

    async def test_all_conditions_hold_at_once(self, store: Store) -> None:
        wanted, other = job(queue="a", task="x"), [job(queue="a", task="y"), job(queue="b", task="x")]
        late = job(queue="a", task="x", delay=SECOND)
        await put_in(store, wanted, *other, late)
        query = Query.where(queues=["a"], tasks=["x"], states=[State.READY])
        assert (await store.act(Action.CANCEL, query)).done == (wanted.id,)

    async def test_an_unknown_id_is_neither_done_nor_refused(self, store: Store) -> None:
        assert await do(store, Action.CANCEL, job()) == ActResult()

    async def test_an_action_that_users_cannot_do_is_refused(self, store: Store) -> None:
        """Claims and acks are for workers."""
        made = await one(store)
        for action in (Action.CLAIM, Action.ACK_SUCCEEDED, Action.RESCUE, Action.PROMOTE, Action.ENQUEUE):
            with pytest.raises((MainspringError, ValueError)):
                await do(store, action, made)
        assert await state(store, made) == State.READY


async def in_slices(store: Store, action: Action, query: Query, *, priority: int = 0) -> list[bytes]:
    """As a caller does it: again while there is more. It must end."""
    done: list[bytes] = []
    for _ in range(20):
        said = await store.act(action, query, limit=2, priority=priority)
        assert len(said.done) <= 2
        done += said.done
        if not said.more:
            return done
    raise AssertionError(f"{action} in slices does not come to an end")


@pytest.mark.asyncio
class TestActionsInSlices:
    @pytest.mark.parametrize("action", [Action.CANCEL, Action.DELETE, Action.REPRIORITISE])
    async def test_waiting_jobs_in_slices(self, store: Store, action: Action) -> None:
        jobs = [job() for _ in range(5)]
        await put_in(store, *jobs)
        done = await in_slices(store, action, Query.where(queues=["q"]), priority=9)
        assert set(done) == set(ids(jobs))

    async def test_run_now_in_slices(self, store: Store) -> None:
        jobs = [job(delay=SECOND) for _ in range(5)]
        await put_in(store, *jobs)
        done = await in_slices(store, Action.RUN_NOW, Query.where(queues=["q"]))
        assert sorted(done) == sorted(ids(jobs))

    async def test_retry_in_slices(self, store: Store) -> None:
        jobs = [job() for _ in range(5)]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        await hand.kill(*await hand.take(5))
        done = await in_slices(store, Action.RETRY, Query.where(states=[State.DEAD]))
        assert sorted(done) == sorted(ids(jobs))
        assert (await store.count(Query.everything()))[State.READY] == 5

    async def test_cancel_over_running_jobs_reaches_every_one(self, store: Store) -> None:
        """Jobs that have an order already do not fill the next slice."""
        await put_in(store, *(job() for _ in range(5)))
        hand = await Hand(store).join()
        await hand.take(5)
        await in_slices(store, Action.CANCEL, Query.where(queues=["q"]))
        assert len((await hand.turn()).orders) == 5

    async def test_a_slice_that_is_not_full_has_no_more(self, store: Store) -> None:
        await put_in(store, job(), job())
        assert not (await store.act(Action.CANCEL, Query.where(queues=["q"]), limit=5)).more
