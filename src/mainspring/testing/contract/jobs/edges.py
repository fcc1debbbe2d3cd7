"""Dependents: a join is released once, after all its parents, and no dependent is forgotten."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from mainspring.common.clock import MovableClock
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import Edge, NewJob
from mainspring.limits.records import Bucket
from mainspring.queues.records import FairKey
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.fair_keys.shares import of
from mainspring.testing.contract.hands import (
    ERROR,
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
from mainspring.worker.records import Claim, Want

__all__ = ["TestEdgesAndActs", "TestJoin"]

End = Callable[[Store, Hand, Claim], Awaitable[object]]


async def _by_order(store: Store, hand: Hand, claim: Claim) -> None:
    await store.act(Action.CANCEL, Query(ids=(claim.id,)))
    await hand.turn(Ack.interrupted(lease(claim)))


BAD_ENDS: dict[str, End] = {
    "dead": lambda _store, hand, claim: hand.kill(claim),
    "cancelled": lambda _store, hand, claim: hand.turn(Ack.cancelled(lease(claim))),
    "ordered": _by_order,
    "crashed": lambda store, hand, _claim: store.rescue(hand.name, hand.beats, Outcome.CRASHED),
    "retired": lambda store, hand, _claim: store.retire(hand.name, Outcome.CRASHED),
    "retired dead": lambda store, hand, claim: store.retire(
        hand.name, Outcome.INTERRUPTED, [Ack.dead(lease(claim), ERROR, Reason.TIMED_OUT)]
    ),
}


async def claimed(store: Store, *parents: NewJob) -> tuple[Hand, tuple[Claim, ...]]:
    """The parents, running under one worker."""
    hand = await Hand(store).join()
    claims = await hand.take(len(parents), *{f"{parent.queue}/any" for parent in parents})
    assert set(ids(claims)) == set(ids(parents))
    return hand, claims


@pytest.mark.asyncio
class TestJoin:
    async def test_a_child_runs_after_its_parent(self, store: Store) -> None:
        parent = job()
        child = job(after=[parent])
        await put_in(store, parent, child)
        hand = await Hand(store).join()
        claims = await hand.take(5)
        assert ids(claims) == [parent.id]
        await hand.succeed(*claims)
        found = await row(store, child)
        assert (found.state, found.deps) == (State.READY, 0)
        assert ids(await hand.take(5)) == [child.id]

    async def test_the_turn_that_ends_the_parent_can_claim_the_child(self, store: Store) -> None:
        parent = job()
        child = job(after=[parent])
        await put_in(store, parent, child)
        hand, (claim,) = await claimed(store, parent)
        said = await hand.turn(Ack.succeeded(lease(claim)), wants=[Want(("q/any",), 1)])
        assert ids(said.claims) == [child.id]

    @pytest.mark.parametrize("fair", [None, of("a")], ids=["plain", "fair"])
    @pytest.mark.parametrize("limited", [[bucket("gate", 2)], [bucket("gate", 2), bucket("tenant", 1, key="7")]])
    async def test_the_turn_that_ends_the_parent_can_claim_a_limited_child(
        self, store: Store, limited: list[Bucket], fair: FairKey | None
    ) -> None:
        parent = await one(store)
        hand = await Hand(store).join()
        claim = await hand.take_one()
        await put_in(store, *(job(after=[parent], buckets=each, fair=fair) for each in (limited, [])))
        said = await hand.turn(Ack.succeeded(lease(claim)), wants=[Want((LANE,), 9)])
        assert (len(said.claims), said.more) == (2, False)

    async def test_a_join_of_two_waits_for_both(self, store: Store) -> None:
        left, right = job(), job()
        join = job(after=[left, right])
        await put_in(store, left, right, join)
        hand, (first, second) = await claimed(store, left, right)
        await hand.succeed(first)
        found = await row(store, join)
        assert (found.state, found.deps) == (State.BLOCKED, 1)
        await hand.succeed(second)
        assert await state(store, join) == State.READY

    async def test_both_parents_in_one_turn(self, store: Store) -> None:
        """The count of open parents is reduced once by two."""
        left, right = job(), job()
        join = job(after=[left, right])
        await put_in(store, left, right, join)
        hand, claims = await claimed(store, left, right)
        await hand.succeed(*claims)
        assert await state(store, join) == State.READY

    async def test_both_parents_at_the_same_time(self, store: Store, second_store: Store) -> None:
        left, right = job(queue="l"), job(queue="r")
        join = job(after=[left, right])
        await put_in(store, left, right, join)
        here, there = await Hand(store).join(), await Hand(second_store).join()
        first, second = await here.take_one("l/any"), await there.take_one("r/any")
        await here.succeed(first)
        await there.succeed(second)
        assert await state(store, join) == State.READY

    async def test_a_repeated_ack_counts_once(self, store: Store) -> None:
        """A reply was lost: the join still waits for the other."""
        left, right = job(), job()
        join = job(after=[left, right])
        await put_in(store, left, right, join)
        hand, (first, _) = await claimed(store, left, right)
        await hand.succeed(first)
        await hand.repeat()
        await hand.turn(Ack.succeeded(lease(first)))
        found = await row(store, join)
        assert (found.state, found.deps) == (State.BLOCKED, 1)

    async def test_a_parent_that_retries_has_not_ended(self, store: Store) -> None:
        parent = job()
        child = job(after=[parent])
        await put_in(store, parent, child)
        hand, (claim,) = await claimed(store, parent)
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=0))
        await store.promote()
        assert await state(store, child) == State.BLOCKED
        await hand.turn(Ack.interrupted(lease(await hand.take_one())))
        assert await state(store, child) == State.BLOCKED

    @pytest.mark.parametrize("end", BAD_ENDS)
    async def test_a_failed_parent_cancels_the_child(self, store: Store, end: str) -> None:
        parent = job(crashes=1)
        child, waits_too = job(after=[parent]), await one(store, job(queue="other"))
        join = job(after=[parent, waits_too])
        await put_in(store, parent, child, join)
        hand, (claim,) = await claimed(store, parent)
        await BAD_ENDS[end](store, hand, claim)
        assert await ending(store, child) == (State.CANCELLED, Reason.PARENT)
        assert await ending(store, join) == (State.CANCELLED, Reason.PARENT)

    @pytest.mark.parametrize("end", BAD_ENDS)
    async def test_a_child_with_the_policy_ignore_becomes_ready(self, store: Store, end: str) -> None:
        parent = job(crashes=1)
        child = job(after=[ignoring(parent)])
        await put_in(store, parent, child)
        hand, (claim,) = await claimed(store, parent)
        await BAD_ENDS[end](store, hand, claim)
        found = await row(store, child)
        assert (found.state, found.deps) == (State.READY, 0)

    async def test_mixed_policies_of_one_join(self, store: Store) -> None:
        """The edge with policy ignore lets a dead parent pass, and the strict edge still waits."""
        careless, strict = job(), job()
        join = job(after=[ignoring(careless), strict])
        await put_in(store, careless, strict, join)
        hand, (first, second) = await claimed(store, careless, strict)
        await hand.kill(first)
        found = await row(store, join)
        assert (found.state, found.deps) == (State.BLOCKED, 1)
        await hand.succeed(second)
        assert await state(store, join) == State.READY

    async def test_a_failed_parent_cancels_the_whole_chain(self, store: Store) -> None:
        """A cancelled child is the end for its own children, in the same step."""
        jobs = [job()]
        for _ in range(20):
            jobs.append(job(after=[jobs[-1]]))
        tail = job(after=[ignoring(jobs[-1])])
        await put_in(store, *jobs, tail)
        hand, (claim,) = await claimed(store, jobs[0])
        await hand.kill(claim)
        for each in jobs[1:]:
            assert await ending(store, each) == (State.CANCELLED, Reason.PARENT)
        assert await state(store, tail) == State.READY

    async def test_a_diamond_ends_once(self, store: Store) -> None:
        top = job()
        left, right = job(after=[top]), job(after=[top])
        bottom = job(after=[left, right])
        await put_in(store, top, left, right, bottom)
        hand, (claim,) = await claimed(store, top)
        await hand.kill(claim)
        for each in (left, right, bottom):
            assert await ending(store, each) == (State.CANCELLED, Reason.PARENT)

    async def test_an_unblocked_child_waits_for_its_time(self, store: Store, clock: MovableClock) -> None:
        """Its delay counts from the enqueue."""
        parent = job()
        child = job(after=[parent], delay=30 * SECOND)
        await put_in(store, parent, child)
        due = clock.now_us() + 30 * SECOND
        clock.advance("10s")
        hand, (claim,) = await claimed(store, parent)
        await hand.succeed(claim)
        found = await row(store, child)
        assert (found.state, found.due) == (State.SCHEDULED, due)
        clock.advance("20s")
        await store.promote()
        assert await state(store, child) == State.READY

    async def test_an_unblocked_child_whose_time_has_come_is_ready(self, store: Store, clock: MovableClock) -> None:
        parent = job()
        child = job(after=[parent], delay=5 * SECOND)
        await put_in(store, parent, child)
        clock.advance("10s")
        hand, (claim,) = await claimed(store, parent)
        await hand.succeed(claim)
        assert await state(store, child) == State.READY

    async def test_a_blocked_child_is_not_promoted(self, store: Store, clock: MovableClock) -> None:
        parent = job()
        child = job(after=[parent], delay=SECOND)
        await put_in(store, parent, child)
        clock.advance("2s")
        assert (await store.promote()).promoted == 0
        assert await state(store, child) == State.BLOCKED

    async def test_a_child_added_while_its_parent_runs(self, store: Store) -> None:
        hand, claim = await running(store)
        child = await one(store, job(after=[Edge(claim.id)]))
        assert await state(store, child) == State.BLOCKED
        await hand.succeed(claim)
        assert await state(store, child) == State.READY

    async def test_many_children_of_one_parent(self, store: Store) -> None:
        parent = job()
        children = [job(after=[parent]) for _ in range(100)]
        await put_in(store, parent, *children)
        hand, (claim,) = await claimed(store, parent)
        await hand.succeed(claim)
        assert (await store.count(Query.everything()))[State.READY] == 100

    async def test_unblocked_jobs_keep_their_limits(self, store: Store) -> None:
        gate = bucket("gate", 1)
        parent = job()
        await put_in(store, parent, *(job(after=[parent], buckets=[gate]) for _ in range(3)))
        hand, (claim,) = await claimed(store, parent)
        await hand.succeed(claim)
        assert len(await hand.take(9)) == 1

    async def test_a_cancelled_parent_that_never_ran(self, store: Store) -> None:
        parent = job()
        child, careless = job(after=[parent]), job(after=[ignoring(parent)])
        await put_in(store, parent, child, careless)
        await store.act(Action.CANCEL, Query(ids=(parent.id,)))
        assert await ending(store, child) == (State.CANCELLED, Reason.PARENT)
        assert await state(store, careless) == State.READY

    async def test_the_end_of_a_parent_does_not_change_a_cancelled_child(self, store: Store) -> None:
        parent = job()
        child = job(after=[parent])
        await put_in(store, parent, child)
        await store.act(Action.CANCEL, Query(ids=(child.id,)))
        before = await row(store, child)
        hand, (claim,) = await claimed(store, parent)
        await hand.succeed(claim)
        assert await row(store, child) == before


@pytest.mark.asyncio
class TestEdgesAndActs:
    async def test_deleting_a_waiting_parent_ends_its_children_by_policy(self, store: Store) -> None:
        """The parent will never succeed: no child waits for a job that does not exist."""
        parent = job()
        child, careless = job(after=[parent]), job(after=[ignoring(parent)])
        grandchild = job(after=[child])
        await put_in(store, parent, child, careless, grandchild)
        await store.act(Action.DELETE, Query(ids=(parent.id,)))
        assert await gone(store, parent)
        assert await ending(store, child) == (State.CANCELLED, Reason.PARENT)
        assert await ending(store, grandchild) == (State.CANCELLED, Reason.PARENT)
        assert await state(store, careless) == State.READY

    async def test_deleting_a_finished_parent_changes_nothing_for_its_children(self, store: Store) -> None:
        parent = job()
        child = job(after=[parent])
        await put_in(store, parent, child)
        hand, (claim,) = await claimed(store, parent)
        await hand.succeed(claim)
        await store.act(Action.DELETE, Query(ids=(parent.id,)))
        assert await state(store, child) == State.READY

    async def test_deleting_a_blocked_child_leaves_its_parent_alone(self, store: Store) -> None:
        parent = job()
        child, sibling = job(after=[parent]), job(after=[parent])
        await put_in(store, parent, child, sibling)
        await store.act(Action.DELETE, Query(ids=(child.id,)))
        hand, (claim,) = await claimed(store, parent)
        await hand.succeed(claim)
        assert await gone(store, child)
        assert await state(store, sibling) == State.READY

    async def test_a_child_retried_by_hand_does_not_wait_for_its_parents(self, store: Store) -> None:
        """It was cancelled while it waited and was retried: the later death of the parent does not end it."""
        parent = job()
        child = job(after=[parent])
        await put_in(store, parent, child)
        await store.act(Action.CANCEL, Query(ids=(child.id,)))
        await store.act(Action.RETRY, Query(ids=(child.id,)))
        found = await row(store, child)
        assert (found.state, found.deps) == (State.READY, 0)
        hand = await Hand(store).join()
        claims = {claim.id: claim for claim in await hand.take(2)}
        await hand.kill(claims[parent.id])
        assert await state(store, child) == State.RUNNING
        await hand.succeed(claims[child.id])

    async def test_a_parent_that_is_run_again_counts_once(self, store: Store) -> None:
        """A of {A, B} succeeds, is retried by hand and succeeds again: the join still waits for B."""
        left, right = job(queue="l"), job(queue="r")
        join = job(after=[left, right])
        await put_in(store, left, right, join)
        hand = await Hand(store).join()
        for _ in range(2):
            await hand.succeed(await hand.take_one("l/any"))
            assert (await row(store, join)).deps == 1
            await store.act(Action.RETRY, Query(ids=(left.id,)))
        await hand.succeed(await hand.take_one("r/any"))
        assert await state(store, join) == State.READY

    async def test_a_child_of_a_retried_parent_waits_for_the_new_epoch(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.kill(claim)
        await store.act(Action.RETRY, Query(ids=(claim.id,)))
        child = await one(store, job(after=[Edge(claim.id)]))
        assert await state(store, child) == State.BLOCKED
