"""The mode keep_last: at most one job of a key runs, and at most one waits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mainspring.common.clock import MovableClock
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import ActResult, Enqueued, NewJob, Retention
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import (
    ERROR,
    HOUR,
    MINUTE,
    Hand,
    ending,
    ids,
    job,
    lease,
    one,
    put_in,
    row,
    running,
    state,
)
from mainspring.worker.records import Claim

from .replace import latest, living, said

__all__ = ["TestKeepLast", "TestKeepLastEnds", "TestKeepLastRaces"]


async def pair(store: Store, **options: Any) -> tuple[Hand, Claim, NewJob]:
    """One that runs, and one that waits for it."""
    hand, claim = await running(store, latest("keep_last", **options))
    waiting = await one(store, latest("keep_last", record=b'"waits"'))
    assert await state(store, waiting) == State.BLOCKED
    return hand, claim, waiting


@pytest.mark.asyncio
class TestKeepLast:
    async def test_one_runs_and_one_waits_with_the_newest_arguments(self, store: Store) -> None:
        hand, claim, waiting = await pair(store)
        for record in (b"2", b"3"):
            assert await said(store, latest("keep_last", record=record)) == Enqueued(waiting.id, False)
        assert await state(store, waiting) == State.BLOCKED
        assert await hand.take(9) == ()
        await hand.succeed(claim)
        again = await hand.take_one()
        assert (again.id, again.record) == (waiting.id, b"3")
        fourth = latest("keep_last")
        assert await said(store, fourth) == Enqueued(fourth.id, True)
        assert await state(store, fourth) == State.BLOCKED

    async def test_a_job_without_a_live_predecessor_runs_at_once(self, store: Store) -> None:
        hand, claim, waiting = await pair(store)
        await hand.succeed(claim)
        await hand.succeed(await hand.take_one())
        assert await state(store, waiting) == State.SUCCEEDED
        assert await state(store, await one(store, latest("keep_last"))) == State.READY

    async def test_another_key_does_not_wait(self, store: Store) -> None:
        await pair(store)
        assert await state(store, await one(store, latest("keep_last", key=b"o" * 16))) == State.READY

    async def test_a_delay_counts_from_its_enqueue(self, store: Store, clock: MovableClock) -> None:
        """The newest enqueue decides when the job is due, independent of the running job."""
        hand, claim, waiting = await pair(store)
        assert await said(store, latest("keep_last", delay=HOUR)) == Enqueued(waiting.id, False)
        await hand.succeed(claim)
        assert await state(store, waiting) == State.SCHEDULED
        clock.advance("1h")
        await store.promote()
        assert await said(store, latest("keep_last", delay=HOUR)) == Enqueued(waiting.id, False)
        assert await state(store, waiting) == State.SCHEDULED
        assert await said(store, latest("keep_last")) == Enqueued(waiting.id, False)
        assert await state(store, waiting) == State.READY

    @pytest.mark.parametrize("cause", [Outcome.CRASHED, Outcome.LOST, Outcome.INTERRUPTED])
    async def test_a_job_that_was_handed_back_counts_as_running(self, store: Store, cause: Outcome) -> None:
        hand, claim, waiting = await pair(store)
        if cause is Outcome.INTERRUPTED:
            await store.retire(hand.name, cause)
        else:
            await store.rescue(hand.name, hand.beats, cause)
        assert await state(store, claim) == State.READY
        assert await said(store, latest("keep_last", record=b"3")) == Enqueued(waiting.id, False)
        other = await Hand(store).join()
        assert ids(await other.take(9)) == [claim.id]
        assert await state(store, waiting) == State.BLOCKED

    async def test_a_retrying_or_snoozed_job_counts_as_running(self, store: Store) -> None:
        hand, claim, waiting = await pair(store)
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=0))
        assert (await state(store, claim), await state(store, waiting)) == (State.RETRYING, State.BLOCKED)
        await store.promote()
        again = await hand.take_one()
        assert again.id == claim.id
        await hand.turn(Ack.snoozed(lease(again), delay=HOUR))
        assert (await state(store, claim), await state(store, waiting)) == (State.SCHEDULED, State.BLOCKED)
        await store.act(Action.CANCEL, Query(ids=(waiting.id,)))
        third = await one(store, latest("keep_last"))
        assert await state(store, third) == State.BLOCKED

    @pytest.mark.parametrize("action", [Action.CANCEL, Action.DELETE])
    async def test_a_waiting_job_can_be_cancelled_or_deleted(self, store: Store, action: Action) -> None:
        """The running job runs on, and the next enqueue waits for it in the same way."""
        hand, claim, waiting = await pair(store)
        await store.act(action, Query(ids=(waiting.id,)))
        third = latest("keep_last", record=b"3")
        assert await said(store, third) == Enqueued(third.id, True)
        assert await state(store, third) == State.BLOCKED
        await hand.succeed(claim)
        assert ids(await hand.take(9)) == [third.id]

    async def test_a_cancelled_job_is_not_retried_beside_a_running_one(self, store: Store) -> None:
        hand, claim, waiting = await pair(store)
        await store.act(Action.CANCEL, Query(ids=(waiting.id,)))
        acted = await store.act(Action.RETRY, Query(ids=(waiting.id,)))
        assert (acted.done, acted.held) == ((), ((waiting.id, claim.id),))
        assert await store.act(Action.RETRY, Query(states=(State.CANCELLED,))) == ActResult()
        await hand.succeed(claim)
        assert (await store.act(Action.RETRY, Query(states=(State.CANCELLED,)))).done == (waiting.id,)

    async def test_a_job_retried_by_hand_counts_as_running(self, store: Store) -> None:
        hand, claim = await running(store, latest("keep_last"))
        await hand.kill(claim)
        assert (await store.act(Action.RETRY, Query(ids=(claim.id,)))).done == (claim.id,)
        second = await one(store, latest("keep_last"))
        assert await state(store, second) == State.BLOCKED
        assert ids(await hand.take(9)) == [claim.id]

    async def test_the_row_of_the_key_is_deleted_with_its_last_job(self, store: Store, clock: MovableClock) -> None:
        """The job that waited is pruned before the running one: the row of the key stays until then."""
        hand, claim, waiting = await pair(store)
        await store.act(Action.CANCEL, Query(ids=(waiting.id,)))
        clock.advance("2h")
        await hand.beat()
        assert await store.prune(Retention(keep=MINUTE)) == 1
        third = await one(store, latest("keep_last"))
        assert await state(store, third) == State.BLOCKED
        await hand.succeed(claim)
        await hand.succeed(await hand.take_one())
        clock.advance("2h")
        assert await store.prune(Retention(keep=MINUTE)) == 2
        assert await state(store, await one(store, latest("keep_last"))) == State.READY


@pytest.mark.asyncio
class TestKeepLastEnds:
    """However the one that runs ends, the one that waits becomes ready."""

    async def test_death_releases_the_waiting_job(self, store: Store) -> None:
        hand, claim, waiting = await pair(store)
        await hand.kill(claim)
        assert await state(store, waiting) == State.READY

    async def test_a_cancelled_ack_releases_the_waiting_job(self, store: Store) -> None:
        hand, claim, waiting = await pair(store)
        await hand.turn(Ack.cancelled(lease(claim)))
        assert await state(store, waiting) == State.READY

    async def test_a_cancel_order_releases_the_waiting_job(self, store: Store) -> None:
        hand, claim, waiting = await pair(store)
        await store.act(Action.CANCEL, Query(ids=(claim.id,)))
        assert await state(store, waiting) == State.BLOCKED
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=0))
        assert await ending(store, claim) == (State.CANCELLED, Reason.BY_USER)
        assert await state(store, waiting) == State.READY

    async def test_the_last_crash_releases_the_waiting_job(self, store: Store) -> None:
        hand, claim, waiting = await pair(store, crashes=1)
        await hand.crash()
        assert await ending(store, claim) == (State.DEAD, Reason.CRASHED)
        assert await state(store, waiting) == State.READY

    @pytest.mark.parametrize("action", [Action.CANCEL, Action.DELETE])
    async def test_cancelling_or_deleting_a_retrying_job_releases_the_waiting_job(
        self, store: Store, action: Action
    ) -> None:
        hand, claim, waiting = await pair(store)
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=HOUR))
        await store.act(action, Query(ids=(claim.id,)))
        assert await state(store, waiting) == State.READY

    async def test_a_retrying_job_does_not_expire_and_blocks(self, store: Store, clock: MovableClock) -> None:
        hand, claim, waiting = await pair(store, expires_in=MINUTE)
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=HOUR))
        clock.advance("2m")
        assert (await store.promote()).ended == ()
        assert await state(store, waiting) == State.BLOCKED

    async def test_expiry_of_a_handed_back_job_releases_the_waiting_job(
        self, store: Store, clock: MovableClock
    ) -> None:
        hand, claim, waiting = await pair(store, expires_in=MINUTE)
        await hand.turn(Ack.returned(lease(claim)))
        clock.advance("2m")
        assert (await store.promote()).ended == (claim.id,)
        assert await state(store, waiting) == State.READY

    async def test_an_expired_job_that_was_not_ended_yet_does_not_block(
        self, store: Store, clock: MovableClock
    ) -> None:
        hand, claim = await running(store, latest("keep_last", expires_in=MINUTE))
        await hand.turn(Ack.returned(lease(claim)))
        clock.advance("2m")
        assert await state(store, await one(store, latest("keep_last"))) == State.READY
        assert await ending(store, claim) == (State.CANCELLED, Reason.EXPIRED)


@pytest.mark.asyncio
class TestKeepLastRaces:
    async def test_two_jobs_never_run_at_once_and_the_last_arguments_run(
        self, store: Store, second_store: Store
    ) -> None:
        """Producers on one connection, workers that fail and die on another."""
        ran: list[bytes] = []
        stop = asyncio.Event()

        async def work() -> None:
            hand = await Hand(second_store).join()
            n = 0
            while not stop.is_set() or await living(store):
                await second_store.promote()
                claims = await hand.take(9)
                assert len(claims) <= 1
                assert (await store.count(Query(states=(State.RUNNING,))))[State.RUNNING] <= 1
                n += 1
                for claim in claims:
                    ran.append(claim.record)
                    if n % 5 == 0:
                        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=0))
                    elif n % 7 == 0:
                        await second_store.rescue(hand.name, hand.beats, Outcome.LOST)
                        hand = await Hand(second_store).join()
                    else:
                        await hand.succeed(claim)

        worker = asyncio.create_task(work())
        for n in range(40):
            await put_in(store, latest("keep_last", record=b"%d" % n), job(queue="aside"))
        await store.act(Action.CANCEL, Query(queues=("aside",)))
        stop.set()
        await asyncio.wait_for(worker, 60)
        assert ran[-1] == b"39"
        assert ran == sorted(ran, key=int)

    async def test_an_end_that_races_an_enqueue_leaves_no_job_blocked(self, store: Store, second_store: Store) -> None:
        for n in range(20):
            hand, claim = await running(store, latest("keep_last", key=bytes([n]) * 16))
            second = latest("keep_last", key=bytes([n]) * 16, record=b"2")
            third = latest("keep_last", key=bytes([n]) * 16, record=b"3")
            await asyncio.gather(hand.succeed(claim), said(second_store, second), said(second_store, third))
            (left,) = await hand.take(9)
            assert left.record in (b"2", b"3")
            assert (await row(store, left.id)).deps == 0
            await hand.succeed(left)
