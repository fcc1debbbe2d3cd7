"""The end of a flow: a cancelled root takes its jobs with it, and a flow is deleted as a whole."""

from __future__ import annotations

import pytest

from mainspring.common.clock import MovableClock
from mainspring.jobs.outcomes import Ack
from mainspring.jobs.query import Query
from mainspring.jobs.records import FLOW_KEEP, Edge, Join, NewJob, Retention
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import HOUR, Hand, ending, gone, job, lease, put_in, row, state

__all__ = ["TestCancelledFlows", "TestDeletedFlows", "TestRetentionOfFlows"]

RULES = Retention(keep=10 * HOUR, keep_count=100, keep_at_least=HOUR, keep_dead=20 * HOUR, keep_workers=HOUR)


def in_flow(root: NewJob, **options: object) -> NewJob:
    """A job of the flow that ends with ``root``."""
    return job(marks=[f"%{root.id.hex()}"], keep=FLOW_KEEP, **options)  # type: ignore[arg-type]  # options of job()


async def sweep(store: Store) -> None:
    """Promote until nothing is left to do now."""
    for _ in range(50):
        said = await store.promote()
        if said.next_due is None or said.next_due > said.now:
            return
    raise AssertionError("promote never comes to an end")


@pytest.mark.asyncio
class TestCancelledFlows:
    @pytest.mark.parametrize("how", ["cancel", "expire"])
    async def test_all_jobs_of_the_flow_end(self, store: Store, clock: MovableClock, how: str) -> None:
        root = job(join=Join(), expires_in=HOUR if how == "expire" else None)
        first, ready = in_flow(root, queue="r"), in_flow(root, queue="w", before=[root])
        blocked, later = in_flow(root, after=[first], before=[root]), in_flow(root, delay=10 * HOUR, before=[root])
        other = job(queue="w")
        await put_in(store, root, first, ready, blocked, later, other)
        hand = await Hand(store).join()
        claim = await hand.take_one("r/any")
        if how == "cancel":
            await store.act(Action.CANCEL, Query(ids=(root.id,)))
        else:
            clock.advance("61m")
            await store.promote()
        assert await state(store, root) == State.CANCELLED
        await sweep(store)
        for each in (ready, blocked, later):
            assert await ending(store, each) == (State.CANCELLED, Reason.PARENT)
        said = await hand.turn()
        assert [order.id for order in said.orders] == [first.id]
        await hand.turn(Ack.cancelled(lease(claim)))
        assert await state(store, first) == State.CANCELLED
        assert await state(store, other) == State.READY

    async def test_a_promotion_is_due_at_once(self, store: Store) -> None:
        root = job(join=Join())
        await put_in(store, root, in_flow(root, before=[root]))
        await store.act(Action.CANCEL, Query(ids=(root.id,)))
        hand = await Hand(store).join()
        said = await store.lead(hand.name, ["promote"], 1_000_000)
        assert said.next_due is not None
        assert said.next_due <= said.now
        await sweep(store)
        assert (await store.promote()).next_due is None

    async def test_large_flows_are_cancelled_in_slices(self, store: Store) -> None:
        root = job(join=Join())
        await put_in(store, root, *(in_flow(root, before=[root]) for _ in range(250)))
        await store.act(Action.CANCEL, Query(ids=(root.id,)))
        await store.promote(limit=100)
        assert (await store.count(Query.everything()))[State.CANCELLED] == 101
        while (await store.count(Query.everything()))[State.READY]:
            await store.promote(limit=100)
        assert (await store.count(Query.everything()))[State.CANCELLED] == 251

    async def test_a_root_that_a_parent_ends_takes_its_flow_with_it(self, store: Store) -> None:
        parent = job(queue="p")
        root = job(join=Join(open=True), after=[parent])
        member, beside = in_flow(root, before=[root]), in_flow(root, queue="beside")
        await put_in(store, parent, root, member, beside)
        hand = await Hand(store).join()
        await hand.kill(await hand.take_one("p/any"))
        assert await ending(store, root) == (State.CANCELLED, Reason.PARENT)
        await sweep(store)
        assert await ending(store, member) == (State.CANCELLED, Reason.PARENT)
        assert await ending(store, beside) == (State.CANCELLED, Reason.PARENT)

    async def test_a_flow_that_ends_by_its_members_cancels_nothing(self, store: Store) -> None:
        """A job beside the members that still runs goes on."""
        root = job(join=Join())
        beside = in_flow(root, queue="beside")
        await put_in(store, root, in_flow(root, before=[root]), beside)
        hand = await Hand(store).join()
        await hand.kill(await hand.take_one())
        assert await ending(store, root) == (State.CANCELLED, Reason.PARENT)
        await sweep(store)
        assert await state(store, beside) == State.READY


