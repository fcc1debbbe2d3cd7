"""A flow that failed is retried from where it failed."""

from __future__ import annotations

import pytest

from mainspring.common.ids import id_of, new_id
from mainspring.errors import StoreConflict
from mainspring.jobs.query import Query
from mainspring.jobs.records import FLOW_KEEP, Edge, FlowRetry, Join, JoinRow
from mainspring.states import Action, Reason, State
from mainspring.stores.base import MOST_RETRIED, Store
from mainspring.testing.contract.hands import Hand, ending, ids, job, put_in, row, state

__all__ = ["TestRetryOfFlows"]


@pytest.mark.asyncio
class TestRetryOfFlows:
    @pytest.mark.parametrize("reverse", [False, True], ids=["parents first", "children first"])
    async def test_a_chain_goes_on_where_it_failed(self, store: Store, *, reverse: bool) -> None:
        root, first = job(join=Join()), job(queue="a")
        second = job(queue="b", after=[first])
        third = job(queue="c", after=[second], before=[root])
        await put_in(store, root, first, second, third)
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one("a/any"))
        await hand.kill(await hand.take_one("b/any"))
        assert await ending(store, root) == (State.CANCELLED, Reason.PARENT)
        retries = [
            FlowRetry(second.id, after=(Edge(first.id),)),
            FlowRetry(third.id, after=(Edge(second.id),), before=(root.id,)),
            FlowRetry(root.id),
        ]
        said = await store.retry_flow(retries[::-1] if reverse else retries)
        assert set(said.done) == {second.id, third.id, root.id}
        found = await row(store, second)
        assert (found.state, found.epoch, found.attempt) == (State.READY, 2, 0)
        assert await state(store, third) == State.BLOCKED
        assert await store.joins([root.id]) == [JoinRow(id=root.id, open=False, total=1)]
        await hand.succeed(await hand.take_one("b/any"))
        await hand.succeed(await hand.take_one("c/any"))
        assert await ending(store, root) == (State.SUCCEEDED, None)

    async def test_a_join_keeps_the_members_that_ended_well(self, store: Store) -> None:
        join = job(join=Join())
        callback = job(queue="c", after=[join])
        made = [job(before=[join]) for _ in range(5)]
        await put_in(store, join, *made, callback)
        hand = await Hand(store).join()
        claims = await hand.take(5)
        await hand.succeed(*claims[:3])
        await hand.kill(*claims[3:])
        retries = [FlowRetry(each.id, before=(join.id,)) for each in claims[3:]]
        retries += [FlowRetry(join.id), FlowRetry(callback.id, after=(Edge(join.id),))]
        assert len((await store.retry_flow(retries)).done) == 4
        assert await store.joins([join.id]) == [JoinRow(id=join.id, open=False, total=5, succeeded=3)]
        again = await hand.take(5)
        assert set(ids(again)) == set(ids(claims[3:]))
        await hand.succeed(*again)
        assert await ending(store, join) == (State.SUCCEEDED, None)
        assert await state(store, callback) == State.READY

    async def test_it_can_fail_again(self, store: Store) -> None:
        join = job(join=Join())
        member = job(before=[join])
        await put_in(store, join, member)
        hand = await Hand(store).join()
        for epoch in (1, 2, 3):
            await hand.kill(await hand.take_one())
            assert await ending(store, join) == (State.CANCELLED, Reason.PARENT)
            assert (await row(store, join)).epoch == epoch
            await store.retry_flow([FlowRetry(join.id), FlowRetry(member.id, before=(join.id,))])
        await hand.succeed(await hand.take_one())
        assert await state(store, join) == State.SUCCEEDED

    async def test_jobs_that_succeeded_or_are_live_are_refused(self, store: Store) -> None:
        done, waits = job(queue="d"), job(queue="w")
        await put_in(store, done, waits)
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one("d/any"))
        said = await store.retry_flow([FlowRetry(done.id), FlowRetry(waits.id), FlowRetry(new_id().bytes)])
        assert said.done == ()
        assert set(said.refused) == {(done.id, State.SUCCEEDED), (waits.id, State.READY)}

    async def test_of_a_job_that_is_named_twice_the_first_entry_holds(self, store: Store) -> None:
        good, dead, done = job(queue="g"), job(queue="d"), job(queue="done")
        child = job(queue="c", after=[dead])
        await put_in(store, good, dead, child, done)
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one("done/any"))
        await hand.kill(await hand.take_one("d/any"))
        first, second = FlowRetry(child.id, after=(Edge(good.id),)), FlowRetry(child.id, after=(Edge(dead.id),))
        said = await store.retry_flow([first, FlowRetry(done.id), second, FlowRetry(done.id)])
        assert (said.done, said.refused) == ((child.id,), ((done.id, State.SUCCEEDED),))
        assert (await row(store, child)).epoch == 2
        assert await store.waits_for(child.id) == [Edge(good.id)]

    async def test_a_missing_parent_is_refused_and_nothing_is_retried(self, store: Store) -> None:
        parent = job(queue="p")
        child, other = job(after=[parent]), job(queue="p")
        await put_in(store, parent, child, other)
        hand = await Hand(store).join()
        await hand.kill(*await hand.take(2, "p/any"))
        await store.act(Action.DELETE, Query(ids=(parent.id,)))
        retries = [FlowRetry(other.id), FlowRetry(child.id, after=(Edge(parent.id, "ignore"),))]
        with pytest.raises(StoreConflict, match=str(id_of(parent.id))):
            await store.retry_flow(retries)
        assert await ending(store, child) == (State.CANCELLED, Reason.PARENT)
        assert await state(store, other) == State.DEAD

    async def test_parents_of_jobs_that_are_not_retried_may_be_missing(self, store: Store) -> None:
        gone, live = new_id().bytes, job(queue="l")
        await put_in(store, live)
        said = await store.retry_flow([FlowRetry(live.id, after=(Edge(gone),)), FlowRetry(gone, after=(Edge(gone),))])
        assert (said.done, said.refused) == ((), ((live.id, State.READY),))

    async def test_a_target_that_is_missing_or_does_not_wait_is_left_out(self, store: Store) -> None:
        ready, dead = job(queue="r"), job(queue="d")
        await put_in(store, ready, dead)
        hand = await Hand(store).join()
        await hand.kill(await hand.take_one("d/any"))
        said = await store.retry_flow([FlowRetry(dead.id, before=(new_id().bytes, ready.id))])
        assert said.done == (dead.id,)
        assert (await state(store, dead), await state(store, ready)) == (State.READY, State.READY)

    async def test_more_jobs_than_one_call_takes_are_refused(self, store: Store) -> None:
        dead = job()
        await put_in(store, dead)
        hand = await Hand(store).join()
        await hand.kill(await hand.take_one())
        with pytest.raises(StoreConflict, match="at most 1,000"):
            await store.retry_flow([FlowRetry(dead.id)] * (MOST_RETRIED + 1))
        assert await state(store, dead) == State.DEAD

    async def test_a_dead_parent_that_is_not_retried_ends_the_child_again(self, store: Store) -> None:
        parent = job(queue="p")
        child = job(after=[parent])
        await put_in(store, parent, child)
        hand = await Hand(store).join()
        await hand.kill(await hand.take_one("p/any"))
        await store.retry_flow([FlowRetry(child.id, after=(Edge(parent.id),))])
        assert await ending(store, child) == (State.CANCELLED, Reason.PARENT)

    async def test_a_member_returns_to_a_join_that_is_live(self, store: Store) -> None:
        join = job(join=Join(lenient=True))
        first, second = job(before=[join], queue="l"), job(before=[join], queue="r")
        await put_in(store, join, first, second)
        hand = await Hand(store).join()
        await hand.kill(await hand.take_one("l/any"))
        await store.retry_flow([FlowRetry(first.id, before=(join.id,))])
        await hand.succeed(await hand.take_one("r/any"))
        assert await state(store, join) == State.BLOCKED
        await hand.succeed(await hand.take_one("l/any"))
        assert await state(store, join) == State.SUCCEEDED

    async def test_a_retried_flow_is_not_cancelled_any_more(self, store: Store) -> None:
        """The root was cancelled, and no promotion has cancelled its jobs yet."""
        root = job(join=Join())
        mark = [f"%{root.id.hex()}"]
        first, second = (job(queue=queue, before=[root], marks=mark, keep=FLOW_KEEP) for queue in "lr")
        await put_in(store, root, first, second)
        hand = await Hand(store).join()
        await hand.kill(await hand.take_one("l/any"))
        await store.act(Action.CANCEL, Query(ids=(root.id,)))
        await store.retry_flow([FlowRetry(root.id), FlowRetry(first.id, before=(root.id,))])
        for _ in range(3):
            await store.promote()
        assert await state(store, second) == State.READY
        await hand.succeed(await hand.take_one("l/any"))
        assert await ending(store, root) == (State.SUCCEEDED, None)

    async def test_a_retried_job_does_not_wait_for_older_parents(self, store: Store) -> None:
        """One of two parents has ended the job, and the other ends after the retry."""
        left, right = job(queue="l"), job(queue="r")
        child = job(after=[left, right])
        await put_in(store, left, right, child)
        hand = await Hand(store).join()
        await hand.kill(await hand.take_one("l/any"))
        assert await state(store, child) == State.CANCELLED
        await store.retry_flow([FlowRetry(left.id), FlowRetry(child.id, after=(Edge(left.id),))])
        await hand.succeed(await hand.take_one("r/any"))
        assert await state(store, child) == State.BLOCKED
        await hand.succeed(await hand.take_one("l/any"))
        assert await state(store, child) == State.READY
