"""Each kind of ack: the new state, the attempt, and what the store keeps."""

from __future__ import annotations

import msgspec
import pytest

from mainspring.common.clock import MovableClock
from mainspring.common.ids import new_id
from mainspring.jobs.outcomes import Ack, Lease, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import FollowUp
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import (
    ERROR,
    SECOND,
    Hand,
    ending,
    job,
    last_attempt,
    lease,
    one,
    outcomes,
    row,
    running,
    state,
)

__all__ = [
    "TestAckCancelled",
    "TestAckDead",
    "TestAckFailed",
    "TestAckInterrupted",
    "TestAckSnoozed",
    "TestAckSucceeded",
    "TestRunTime",
]

NO_LEASE = Lease(b"", 0)
"""A test replaces it by the lease of its claim."""


@pytest.mark.asyncio
class TestAckSucceeded:
    async def test_a_succeeded_job_is_in_history(self, store: Store, clock: MovableClock) -> None:
        """The row keeps its result, its last token and its owner."""
        hand, claim = await running(store)
        clock.advance("2s")
        await hand.turn(Ack.succeeded(lease(claim), b'{"n":1}', run_us=5))
        found = await row(store, claim)
        assert (found.state, found.reason, found.result, found.error) == (State.SUCCEEDED, None, b'{"n":1}', None)
        assert (found.token, found.worker, found.attempt) == (claim.token, hand.name, 1)
        assert (found.finished, found.enqueued) == (clock.now_us(), claim.enqueued)

    async def test_a_plain_success_keeps_no_attempt_row(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.succeed(claim)
        assert await store.attempts(claim.id) == []

    async def test_earlier_attempts_stay_readable(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=0))
        await store.promote()
        again = await hand.take_one(f"{claim.queue}/any")
        await hand.succeed(again)
        assert await outcomes(store, claim) == [Outcome.FAILED]
        assert (await row(store, claim)).attempt == 2

    async def test_a_repeated_ack_after_a_retry_by_hand_is_already(self, store: Store) -> None:
        """The ack was applied, though the job is no longer in history."""
        hand, claim = await running(store)
        await hand.succeed(claim)
        await store.act(Action.RETRY, Query(ids=(claim.id,)))
        assert (await hand.repeat()).already == (lease(claim),)
        assert await state(store, claim) == State.READY

    async def test_a_success_without_a_result_is_stored(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.turn(Ack.succeeded(lease(claim), error=b"too large"))
        found = await row(store, claim)
        assert (found.result, found.error) == (None, b"too large")


@pytest.mark.asyncio
class TestAckFailed:
    @pytest.mark.parametrize("timed_out", [False, True])
    async def test_a_failed_job_retries_later(self, store: Store, clock: MovableClock, timed_out: bool) -> None:
        """Due after the delay by the store's clock. The attempt counts and is stored with its error."""
        hand, claim = await running(store, job(priority=7))
        clock.advance("2s")
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=30 * SECOND, timed_out=timed_out))
        found = await row(store, claim)
        assert (found.state, found.due, found.attempt) == (State.RETRYING, clock.now_us() + 30 * SECOND, 1)
        assert (found.priority, found.crashes, found.reason) == (7, 0, None)
        kept = await last_attempt(store, claim)
        assert (kept.token, kept.attempt, kept.worker, kept.error) == (claim.token, 1, hand.name, ERROR)
        assert kept.outcome == (Outcome.TIMED_OUT if timed_out else Outcome.FAILED)
        assert kept.ended == clock.now_us()
        assert kept.started <= kept.ended

    async def test_a_retry_without_a_delay_is_retrying(self, store: Store) -> None:
        """The job is retrying, as in the transition table, and the next promotion makes it ready."""
        hand, claim = await running(store)
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=0))
        assert await state(store, claim) == State.RETRYING
        assert (await store.promote()).promoted == 1
        assert await state(store, claim) == State.READY

    async def test_the_next_claim_is_the_next_attempt(self, store: Store) -> None:
        hand, claim = await running(store)
        for expected in (2, 3, 4):
            await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=0))
            await store.promote()
            claim = await hand.take_one(f"{claim.queue}/any")
            assert claim.attempt == expected
        kept = await store.attempts(claim.id)
        assert [attempt.attempt for attempt in kept] == [1, 2, 3]
        assert [attempt.token for attempt in kept] == sorted({attempt.token for attempt in kept})


