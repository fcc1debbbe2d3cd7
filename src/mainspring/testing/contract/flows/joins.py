"""Joins: a join ends once, in the step in which its last member ends, and counts how its members ended."""

from __future__ import annotations

import asyncio

import pytest

from mainspring.common.clock import MovableClock
from mainspring.common.ids import new_id
from mainspring.errors import FlowClosed, StoreConflict
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import Edge, JobBatch, Join, JoinRow, NewJob
from mainspring.states import Action, Reason, State
from mainspring.stores.base import CHILDREN_AT_ONCE, Store
from mainspring.testing.contract.hands import (
    HOUR,
    Hand,
    ending,
    gone,
    ids,
    job,
    lease,
    put_in,
    row,
    state,
)
from mainspring.worker.records import Want

__all__ = ["TestAdding", "TestJoinsAsChildren", "TestJoinsEnd", "TestManyChildren"]


def members(join: NewJob, n: int, **options: object) -> list[NewJob]:
    return [job(before=[join], **options) for _ in range(n)]  # type: ignore[arg-type]  # options of job()


async def counts(store: Store, join: NewJob) -> JoinRow:
    (found,) = await store.joins([join.id])
    return found


async def accepted(store: Store, *jobs: NewJob) -> None:
    """Enqueue as a running job does."""
    await store.enqueue(JobBatch(id=new_id().bytes, jobs=jobs, accepted=True))


async def finish_all(hand: Hand, n: int) -> None:
    claims = await hand.take(n)
    assert len(claims) == n
    await hand.succeed(*claims)