@pytest.mark.asyncio
class TestDeletedFlows:
    async def test_a_deleted_root_takes_all_jobs_with_it(self, store: Store, clock: MovableClock) -> None:
        root = job(join=Join())
        done, waiting, runs = in_flow(root, queue="d"), in_flow(root, before=[root]), in_flow(root, queue="r")
        await put_in(store, root, done, waiting, runs)
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one("d/any"))
        claim = await hand.take_one("r/any")
        await store.act(Action.DELETE, Query(ids=(root.id,)))
        await sweep(store)
        assert await gone(store, root)
        assert await gone(store, done)
        assert await gone(store, waiting)
        assert (await row(store, runs)).ordered
        await hand.turn(Ack.cancelled(lease(claim)))
        clock.advance("2s")
        await sweep(store)
        assert await gone(store, runs)

    async def test_an_ended_root_can_be_deleted(self, store: Store) -> None:
        root = job(join=Join())
        member = in_flow(root, before=[root])
        await put_in(store, root, member)
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one())
        await store.act(Action.DELETE, Query(ids=(root.id,)))
        await sweep(store)
        assert await gone(store, member)
        assert await store.joins([root.id]) == []


@pytest.mark.asyncio
class TestRetentionOfFlows:
    async def test_jobs_of_an_open_flow_are_kept(self, store: Store, clock: MovableClock) -> None:
        root = job(join=Join(open=True))
        good, dead = in_flow(root, before=[root]), in_flow(root, before=[root])
        await put_in(store, root, good, dead)
        hand = await Hand(store).join()
        first, second = await hand.take(2)
        await hand.succeed(first)
        await hand.kill(second)
        clock.advance("400d")
        assert await store.prune(RULES) == 0
        assert await state(store, first) == State.SUCCEEDED
        assert await state(store, second) == State.DEAD

    async def test_an_ended_flow_is_pruned_as_a_whole(self, store: Store, clock: MovableClock) -> None:
        root = job(join=Join())
        before = in_flow(root)
        await put_in(store, root, before, *(in_flow(root, after=[before], before=[root]) for _ in range(3)))
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one())
        clock.advance("9h")
        first, second, third = await hand.take(3)
        await hand.succeed(first, second)
        await hand.kill(third)
        clock.advance("9h")
        assert await store.prune(RULES) == 0
        clock.advance("61m")
        for _ in range(10):
            await store.prune(RULES, limit=2)
        assert (await store.find(Query.everything())).jobs == ()
        assert await store.joins([root.id]) == []

    async def test_a_root_stays_while_a_job_of_its_flow_is_live(self, store: Store, clock: MovableClock) -> None:
        root = job(join=Join())
        beside = in_flow(root, queue="beside")
        await put_in(store, root, in_flow(root, before=[root]), beside)
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one())
        clock.advance("11h")
        await store.prune(RULES)
        assert await state(store, root) == State.SUCCEEDED
        await hand.succeed(await hand.take_one("beside/any"))
        for _ in range(3):
            await store.prune(RULES)
        assert (await store.find(Query.everything())).jobs == ()

    async def test_no_job_of_a_flow_is_pruned_while_one_is_live(self, store: Store, clock: MovableClock) -> None:
        """Also if the live job is not among those that a slice would delete first."""
        root = job(join=Join())
        ended = [in_flow(root, before=[root]) for _ in range(4)]
        beside = in_flow(root, queue="beside")
        await put_in(store, root, *ended, beside)
        hand = await Hand(store).join()
        await hand.succeed(*await hand.take(4))
        clock.advance("11h")
        for _ in range(4):
            assert await store.prune(RULES, limit=2) == 0
        assert len((await store.find(Query.everything())).jobs) == 6
        await hand.succeed(await hand.take_one("beside/any"))
        for _ in range(6):
            await store.prune(RULES, limit=2)
        assert (await store.find(Query.everything())).jobs == ()

    async def test_a_join_without_marked_jobs_is_pruned_like_a_job(self, store: Store, clock: MovableClock) -> None:
        join = job(join=Join())
        await put_in(store, join, job(after=[Edge(join.id)]))
        clock.advance("11h")
        assert await store.prune(RULES) == 1
        assert await gone(store, join)