@pytest.mark.asyncio
class TestAckDead:
    @pytest.mark.parametrize(
        "reason", [Reason.RETRIES_EXHAUSTED, Reason.NOT_RETRYABLE, Reason.TIMED_OUT, Reason.UNDECODABLE]
    )
    async def test_a_dead_job_is_stored_with_its_reason(
        self, store: Store, clock: MovableClock, reason: Reason
    ) -> None:
        hand, claim = await running(store)
        timed_out = reason is Reason.TIMED_OUT
        await hand.turn(Ack.dead(lease(claim), ERROR, reason, timed_out=timed_out))
        found = await row(store, claim)
        assert (found.state, found.reason, found.error, found.attempt) == (State.DEAD, reason, ERROR, 1)
        assert (found.finished, found.worker, found.token) == (clock.now_us(), hand.name, claim.token)
        kept = await last_attempt(store, claim)
        assert (kept.outcome, kept.error) == (Outcome.TIMED_OUT if timed_out else Outcome.FAILED, ERROR)

    async def test_an_early_job_that_was_interrupted_is_dead(self, store: Store) -> None:
        """It began, so it never runs again."""
        hand, claim = await running(store, job(early=True))
        await hand.turn(Ack.lost_early(lease(claim), ERROR))
        assert await ending(store, claim) == (State.DEAD, Reason.NOT_RETRYABLE)
        assert await outcomes(store, claim) == [Outcome.INTERRUPTED]


@pytest.mark.asyncio
class TestAckSnoozed:
    async def test_snoozed_for_a_delay(self, store: Store, clock: MovableClock) -> None:
        """Scheduled again, and the attempt is not counted."""
        hand, claim = await running(store)
        await hand.turn(Ack.snoozed(lease(claim), delay=60 * SECOND))
        found = await row(store, claim)
        assert (found.state, found.due, found.attempt) == (State.SCHEDULED, clock.now_us() + 60 * SECOND, 0)
        kept = await last_attempt(store, claim)
        assert (kept.outcome, kept.attempt, kept.token) == (Outcome.SNOOZED, 1, claim.token)

    async def test_snoozed_until_a_moment(self, store: Store, clock: MovableClock) -> None:
        hand, claim = await running(store)
        moment = clock.now_us() + 90 * SECOND
        await hand.turn(Ack.snoozed(lease(claim), due=moment))
        assert (await row(store, claim)).due == moment

    async def test_attempts_that_were_given_back_share_a_number_but_not_a_token(
        self, store: Store, clock: MovableClock
    ) -> None:
        hand, claim = await running(store)
        tokens = [claim.token]
        for _ in range(3):
            await hand.turn(Ack.snoozed(lease(claim), delay=SECOND))
            clock.advance("1s")
            await store.promote()
            claim = await hand.take_one(f"{claim.queue}/any")
            assert claim.attempt == 1
            tokens.append(claim.token)
        assert [attempt.token for attempt in await store.attempts(claim.id)] == tokens[:-1]


@pytest.mark.asyncio
class TestAckCancelled:
    async def test_a_cancelled_ack_ends_the_job(self, store: Store, clock: MovableClock) -> None:
        hand, claim = await running(store)
        await hand.turn(Ack.cancelled(lease(claim), b"why"))
        found = await row(store, claim)
        assert (found.state, found.reason, found.finished) == (State.CANCELLED, Reason.BY_USER, clock.now_us())
        kept = await last_attempt(store, claim)
        assert (kept.outcome, kept.error) == (Outcome.CANCELLED, b"why")