@pytest.mark.asyncio
class TestJoinsEnd:
    @pytest.mark.parametrize("n", [1, 2, 7])
    async def test_a_join_ends_with_its_last_member(self, store: Store, n: int) -> None:
        join = job(join=Join())
        await put_in(store, join, *members(join, n))
        hand = await Hand(store).join()
        for done, claim in enumerate(await hand.take(n)):
            assert await state(store, join) == State.BLOCKED
            assert (await counts(store, join)).succeeded == done
            await hand.succeed(claim)
        assert await ending(store, join) == (State.SUCCEEDED, None)
        assert await counts(store, join) == JoinRow(id=join.id, open=False, total=n, succeeded=n)

    async def test_a_join_without_members_ends_when_it_is_inserted(self, store: Store) -> None:
        join = job(join=Join())
        child = job(after=[join])
        await put_in(store, join, child)
        assert await ending(store, join) == (State.SUCCEEDED, None)
        assert await state(store, child) == State.READY
        assert (await counts(store, join)).total == 0

    async def test_a_join_is_never_claimed(self, store: Store) -> None:
        join = job(join=Join(open=True))
        await put_in(store, join, job(join=Join()))
        hand = await Hand(store).join()
        assert await hand.take(5) == ()

    async def test_members_that_end_in_one_turn(self, store: Store) -> None:
        join = job(join=Join())
        child = job(after=[join], queue="later")
        await put_in(store, join, *members(join, 5), child)
        hand = await Hand(store).join()
        claims = await hand.take(5)
        said = await hand.turn(*(Ack.succeeded(lease(claim)) for claim in claims), wants=[Want(("later/any",), 1)])
        assert ids(said.claims) == [child.id]

    async def test_the_last_two_members_end_at_the_same_time(self, store: Store, second_store: Store) -> None:
        for _ in range(10):
            join = job(join=Join())
            child = job(after=[join], queue="later")
            await put_in(store, join, *members(join, 2), child)
            here, there = await Hand(store).join(), await Hand(second_store).join()
            first, second = await here.take_one(), await there.take_one()
            await asyncio.gather(here.succeed(first), there.succeed(second))
            assert await state(store, child) == State.READY
            assert (await counts(store, join)).succeeded == 2
            ended = [(await row(store, each)).finished or 0 for each in (first, second, join)]
            assert max(ended) == ended[-1], "the join has not ended before its last member"

    async def test_a_repeated_ack_counts_once(self, store: Store) -> None:
        join = job(join=Join())
        await put_in(store, join, *members(join, 2))
        hand = await Hand(store).join()
        first, _ = await hand.take(2)
        await hand.succeed(first)
        await hand.repeat()
        await hand.turn(Ack.succeeded(lease(first)))
        assert await counts(store, join) == JoinRow(id=join.id, open=False, total=2, succeeded=1)
        assert await state(store, join) == State.BLOCKED

    async def test_a_strict_join_waits_for_all_members_and_then_ends_badly(self, store: Store) -> None:
        join = job(join=Join())
        child = job(after=[join])
        await put_in(store, join, *members(join, 3), child)
        hand = await Hand(store).join()
        bad, good, cancelled = await hand.take(3)
        await hand.kill(bad)
        await hand.succeed(good)
        assert await state(store, join) == State.BLOCKED
        await hand.turn(Ack.cancelled(lease(cancelled)))
        assert await ending(store, join) == (State.CANCELLED, Reason.PARENT)
        assert await ending(store, child) == (State.CANCELLED, Reason.PARENT)
        assert await counts(store, join) == JoinRow(id=join.id, open=False, total=3, succeeded=1, dead=1, cancelled=1)

    async def test_a_lenient_join_succeeds_whatever_happens(self, store: Store) -> None:
        join = job(join=Join(lenient=True))
        child = job(after=[join], queue="later")
        await put_in(store, join, *members(join, 2), child)
        hand = await Hand(store).join()
        bad, good = await hand.take(2)
        await hand.kill(bad)
        await hand.succeed(good)
        assert await ending(store, join) == (State.SUCCEEDED, None)
        assert await state(store, child) == State.READY

    async def test_a_member_that_crashes_or_expires_or_is_deleted_counts(
        self, store: Store, clock: MovableClock
    ) -> None:
        join = job(join=Join(lenient=True))
        crashing, deleted = job(before=[join], crashes=1, queue="c"), job(before=[join])
        expiring = job(before=[join], expires_in=HOUR)
        await put_in(store, join, crashing, deleted, expiring)
        hand = await Hand(store).join()
        await hand.take_one("c/any")
        assert (await store.rescue(hand.name, hand.beats, Outcome.CRASHED)).dead == (crashing.id,)
        await store.act(Action.DELETE, Query(ids=(deleted.id,)))
        assert await state(store, join) == State.BLOCKED
        clock.advance("2h")
        await store.promote()
        assert await ending(store, join) == (State.SUCCEEDED, None)
        assert await counts(store, join) == JoinRow(id=join.id, open=False, total=3, dead=1, cancelled=2)

    async def test_a_counted_member_retried_by_hand_is_not_counted_again(self, store: Store) -> None:
        join = job(join=Join())
        first, second = job(before=[join], queue="l"), job(before=[join], queue="r")
        await put_in(store, join, first, second)
        hand = await Hand(store).join()
        for _ in range(3):
            await hand.succeed(await hand.take_one("l/any"))
            await store.act(Action.RETRY, Query(ids=(first.id,)))
        assert await counts(store, join) == JoinRow(id=join.id, open=False, total=2, succeeded=1)
        await hand.succeed(await hand.take_one("r/any"))
        assert await state(store, join) == State.SUCCEEDED

    async def test_actions_that_do_not_apply_to_a_join(self, store: Store) -> None:
        join = job(join=Join())
        await put_in(store, join, *members(join, 1))
        await store.act(Action.RUN_NOW, Query(ids=(join.id,)))
        assert await state(store, join) == State.BLOCKED
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one())
        said = await store.act(Action.RETRY, Query(ids=(join.id,)))
        assert said.done == ()
        assert await state(store, join) == State.SUCCEEDED

    async def test_a_cancelled_join_frees_its_children_by_policy_at_once(self, store: Store) -> None:
        join = job(join=Join())
        strict, careless = job(after=[join], queue="x"), job(after=[Edge(join.id, "ignore")], queue="x")
        await put_in(store, join, *members(join, 1), strict, careless)
        await store.act(Action.CANCEL, Query(ids=(join.id,)))
        assert await ending(store, join) == (State.CANCELLED, Reason.BY_USER)
        assert await ending(store, strict) == (State.CANCELLED, Reason.PARENT)
        assert await state(store, careless) == State.READY
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one())
        assert await ending(store, join) == (State.CANCELLED, Reason.BY_USER)

    async def test_a_join_expires(self, store: Store, clock: MovableClock) -> None:
        join = job(join=Join(), expires_in=HOUR)
        await put_in(store, join, *members(join, 1))
        clock.advance("61m")
        assert (await store.promote()).expired == 1
        assert await ending(store, join) == (State.CANCELLED, Reason.EXPIRED)

    async def test_joins_of_unknown_ids_and_of_jobs_are_left_out(self, store: Store) -> None:
        join, plain = job(join=Join(open=True)), job()
        await put_in(store, join, plain)
        assert [found.id for found in await store.joins([plain.id, join.id, new_id().bytes])] == [join.id]
        assert await store.close_join(plain.id) is None


