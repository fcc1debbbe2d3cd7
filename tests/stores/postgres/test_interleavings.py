"""Two transactions at once, one of them held at the step where it would go wrong."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import Edge, Enqueued
from mainspring.states import Action, Reason, State
from mainspring.stores.postgres import PostgresStore
from mainspring.testing.contract.hands import (
    ERROR,
    LANE,
    Hand,
    bucket,
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
from mainspring.worker.records import Turn, Want
from tests.stores.postgres.sides import Sides


def ack_turn(hand: Hand, *acks: Ack) -> Turn:
    return Turn(worker=hand.name, number=hand.number + 1, seen=hand.seen, acks=acks)


def want_turn(hand: Hand, n: int) -> Turn:
    return Turn(worker=hand.name, number=hand.number + 1, seen=hand.seen, wants=(Want((LANE,), n),))


class TestJoin:
    async def test_two_acks_of_parents_release_the_child_once(self, store: PostgresStore, sides: Sides) -> None:
        """The second ack waits for the row of the child and continues with its count."""
        (left, a), (right, b) = await running(store), await running(store)
        join = await one(store, job(queue="j", after=[Edge(a.id), Edge(b.id)]))
        first, second = await sides.open(), await sides.open()
        await first.turn(ack_turn(left, Ack.succeeded(lease(a))))
        await sides.behind(first, second, lambda: second.turn(ack_turn(right, Ack.succeeded(lease(b)))))
        found = await row(store, join)
        assert (found.state, found.deps) == (State.READY, 0)
        assert len(await (await Hand(store).join()).take(5, "j/any")) == 1

    async def test_an_ack_that_rolls_back_counts_nothing(self, store: PostgresStore, sides: Sides) -> None:
        (left, a), (right, b) = await running(store), await running(store)
        join = await one(store, job(queue="j", after=[Edge(a.id), Edge(b.id)]))
        first, second = await sides.open(), await sides.open()
        await first.turn(ack_turn(left, Ack.succeeded(lease(a))))
        waiting = asyncio.create_task(second.turn(ack_turn(right, Ack.succeeded(lease(b)))))
        await sides.until_blocked(first, second, waiting)
        await first.rollback()
        await waiting
        await second.commit()
        assert (await row(store, join)).deps == 1
        await left.succeed(a)
        assert await state(store, join) == State.READY

    async def test_a_success_and_a_failure_of_parents_at_once_cancel_the_child(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        (left, a), (right, b) = await running(store), await running(store)
        join = await one(store, job(queue="j", after=[Edge(a.id), Edge(b.id)]))
        first, second = await sides.open(), await sides.open()
        await first.turn(ack_turn(left, Ack.succeeded(lease(a))))
        dead = Ack.dead(lease(b), ERROR, Reason.NOT_RETRYABLE)
        await sides.behind(first, second, lambda: second.turn(ack_turn(right, dead)))
        assert await ending(store, join) == (State.CANCELLED, Reason.PARENT)

    async def test_a_deadlock_is_repeated(self, store: PostgresStore, sides: Sides) -> None:
        """An action locks jobs in the order of ids, a turn locks the job that ends and then its child. The server ends
        one transaction, and nothing is lost.
        """
        hand, claim = await running(store)
        child = await one(store, job(queue="j", id=b"\x00" * 15 + b"\x01", after=[Edge(claim.id)]))
        holder = await sides.open()
        await holder.run(f"select 1 from {store.schema}.jobs where id = %s for update", (child.id,))
        query = Query(ids=(child.id, claim.id))
        acting = asyncio.create_task(store.act(Action.REPRIORITISE, query, priority=5))
        await sides.until_waiting(1)
        acking = asyncio.create_task(hand.succeed(claim))
        await sides.until_waiting(2)
        await holder.commit()
        said, _ = await asyncio.gather(acting, acking)
        assert said.done == (child.id,)
        found = await row(store, child)
        assert (found.state, found.priority) == (State.READY, 5)


class TestLimit:
    async def test_two_turns_with_one_place_left_claim_one_job(self, store: PostgresStore, sides: Sides) -> None:
        """The second turn counts after the claim of the first is committed."""
        gate = bucket("gate", 5)
        await put_in(store, *(job(buckets=[gate]) for _ in range(8)))
        here, there = await Hand(store).join(), await Hand(store).join()
        assert len(await here.take(4)) == 4
        first, second = await sides.open(), await sides.open()
        assert len((await first.turn(want_turn(here, 3))).claims) == 1
        said = await sides.behind(first, second, lambda: second.turn(want_turn(there, 3)))
        assert said.claims == ()
        assert [worker.running for worker in await store.workers()] == [5, 0]

    async def test_a_claim_that_rolls_back_releases_its_place(self, store: PostgresStore, sides: Sides) -> None:
        gate = bucket("gate", 1)
        await put_in(store, *(job(buckets=[gate]) for _ in range(3)))
        here, there = await Hand(store).join(), await Hand(store).join()
        first, second = await sides.open(), await sides.open()
        assert len((await first.turn(want_turn(here, 3))).claims) == 1
        waiting = asyncio.create_task(second.turn(want_turn(there, 3)))
        await sides.until_blocked(first, second, waiting)
        await first.rollback()
        assert len((await waiting).claims) == 1
        await second.commit()

    async def test_unlimited_claims_do_not_wait_for_each_other(self, store: PostgresStore, sides: Sides) -> None:
        """A turn skips the jobs that another turn has locked and claims the others in order."""
        jobs = [job(kind=kind) for kind in ("any", "async") * 3]
        await put_in(store, *jobs)
        here, there = await Hand(store).join(), await Hand(store).join()
        first, second = await sides.open(), await sides.open()
        lanes = (Want((LANE, "q/async"), 3),)
        mine = await first.turn(Turn(worker=here.name, number=1, seen=0, wants=lanes))
        theirs = await second.turn(Turn(worker=there.name, number=1, seen=0, wants=lanes))
        assert ids(mine.claims) == ids(jobs[:3])
        assert ids(theirs.claims) == ids(jobs[3:])
        await first.commit()
        await second.commit()


class TestChild:
    async def test_a_child_enqueued_while_its_parent_is_acked(self, store: PostgresStore, sides: Sides) -> None:
        """The enqueue waits for the ack, reads again and finds the parent ended."""
        hand, claim = await running(store)
        child = job(after=[Edge(claim.id)])
        first, second = await sides.open(), await sides.open()
        await first.turn(ack_turn(hand, Ack.succeeded(lease(claim))))
        await sides.behind(first, second, lambda: second.enqueue(child))
        found = await row(store, child)
        assert (found.state, found.deps) == (State.READY, 0)

    async def test_a_parent_acked_while_its_child_is_enqueued(self, store: PostgresStore, sides: Sides) -> None:
        """The ack waits for the enqueue and finds the new edge."""
        hand, claim = await running(store)
        child = job(after=[Edge(claim.id)])
        first, second = await sides.open(), await sides.open()
        await first.enqueue(child)
        await sides.behind(first, second, lambda: second.turn(ack_turn(hand, Ack.succeeded(lease(claim)))))
        found = await row(store, child)
        assert (found.state, found.deps) == (State.READY, 0)

    @pytest.mark.parametrize("enqueue_first", [True, False])
    async def test_a_child_enqueued_while_its_parent_dies(
        self, store: PostgresStore, sides: Sides, enqueue_first: bool
    ) -> None:
        hand, claim = await running(store)
        child = job(after=[Edge(claim.id)])
        death = ack_turn(hand, Ack.dead(lease(claim), ERROR, Reason.NOT_RETRYABLE))
        first, second = await sides.open(), await sides.open()
        if enqueue_first:
            await first.enqueue(child)
            await sides.behind(first, second, lambda: second.turn(death))
        else:
            await first.turn(death)
            await sides.behind(first, second, lambda: second.enqueue(child))
        assert await ending(store, child) == (State.CANCELLED, Reason.PARENT)


class TestCancel:
    async def test_a_cancel_during_a_claim_becomes_an_order(self, store: PostgresStore, sides: Sides) -> None:
        """A running job is never reported as not found."""
        made = await one(store)
        hand = await Hand(store).join()
        first, second = await sides.open(), await sides.open()
        turn = want_turn(hand, 1)
        (claim,) = (await first.turn(turn)).claims
        said = await sides.behind(first, second, lambda: second.act(Action.CANCEL, made.id))
        assert said.done == (made.id,)
        found = await row(store, made)
        assert (found.state, found.ordered) == (State.RUNNING, True)
        again = await store.turn(turn)
        assert [(order.id, order.token) for order in again.orders] == [(claim.id, claim.token)]

    async def test_a_claim_skips_a_job_that_is_being_cancelled(self, store: PostgresStore, sides: Sides) -> None:
        made, other = await one(store), await one(store)
        hand = await Hand(store).join()
        first, second = await sides.open(), await sides.open()
        await first.act(Action.CANCEL, made.id)
        assert ids((await second.turn(want_turn(hand, 2))).claims) == [other.id]
        await first.commit()
        await second.commit()
        assert await ending(store, made) == (State.CANCELLED, Reason.BY_USER)

    async def test_a_cancel_during_the_ack_is_too_late(self, store: PostgresStore, sides: Sides) -> None:
        """The cancel waits for the ack and is refused with the final state."""
        hand, claim = await running(store)
        first, second = await sides.open(), await sides.open()
        await first.turn(ack_turn(hand, Ack.succeeded(lease(claim))))
        said = await sides.behind(first, second, lambda: second.act(Action.CANCEL, claim.id))
        assert (said.done, said.refused) == ((), ((claim.id, State.SUCCEEDED),))

    async def test_an_ack_during_the_cancel_obeys_the_order(self, store: PostgresStore, sides: Sides) -> None:
        hand, claim = await running(store)
        first, second = await sides.open(), await sides.open()
        await first.act(Action.CANCEL, claim.id)
        ack = ack_turn(hand, Ack.succeeded(lease(claim), b"1"))
        await sides.behind(first, second, lambda: second.turn(ack))
        assert await ending(store, claim) == (State.CANCELLED, Reason.BY_USER)


class TestBeatAgainstRescue:
    async def test_a_heartbeat_before_the_rescue_defeats_it(self, store: PostgresStore, sides: Sides) -> None:
        """Also a heartbeat that had not committed when the rescuer read."""
        hand, claim = await running(store)
        seen = hand.beats
        first, second = await sides.open(), await sides.open()
        assert (await first.beat(hand.name)).alive
        said = await sides.behind(first, second, lambda: second.rescue(hand.name, seen))
        assert not said.taken
        assert await state(store, claim) == State.RUNNING
        await hand.succeed(claim)

    async def test_a_rescue_before_the_heartbeat_wins(self, store: PostgresStore, sides: Sides) -> None:
        """The heartbeat that waited for the rescue is answered with "lost"."""
        hand, claim = await running(store)
        first, second = await sides.open(), await sides.open()
        assert (await first.rescue(hand.name, hand.beats)).ready == (claim.id,)
        said = await sides.behind(first, second, lambda: second.beat(hand.name))
        assert not said.alive
        assert await state(store, claim) == State.READY

    async def test_a_turn_that_waited_for_a_rescue_changes_nothing(self, store: PostgresStore, sides: Sides) -> None:
        hand, claim = await running(store)
        first, second = await sides.open(), await sides.open()
        await first.rescue(hand.name, hand.beats)
        said = await sides.behind(first, second, lambda: second.turn(ack_turn(hand, Ack.succeeded(lease(claim)))))
        assert said.lost
        assert await state(store, claim) == State.READY

    async def test_a_rescue_that_waited_for_a_turn_takes_the_jobs_it_left(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        hand, claim = await running(store)
        late = await one(store)
        first, second = await sides.open(), await sides.open()
        turn = Turn(worker=hand.name, number=2, seen=1, acks=(Ack.succeeded(lease(claim)),), wants=(Want((LANE,), 5),))
        await first.turn(turn)
        said = await sides.behind(first, second, lambda: second.rescue(hand.name, hand.beats, Outcome.CRASHED))
        assert said.ready == (late.id,)
        assert await state(store, claim) == State.SUCCEEDED


class TestLostReply:
    async def test_a_repeat_waits_for_the_turn_that_still_runs(self, store: PostgresStore, sides: Sides) -> None:
        """The client cancelled the first call. The repeat gets the same claims, and no job is stranded."""
        await put_in(store, *(job() for _ in range(8)))
        hand = await Hand(store).join()
        first, second = await sides.open(), await sides.open()
        turn = want_turn(hand, 5)
        unheard = await first.turn(turn)
        again = await sides.behind(first, second, lambda: second.turn(turn))
        assert again.claims == unheard.claims
        (worker,) = await store.workers()
        assert (worker.running, worker.turn) == (5, turn.number)

    async def test_a_repeat_after_the_first_try_was_killed_claims_again(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        await put_in(store, *(job() for _ in range(8)))
        hand = await Hand(store).join()
        first, second = await sides.open(), await sides.open()
        turn = want_turn(hand, 5)
        await first.turn(turn)
        waiting = asyncio.create_task(second.turn(turn))
        await sides.until_blocked(first, second, waiting)
        killer = await sides.open()
        await killer.run("select pg_terminate_backend(%s)", (first.pid,))
        assert len((await waiting).claims) == 5
        await second.commit()
        (worker,) = await store.workers()
        assert worker.running == 5
        with pytest.raises(psycopg.OperationalError):
            await first.commit()

    async def test_a_repeated_enqueue_waits_for_the_first_try(self, store: PostgresStore, sides: Sides) -> None:
        """It finds all that the first try inserted, edges too, and inserts nothing."""
        parent = job()
        child = job(after=[parent])
        first, second = await sides.open(), await sides.open()
        await first.enqueue(parent, child, batch=b"same")
        said = await sides.behind(first, second, lambda: second.enqueue(parent, child, batch=b"same", retry=True))
        assert said == [Enqueued(parent.id, False), Enqueued(child.id, False)]
        assert (await row(store, child)).deps == 1
