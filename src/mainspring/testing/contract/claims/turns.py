"""Turns: numbered and repeatable; every ack is compared by (job, token, worker)."""

from __future__ import annotations

import msgspec
import pytest

from mainspring.common.clock import MovableClock
from mainspring.common.ids import new_id
from mainspring.errors import StoreConflict
from mainspring.jobs.lanes import parked_lane
from mainspring.jobs.outcomes import Ack, Lease, Outcome
from mainspring.jobs.query import Query
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import (  # fmt: skip
    ERROR,
    LANE,
    SECOND,
    TASK,
    Hand,
    applied,
    bucket,
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
from mainspring.worker.records import Claim, Turn, Want

__all__ = ["TestAcksAreCompared", "TestHolds", "TestParking", "TestTurnNumbers", "TestUnstorable"]


def pairs(*claims: Claim) -> set[tuple[bytes, int]]:
    return {(claim.id, claim.token) for claim in claims}


@pytest.mark.asyncio
class TestTurnNumbers:
    async def test_a_repeat_returns_the_same_claims(self, store: Store) -> None:
        """The reply was lost: the worker asks again and gets the same claims and no others."""
        await put_in(store, *(job() for _ in range(5)))
        hand = await Hand(store).join()
        claims = await hand.take(2)
        again = await hand.repeat()
        assert again.claims == claims
        assert again.claims[0].turn == 1

    async def test_a_repeat_claims_no_new_job(self, store: Store) -> None:
        hand = await Hand(store).join()
        assert await hand.take(2) == ()
        made = await one(store)
        assert (await hand.repeat()).claims == ()
        assert await state(store, made) == State.READY

    async def test_a_repeat_says_already_to_its_acks(self, store: Store) -> None:
        hand, claim = await running(store)
        assert applied(await hand.turn(Ack.succeeded(lease(claim), b"1")))
        again = await hand.repeat()
        assert set(again.already) == pairs(claim)
        assert (again.stale, again.unstorable) == ((), ())

    async def test_a_repeat_applies_further_acks(self, store: Store) -> None:
        """A worker whose event loop is blocked sends its acks with its last turn, which it repeats without wants."""
        await put_in(store, job(), job(), job())
        hand = await Hand(store).join()
        first, second, third = await hand.take(3)
        await hand.turn(Ack.succeeded(lease(first)))
        acks = (Ack.succeeded(lease(first)), Ack.succeeded(lease(second), b"2"))
        turn = Turn(worker=hand.name, number=hand.number, seen=hand.number, acks=acks, suspects=0)
        said = await store.turn(turn)
        assert (set(said.already), said.stale) == (pairs(first), ())
        assert [await state(store, claim) for claim in (first, second, third)] == [
            State.SUCCEEDED, State.SUCCEEDED, State.RUNNING,
        ]  # fmt: skip
        assert (await row(store, second)).result == b"2"
        said = await hand.turn(Ack.succeeded(lease(second), b"2"), Ack.succeeded(lease(third)))
        assert (set(said.already), said.stale) == (pairs(second), ())
        assert await state(store, third) is State.SUCCEEDED

    async def test_a_new_number_without_wants_leaves_a_late_first_try_nothing_to_claim(self, store: Store) -> None:
        """The acks of a turn may arrive before the turn itself, under its number."""
        await put_in(store, job(), job())
        hand = await Hand(store).join()
        claim = await hand.take_one()
        late = Turn(
            worker=hand.name, number=hand.number + 1, seen=hand.number, acks=(Ack.succeeded(lease(claim)),),
            wants=(Want((LANE,), 1),),
        )  # fmt: skip
        assert applied(await store.turn(msgspec.structs.replace(late, wants=(), seen=late.number)))
        said = await store.turn(late)
        assert (set(said.already), said.claims) == (pairs(claim), ())
        hand.number = hand.seen = late.number
        assert len(await hand.take(1)) == 1

    async def test_a_repeat_applies_nothing_twice(self, store: Store) -> None:
        """Byte for byte the same job and the same attempts after the repeat."""
        hand, claim = await running(store)
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=5 * SECOND))
        before = await row(store, claim), await store.attempts(claim.id)
        assert set((await hand.repeat()).already) == pairs(claim)
        assert (await row(store, claim), await store.attempts(claim.id)) == before

    async def test_a_repeat_leaves_out_claims_that_no_longer_run(self, store: Store) -> None:
        """A job that was taken away meanwhile is not handed out by the repeat."""
        await put_in(store, job(), job())
        hand = await Hand(store).join()
        first, second = await hand.take(2)
        await store.act(Action.CANCEL, Query(ids=(first.id,)))
        again = await hand.repeat()
        assert sorted(ids(again.claims)) == sorted(ids([first, second]))
        assert {order.id for order in again.orders} == {first.id}
        hand.last = msgspec.structs.replace(hand.last, number=2, seen=0, acks=(Ack.cancelled(lease(first)),), wants=())
        for _ in range(2):
            assert ids((await hand.repeat()).claims) == [second.id]

    async def test_claims_of_an_unread_reply_are_returned_again(self, store: Store) -> None:
        """The worker continues with the next number without having read the last reply."""
        await put_in(store, *(job() for _ in range(3)))
        hand = await Hand(store).join()
        unheard = await hand.take(2)
        said = await store.turn(Turn(worker=hand.name, number=2, seen=0, wants=(Want((LANE,), 1),)))
        assert pairs(*unheard) <= pairs(*said.claims)
        assert len(said.claims) == 3
        assert {claim.turn for claim in said.claims if claim in unheard} == {1}

    async def test_claims_of_a_read_reply_are_not_returned_again(self, store: Store) -> None:
        await one(store)
        hand = await Hand(store).join()
        await hand.take(1)
        assert (await hand.turn()).claims == ()

    async def test_a_lower_number_is_a_conflict(self, store: Store) -> None:
        made = await one(store)
        hand = await Hand(store).join()
        for _ in range(3):
            await hand.turn()
        with pytest.raises(StoreConflict):
            await store.turn(Turn(worker=hand.name, number=2, seen=2, wants=(Want((LANE,), 1),)))
        assert await state(store, made) == State.READY

    async def test_the_workers_row_keeps_the_number(self, store: Store) -> None:
        hand = await Hand(store).join()
        await hand.turn()
        await hand.turn()
        (found,) = [each for each in await store.workers() if each.id == hand.name]
        assert found.turn == 2

    async def test_an_unknown_worker_is_lost(self, store: Store) -> None:
        """Nothing is applied and no job is claimed."""
        made = await one(store)
        said = await Hand(store).turn(wants=[Want((LANE,), 1)])
        assert said.lost
        assert said.claims == ()
        assert await state(store, made) == State.READY

    async def test_a_lost_worker_stays_lost(self, store: Store) -> None:
        hand, claim = await running(store)
        await store.rescue(hand.name, hand.beats, Outcome.LOST)
        said = await hand.turn(Ack.succeeded(lease(claim)), wants=[Want((f"{claim.queue}/any",), 1)])
        assert said.lost
        assert said.claims == ()
        assert await state(store, claim) == State.READY

    async def test_the_reply_has_the_time_of_the_store(self, store: Store, clock: MovableClock) -> None:
        hand = await Hand(store).join()
        clock.advance("3s")
        assert (await hand.turn()).now == clock.now_us()

    async def test_a_worker_can_send_turns_through_any_client(self, store: Store, second_store: Store) -> None:
        """A turn repeated through another connection is the same turn."""
        await put_in(store, job(), job())
        hand = await Hand(store).join()
        claims = await hand.take(1)
        assert (await second_store.turn(hand.last)).claims == claims