@pytest.mark.asyncio
class TestJoinsAsChildren:
    async def test_a_join_in_a_join(self, store: Store) -> None:
        outer = job(join=Join())
        inner = job(join=Join(), before=[outer])
        await put_in(store, outer, inner, *members(inner, 2), *members(outer, 1))
        hand = await Hand(store).join()
        await finish_all(hand, 3)
        assert await ending(store, inner) == (State.SUCCEEDED, None)
        assert await ending(store, outer) == (State.SUCCEEDED, None)
        assert await counts(store, outer) == JoinRow(id=outer.id, open=False, total=2, succeeded=2)

    @pytest.mark.parametrize("dies", [True, False], ids=["dead", "cancelled"])
    async def test_a_bad_inner_join_counts_as_dead_if_a_member_is_dead(self, store: Store, *, dies: bool) -> None:
        outer = job(join=Join())
        inner = job(join=Join(), before=[outer])
        await put_in(store, outer, inner, *members(inner, 1))
        hand = await Hand(store).join()
        claim = await hand.take_one()
        if dies:
            await hand.kill(claim)
        else:
            await hand.turn(Ack.cancelled(lease(claim)))
        assert await ending(store, inner) == (State.CANCELLED, Reason.PARENT)
        assert await ending(store, outer) == (State.CANCELLED, Reason.PARENT)
        found = await counts(store, outer)
        assert (found.dead, found.cancelled) == ((1, 0) if dies else (0, 1))

    async def test_an_empty_join_in_an_empty_join(self, store: Store) -> None:
        outer = job(join=Join())
        inner = job(join=Join(), before=[outer])
        await put_in(store, outer, inner)
        assert await state(store, inner) == State.SUCCEEDED
        assert await ending(store, outer) == (State.SUCCEEDED, None)

    async def test_a_join_with_a_parent_ends_after_it(self, store: Store) -> None:
        parent = job()
        join = job(join=Join(), after=[parent])
        await put_in(store, parent, join)
        assert await state(store, join) == State.BLOCKED
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one())
        assert await state(store, join) == State.SUCCEEDED

    @pytest.mark.parametrize("is_open", [True, False], ids=["open", "closed"])
    async def test_a_bad_parent_ends_a_join_at_once(self, store: Store, *, is_open: bool) -> None:
        """The parent is no member: its edge acts by its policy, while a member of the join is live."""
        parent, outer = job(queue="p"), job(join=Join())
        join = job(join=Join(open=is_open), after=[parent], before=[outer])
        member = job(before=[join])
        child = job(after=[join])
        await put_in(store, parent, outer, join, member, child)
        hand = await Hand(store).join()
        await hand.kill(await hand.take_one("p/any"))
        assert await ending(store, join) == (State.CANCELLED, Reason.PARENT)
        assert await ending(store, child) == (State.CANCELLED, Reason.PARENT)
        assert await ending(store, outer) == (State.CANCELLED, Reason.PARENT)
        await hand.succeed(await hand.take_one())
        assert await ending(store, join) == (State.CANCELLED, Reason.PARENT)
        with pytest.raises(FlowClosed):
            await accepted(store, job(before=[join]))

    async def test_a_parent_with_the_policy_skip_bypasses_a_join(self, store: Store) -> None:
        parent, outer = job(queue="p"), job(join=Join())
        join = job(join=Join(), after=[Edge(parent.id, "skip")], before=[outer])
        await put_in(store, parent, outer, join, job(before=[join]))
        hand = await Hand(store).join()
        await hand.kill(await hand.take_one("p/any"))
        assert await ending(store, join) == (State.CANCELLED, Reason.BYPASSED)
        assert await counts(store, outer) == JoinRow(id=outer.id, open=False, total=1, bypassed=1)
        assert await ending(store, outer) == (State.SUCCEEDED, None)

    async def test_a_join_inserted_after_a_bad_parent_has_ended(self, store: Store) -> None:
        parent = job(queue="p")
        await put_in(store, parent)
        hand = await Hand(store).join()
        await hand.kill(await hand.take_one("p/any"))
        join = job(join=Join(open=True), after=[parent])
        await put_in(store, join)
        assert await ending(store, join) == (State.CANCELLED, Reason.PARENT)

    async def test_a_job_in_two_joins(self, store: Store) -> None:
        left, right = job(join=Join()), job(join=Join())
        await put_in(store, left, right, job(before=[left, right]))
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one())
        assert await state(store, left) == State.SUCCEEDED
        assert await state(store, right) == State.SUCCEEDED

    async def test_a_member_whose_parent_failed_counts(self, store: Store) -> None:
        """Also a member that is inserted as ended, because its parent ended before."""
        parent = job(queue="p")
        await put_in(store, parent)
        hand = await Hand(store).join()
        await hand.kill(await hand.take_one("p/any"))
        join = job(join=Join())
        await put_in(store, join, job(before=[join], after=[parent]))
        assert await ending(store, join) == (State.CANCELLED, Reason.PARENT)

    async def test_crossing_joins_of_two_workers(self, store: Store, second_store: Store) -> None:
        """The members of inner and outer joins end at the same time, in both orders: nothing waits for ever."""
        for _ in range(10):
            outer = job(join=Join())
            inners = [job(join=Join(), before=[outer]) for _ in range(4)]
            await put_in(store, outer, *inners, *(made for each in inners for made in members(each, 2)),
                         *members(outer, 2))  # fmt: skip
            here, there = await Hand(store).join(), await Hand(second_store).join()
            first, second = await here.take(5), await there.take(5)
            assert len(first) + len(second) == 10
            await asyncio.gather(here.succeed(*first), there.succeed(*second))
            assert await state(store, outer) == State.SUCCEEDED