@pytest.mark.asyncio
class TestAckInterrupted:
    async def test_an_interrupted_job_is_ready_without_a_crash(self, store: Store) -> None:
        hand, claim = await running(store, job(priority=3))
        await hand.turn(Ack.interrupted(lease(claim), b"deploy"))
        found = await row(store, claim)
        assert (found.state, found.attempt, found.crashes, found.priority) == (State.READY, 0, 0, 3)
        kept = await last_attempt(store, claim)
        assert (kept.outcome, kept.error, kept.attempt) == (Outcome.INTERRUPTED, b"deploy", 1)

    async def test_any_worker_may_claim_an_interrupted_job_at_once(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.turn(Ack.interrupted(lease(claim)))
        other = await Hand(store).join()
        again = await other.take_one(f"{claim.queue}/any")
        assert (again.id, again.attempt) == (claim.id, 1)
        assert again.token > claim.token

    async def test_only_the_interrupted_attempt_is_given_back(self, store: Store) -> None:
        await one(store)
        hand = await Hand(store).join()
        first = await hand.take_one()
        await hand.turn(Ack.failed(lease(first), ERROR, retry_in=0))
        await store.promote()
        second = await hand.take_one()
        await hand.turn(Ack.interrupted(lease(second)))
        assert (await row(store, first)).attempt == 1
        assert (await hand.take_one()).attempt == 2


@pytest.mark.asyncio
class TestRunTime:
    """The run time of a body comes from its ack. The times of the claim and of the ack are those of the store."""

    @pytest.mark.parametrize(
        "ack",
        [
            Ack.succeeded(NO_LEASE, b"1", run_us=1_234),
            Ack.succeeded(NO_LEASE, error=ERROR, run_us=1_234),
            Ack.dead(NO_LEASE, ERROR, Reason.FAILED, run_us=1_234),
            Ack.cancelled(NO_LEASE, run_us=1_234),
            Ack.lost_early(NO_LEASE, ERROR, run_us=1_234),
            Ack.crashed(NO_LEASE, ERROR, early=True, run_us=1_234),
        ],
        ids=["succeeded", "succeeded with a note", "dead", "cancelled", "lost early", "crashed"],
    )
    async def test_an_ended_job_has_the_run_time_of_its_last_body(
        self, store: Store, clock: MovableClock, ack: Ack
    ) -> None:
        hand, claim = await running(store)
        clock.advance("2s")
        await hand.turn(msgspec.structs.replace(ack, id=claim.id, token=claim.token))
        found = await row(store, claim)
        assert (found.ran, found.finished) == (1_234, clock.now_us())
        assert [each.ran for each in await store.attempts(claim.id)] == ([] if ack.to is State.SUCCEEDED else [1_234])

    async def test_a_success_with_a_follow_up_job_has_its_run_time(self, store: Store) -> None:
        follow_up = FollowUp(State.SUCCEEDED, job(id=new_id().bytes[:-2] + bytes(2)))
        hand, claim = await running(store, job(queue="followed", follows=[follow_up]))
        await hand.turn(Ack.succeeded(lease(claim), run_us=77))
        assert (await row(store, claim)).ran == 77

    async def test_a_cancel_order_keeps_the_run_time(self, store: Store) -> None:
        hand, claim = await running(store)
        await store.act(Action.CANCEL, Query(ids=(claim.id,)))
        await hand.turn(Ack.succeeded(lease(claim), run_us=77))
        found = await row(store, claim)
        assert (found.state, found.ran) == (State.CANCELLED, 77)

    @pytest.mark.parametrize(
        "ack",
        [
            Ack.failed(NO_LEASE, ERROR, retry_in=0, run_us=55),
            Ack.snoozed(NO_LEASE, delay=1, run_us=55),
            Ack.interrupted(NO_LEASE, run_us=55),
            Ack.crashed(NO_LEASE, ERROR, run_us=55),
        ],
        ids=["failed", "snoozed", "interrupted", "crashed"],
    )
    async def test_an_attempt_has_its_run_time_and_a_live_job_has_none(self, store: Store, ack: Ack) -> None:
        hand, claim = await running(store)
        await hand.turn(msgspec.structs.replace(ack, id=claim.id, token=claim.token))
        assert (await last_attempt(store, claim)).ran == 55
        assert (await row(store, claim)).ran is None

    async def test_a_job_that_ended_while_it_waited_has_none(self, store: Store) -> None:
        """Its last attempt is over: the time until the cancellation is no run time."""
        hand, claim = await running(store)
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=60 * SECOND, run_us=55))
        await store.act(Action.CANCEL, Query(ids=(claim.id,)))
        assert (await row(store, claim)).ran is None

    async def test_an_attempt_of_a_crashed_worker_has_none(self, store: Store) -> None:
        hand, claim = await running(store, job(queue="crashing", crashes=0))
        await store.retire(hand.name, Outcome.CRASHED)
        found = await row(store, claim)
        assert (found.state, found.ran) == (State.DEAD, None)
        assert (await last_attempt(store, claim)).ran is None

    async def test_a_retry_by_hand_forgets_it(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.turn(Ack.succeeded(lease(claim), run_us=77))
        await store.act(Action.RETRY, Query(ids=(claim.id,)))
        assert (await row(store, claim)).ran is None
        again = await hand.take_one(f"{claim.queue}/any")
        await store.act(Action.CANCEL, Query(ids=(claim.id,)))
        await hand.turn(Ack.interrupted(lease(again), run_us=3))
        assert (await row(store, claim)).ran == 3