@pytest.mark.asyncio
class TestAcksAreCompared:
    async def test_the_same_ack_in_a_later_turn_is_already(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.succeed(claim)
        said = await hand.turn(Ack.succeeded(lease(claim)))
        assert (set(said.already), said.stale) == (pairs(claim), ())

    @pytest.mark.parametrize("end", ["failed", "snoozed", "interrupted", "crashed"])
    async def test_already_for_every_kind_of_ack(self, store: Store, end: str) -> None:
        """The worker must learn the state of a job that waits again."""
        hand, claim = await running(store)
        ack = {
            "failed": Ack.failed(lease(claim), ERROR, retry_in=0),
            "snoozed": Ack.snoozed(lease(claim), delay=SECOND),
            "interrupted": Ack.interrupted(lease(claim)),
            "crashed": Ack.crashed(lease(claim), ERROR),
        }[end]
        await hand.turn(ack)
        before = await row(store, claim)
        said = await hand.turn(ack)
        assert (set(said.already), said.stale) == (pairs(claim), ())
        assert await row(store, claim) == before

    @pytest.mark.parametrize("first", ["succeeded", "failed", "dead", "crashed"])
    async def test_another_ack_of_the_owner_for_an_ended_attempt_is_stale(self, store: Store, first: str) -> None:
        """``already`` would mean that the second ack counts."""
        hand, claim = await running(store)
        ack = {
            "succeeded": Ack.succeeded(lease(claim)),
            "failed": Ack.failed(lease(claim), ERROR, retry_in=0),
            "dead": Ack.dead(lease(claim), ERROR, Reason.NOT_RETRYABLE),
            "crashed": Ack.crashed(lease(claim), ERROR),
        }[first]
        await hand.turn(ack)
        before = await row(store, claim)
        for other in (Ack.interrupted(lease(claim)), Ack.snoozed(lease(claim), delay=SECOND)):
            said = await hand.turn(other)
            assert (set(said.stale), said.already) == (pairs(claim), ())
        assert await row(store, claim) == before

    async def test_a_token_that_was_never_given_is_stale(self, store: Store) -> None:
        hand, claim = await running(store)
        before = await row(store, claim)
        for token in (claim.token - 1, claim.token + 1, 0):
            said = await hand.turn(Ack.succeeded(Lease(claim.id, token)))
            assert (said.stale, said.already) == (((claim.id, token),), ())
        assert await row(store, claim) == before

    async def test_an_ack_of_an_unknown_job_is_stale(self, store: Store) -> None:
        hand = await Hand(store).join()
        unknown = Lease(new_id().bytes, 5)
        assert (await hand.turn(Ack.succeeded(unknown))).stale == (unknown,)

    async def test_another_workers_lease_is_stale(self, store: Store) -> None:
        """The right token from another worker changes nothing."""
        _, claim = await running(store)
        thief = await Hand(store).join()
        before = await row(store, claim)
        said = await thief.turn(Ack.succeeded(lease(claim)))
        assert (set(said.stale), said.already) == (pairs(claim), ())
        assert await row(store, claim) == before

    async def test_another_workers_finished_lease_is_stale(self, store: Store) -> None:
        """Only the owner whose ack was applied gets ``already``."""
        hand, claim = await running(store)
        await hand.succeed(claim)
        thief = await Hand(store).join()
        said = await thief.turn(Ack.succeeded(lease(claim)))
        assert (set(said.stale), said.already) == (pairs(claim), ())

    async def test_a_late_owner_cannot_finish_a_retaken_job(self, store: Store) -> None:
        """The same worker claimed the job again: its older token does not change the newer attempt."""
        hand, old = await running(store)
        await hand.turn(Ack.interrupted(lease(old)))
        new = await hand.take_one(f"{old.queue}/any")
        before = await row(store, new)
        said = await hand.turn(Ack.dead(lease(old), ERROR, Reason.NOT_RETRYABLE))
        assert pairs(old) == set(said.stale) | set(said.already)
        assert await row(store, new) == before
        await hand.succeed(new)

    async def test_an_owner_that_was_retired_is_stale_under_a_new_row(self, store: Store) -> None:
        """A retirement took the job back, then a worker registered under the same name: its old lease is not valid."""
        hand, claim = await running(store)
        await store.retire(hand.name, Outcome.INTERRUPTED)
        await hand.join()
        hand.number = hand.seen = 0
        before = await row(store, claim)
        said = await hand.turn(Ack.succeeded(lease(claim)))
        assert (set(said.stale), said.already) == (pairs(claim), ())
        assert await row(store, claim) == before

    async def test_good_acks_beside_a_stale_one_are_applied(self, store: Store) -> None:
        await put_in(store, job(), job())
        hand = await Hand(store).join()
        first, second = await hand.take(2)
        bad = Ack.succeeded(Lease(first.id, first.token - 1))
        said = await hand.turn(Ack.succeeded(lease(first)), bad, Ack.succeeded(lease(second)))
        assert said.stale == ((first.id, first.token - 1),)
        assert [await state(store, each) for each in (first, second)] == [State.SUCCEEDED, State.SUCCEEDED]

    async def test_acks_free_capacity_before_the_claims(self, store: Store) -> None:
        """One turn reports a job and takes the next through the same bucket."""
        gate = bucket("gate", 1)
        await put_in(store, job(buckets=[gate]), job(buckets=[gate]))
        hand = await Hand(store).join()
        first = await hand.take_one()
        said = await hand.turn(Ack.succeeded(lease(first)), wants=[Want((LANE,), 5)])
        assert len(said.claims) == 1

    async def test_many_acks_in_one_turn(self, store: Store) -> None:
        await put_in(store, *(job() for _ in range(256)))
        hand = await Hand(store).join()
        claims = await hand.take(256)
        await hand.succeed(*claims)
        said = await hand.turn(*(Ack.succeeded(lease(claim)) for claim in claims))
        assert set(said.already) == pairs(*claims)


@pytest.mark.asyncio
class TestUnstorable:
    async def test_an_unstorable_ack_does_not_affect_the_others(self, store: Store) -> None:
        """The due time is beyond what any store holds: only that ack is refused, and its job runs on."""
        await put_in(store, job(), job(), job())
        hand = await Hand(store).join()
        first, bad, last = await hand.take(3)
        impossible = Ack.snoozed(lease(bad), due=2**70)
        said = await hand.turn(Ack.succeeded(lease(first)), impossible, Ack.succeeded(lease(last)))
        assert set(said.unstorable) == pairs(bad)
        assert (said.stale, said.already) == ((), ())
        assert [await state(store, each) for each in (first, bad, last)] == [
            State.SUCCEEDED, State.RUNNING, State.SUCCEEDED,
        ]  # fmt: skip
        await hand.succeed(bad)


@pytest.mark.asyncio
class TestHolds:
    async def test_valid_leases_are_not_gone(self, store: Store) -> None:
        await put_in(store, job(), job())
        hand = await Hand(store).join()
        claims = await hand.take(2)
        assert (await hand.turn(holds=claims)).gone == ()

    async def test_leases_that_the_worker_lost_are_gone(self, store: Store) -> None:
        """A lease of another, an older token and a finished job are all named."""
        hand, mine = await running(store)
        _, theirs = await running(store)
        finished = await one(store)
        done = await hand.take_one()
        assert done.id == finished.id
        await hand.succeed(done)
        older = msgspec.structs.replace(mine, token=mine.token - 1)
        said = await hand.turn(holds=[mine, theirs, done, older])
        assert set(said.gone) == pairs(theirs, done, older)

    async def test_acks_of_the_same_turn_are_not_gone(self, store: Store) -> None:
        hand, claim = await running(store)
        said = await hand.turn(Ack.succeeded(lease(claim)), holds=[claim])
        assert said.gone == ()
        assert await state(store, claim) == State.SUCCEEDED

    async def test_without_holds_nothing_is_compared(self, store: Store) -> None:
        hand, _ = await running(store)
        assert (await hand.turn()).gone == ()


@pytest.mark.asyncio
class TestParking:
    async def test_a_parked_job_waits_for_a_worker_that_knows_its_task(self, store: Store) -> None:
        """The worker that handed it back does not get it again; a worker that registered the task does."""
        made = await one(store)
        stranger = await Hand(store, tasks=("other.task",)).join()
        claim = await stranger.take_one()
        assert applied(await stranger.turn(Ack.returned(lease(claim), park=True)))
        found = await row(store, made)
        assert (found.state, found.lane, found.attempt) == (State.READY, parked_lane(LANE, TASK), 0)
        assert await stranger.take(5) == ()
        expert = await Hand(store).join()
        assert (await expert.take_one()).id == made.id

    async def test_parked_jobs_keep_their_order_among_others(self, store: Store) -> None:
        parked, low, high = job(priority=5), job(priority=-1), job(priority=9)
        await one(store, parked)
        stranger = await Hand(store, tasks=()).join()
        await stranger.turn(Ack.returned(lease(await stranger.take_one()), park=True))
        await put_in(store, low, high)
        expert = await Hand(store).join()
        assert ids(await expert.take(3)) == ids([high, parked, low])

    @pytest.mark.parametrize("task", ["odd#*", "odd#*=1*a", "odd!?#=", "odd/async#x"])
    async def test_the_name_of_its_task_says_nothing_about_the_limits_of_a_parked_job(
        self, store: Store, task: str
    ) -> None:
        gate = bucket("gate", 1)
        await put_in(store, *(job(task=task, buckets=[gate]) for _ in range(2)))
        stranger, expert = await Hand(store).join(), await Hand(store, tasks=(task,)).join()
        for _ in range(2):
            await stranger.turn(Ack.returned(lease(await stranger.take_one()), park=True))
        assert await stranger.take(2) == ()
        (held,) = await expert.take(2)
        assert (await store.buckets([gate]))[0].used == 1
        await expert.succeed(held)
        assert (await expert.take_one()).task == task

    async def test_a_parked_job_keeps_its_limits(self, store: Store) -> None:
        gate = bucket("gate", 1)
        parked, other = job(buckets=[gate]), job(buckets=[gate])
        await one(store, parked)
        stranger = await Hand(store, tasks=()).join()
        await stranger.turn(Ack.returned(lease(await stranger.take_one()), park=True))
        await one(store, other)
        expert = await Hand(store).join()
        first = await expert.take(5)
        assert len(first) == 1
        await expert.succeed(*first)
        second = await expert.take(5)
        assert len(second) == 1
        assert {first[0].id, second[0].id} == {parked.id, other.id}

    async def test_a_job_returned_without_park_is_for_every_worker(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.turn(Ack.returned(lease(claim)))
        found = await row(store, claim)
        assert (found.state, found.lane, found.attempt) == (State.READY, f"{claim.queue}/any", 0)
        assert await outcomes(store, claim) == [Outcome.INTERRUPTED]