@pytest.mark.asyncio
class TestAdding:
    async def test_an_open_join_ends_after_it_is_closed(self, store: Store) -> None:
        join = job(join=Join(open=True))
        await put_in(store, join, *members(join, 1))
        hand = await Hand(store).join()
        await finish_all(hand, 1)
        assert await state(store, join) == State.BLOCKED
        await put_in(store, *members(join, 2))
        closed = await store.close_join(join.id)
        assert closed == JoinRow(id=join.id, open=False, total=3, succeeded=1)
        assert await state(store, join) == State.BLOCKED
        await finish_all(hand, 2)
        assert await state(store, join) == State.SUCCEEDED

    async def test_an_open_join_waits_for_its_members_only(self, store: Store) -> None:
        """That it is open is no edge."""
        join = job(join=Join(open=True))
        await put_in(store, join)
        assert (await row(store, join)).deps == 0
        await put_in(store, *members(join, 2))
        assert (await row(store, join)).deps == 2

    async def test_closing_ends_a_join_whose_members_have_ended(self, store: Store) -> None:
        join = job(join=Join(open=True))
        child = job(after=[join])
        await put_in(store, join, child)
        await store.close_join(join.id)
        assert await state(store, join) == State.SUCCEEDED
        assert await state(store, child) == State.READY
        again = await store.close_join(join.id)
        assert again is not None
        assert not again.open

    async def test_a_closed_join_takes_members_from_running_jobs_only(self, store: Store) -> None:
        join = job(join=Join())
        await put_in(store, join, *members(join, 1))
        with pytest.raises(FlowClosed):
            await put_in(store, job(), *members(join, 1))
        assert (await store.count(Query.everything()))[State.READY] == 1, "nothing of the refused batch is there"
        await accepted(store, *members(join, 1))
        assert (await counts(store, join)).total == 2
        hand = await Hand(store).join()
        await finish_all(hand, 2)
        assert await state(store, join) == State.SUCCEEDED

    async def test_an_ended_join_takes_no_members(self, store: Store) -> None:
        join = job(join=Join())
        await put_in(store, join)
        for add in (put_in, accepted):
            with pytest.raises(FlowClosed):
                await add(store, *members(join, 1))
        with pytest.raises((FlowClosed, StoreConflict)):
            await put_in(store, job(before=[new_id().bytes]))

    async def test_a_repeated_enqueue_adds_each_member_once(self, store: Store) -> None:
        join = job(join=Join(open=True))
        await put_in(store, join)
        batch = JobBatch(id=new_id().bytes, jobs=tuple(members(join, 3)))
        await store.enqueue(batch)
        await store.enqueue(JobBatch(id=batch.id, jobs=batch.jobs, retry=True))
        hand = await Hand(store).join()
        await finish_all(hand, 3)
        await store.enqueue(JobBatch(id=batch.id, jobs=batch.jobs, retry=True))
        assert await counts(store, join) == JoinRow(id=join.id, open=True, total=3, succeeded=3)

    async def test_a_repeat_after_the_join_has_ended_is_no_error(self, store: Store) -> None:
        join = job(join=Join())
        batch = JobBatch(id=new_id().bytes, jobs=(join, *members(join, 1)))
        await store.enqueue(batch)
        hand = await Hand(store).join()
        await finish_all(hand, 1)
        again = await store.enqueue(JobBatch(id=batch.id, jobs=batch.jobs, retry=True))
        assert [each.created for each in again] == [False, False]
        assert await counts(store, join) == JoinRow(id=join.id, open=False, total=1, succeeded=1)

    async def test_a_member_can_be_added_while_the_last_member_ends(self, store: Store, second_store: Store) -> None:
        """Either the new member counts, or it is refused: the join never ends without it."""
        for _ in range(10):
            join = job(join=Join())
            await put_in(store, join, *members(join, 1))
            hand = await Hand(store).join()
            claim = await hand.take_one()
            late = job(before=[join], queue="late")
            results = await asyncio.gather(hand.succeed(claim), accepted(second_store, late), return_exceptions=True)
            refused = isinstance(results[1], FlowClosed)
            assert results[0] is None
            assert refused or results[1] is None, results[1]
            assert await gone(store, late) is refused
            assert await state(store, join) == (State.SUCCEEDED if refused else State.BLOCKED)
            assert (await counts(store, join)).total == (1 if refused else 2)

    async def test_a_job_before_an_ordinary_blocked_job(self, store: Store) -> None:
        """The blocked job waits for one job more, by the policy fail."""
        parent = job(queue="p")
        child = job(after=[parent], queue="c")
        await put_in(store, parent, child)
        extra = job(before=[child], queue="e")
        await accepted(store, extra)
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one("p/any"))
        assert await state(store, child) == State.BLOCKED
        assert await store.waits_for(child.id) == [Edge(extra.id)]
        await hand.succeed(await hand.take_one("e/any"))
        assert await state(store, child) == State.READY
        with pytest.raises(FlowClosed):
            await accepted(store, job(before=[child]))

    async def test_unresolved_edges_are_listed(self, store: Store) -> None:
        join = job(join=Join())
        made = members(join, 3)
        await put_in(store, join, *made)
        assert await store.waits_for(join.id) == [Edge(each) for each in sorted(ids(made))]
        assert len(await store.waits_for(join.id, limit=2)) == 2
        assert await store.waits_for(made[0].id) == []

    async def test_a_join_does_not_count_for_the_depth_of_its_queue(self, store: Store) -> None:
        from mainspring.queues.records import QueueSettings

        await store.configure_queue("q", QueueSettings(max_depth=1, on_full="error"))
        await put_in(store, job(join=Join(open=True)), job(join=Join(open=True)))
        await put_in(store, job())


@pytest.mark.asyncio
class TestManyChildren:
    async def test_many_children_of_a_join_are_released_in_slices(self, store: Store) -> None:
        n = CHILDREN_AT_ONCE * 2 + 10
        start = job(join=Join(open=True))
        await put_in(store, start)
        for first in range(0, n, 500):
            await put_in(store, *(job(after=[start]) for _ in range(first, min(n, first + 500))))
        assert (await store.count(Query.everything()))[State.BLOCKED] == n + 1
        await store.close_join(start.id)
        assert await state(store, start) == State.SUCCEEDED
        first = (await store.count(Query.everything()))[State.READY]
        assert first == CHILDREN_AT_ONCE
        while (said := await store.promote()).next_due is not None and said.next_due <= said.now:
            assert (await store.count(Query.everything()))[State.READY] > first
            first = (await store.count(Query.everything()))[State.READY]
        assert await released(store, n)

    async def test_a_child_added_to_an_ended_join_while_it_releases_others(self, store: Store) -> None:
        n = CHILDREN_AT_ONCE + 1
        start = job(join=Join(open=True))
        await put_in(store, start)
        for first in range(0, n, 500):
            await put_in(store, *(job(after=[start]) for _ in range(first, min(n, first + 500))))
        await store.close_join(start.id)
        late = job(after=[start], queue="late")
        await put_in(store, late)
        assert await state(store, late) == State.READY
        await store.promote()
        assert await released(store, n + 1)


async def released(store: Store, n: int) -> bool:
    found = await store.count(Query.everything())
    return found[State.READY] == n and found[State.BLOCKED] == 0
