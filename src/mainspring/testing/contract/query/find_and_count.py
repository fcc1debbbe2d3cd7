"""Find and count: exact, in one snapshot, and in pages."""

from __future__ import annotations

import pytest

from mainspring.common.ids import new_id, new_ids
from mainspring.jobs.query import Query
from mainspring.jobs.records import NewJob
from mainspring.limits.records import Bucket
from mainspring.states import Action, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import SECOND, Hand, bucket, ids, job, one, paged, put_in, running

__all__ = ["TestCount", "TestFind", "TestFindById"]


@pytest.mark.asyncio
class TestFindById:
    async def test_live_and_ended_jobs_are_found(self, store: Store) -> None:
        hand, done = await running(store)
        await hand.succeed(done)
        hand, dead = await running(store)
        await hand.kill(dead)
        ready = await one(store)
        found = await store.find(Query(ids=(done.id, dead.id, ready.id)))
        assert {each.id: each.state for each in found.jobs} == {
            done.id: State.SUCCEEDED, dead.id: State.DEAD, ready.id: State.READY,
        }  # fmt: skip

    async def test_a_job_names_its_buckets_also_after_its_end(self, store: Store) -> None:
        limits = [bucket("api", 9), bucket("tenant", 9, key="7", cost=2)]
        done, dead, cancelled, ready = [job(buckets=limits) for _ in range(4)]
        await put_in(store, done, dead, cancelled)
        hand = await Hand(store).join()
        claims = {claim.id: claim for claim in await hand.take(2)}
        await hand.succeed(claims[done.id])
        await hand.kill(claims[dead.id])
        await store.act(Action.CANCEL, Query(ids=(cancelled.id,)))
        await put_in(store, ready)
        states = {State.SUCCEEDED, State.DEAD, State.CANCELLED, State.READY}
        found = (await store.find(Query(ids=tuple(ids([done, dead, cancelled, ready]))))).jobs
        assert {each.state for each in found} == states
        assert {each.buckets for each in found} == {(Bucket("api"), Bucket("tenant", "7", 2))}

    async def test_unknown_ids_are_left_out(self, store: Store) -> None:
        made = await one(store)
        assert ids((await store.find(Query(ids=(new_id().bytes, made.id)))).jobs) == [made.id]
        assert (await store.find(Query(ids=()))).jobs == ()

    async def test_an_empty_query_matches_no_job(self, store: Store) -> None:
        await one(store)
        assert (await store.find(Query())).jobs == ()

    async def test_by_state(self, store: Store) -> None:
        ready, later = await one(store), await one(store, job(delay=SECOND))
        hand, done = await running(store)
        await hand.succeed(done)
        for states, expected in (
            ([State.READY], {ready.id}),
            ([State.SCHEDULED, State.SUCCEEDED], {later.id, done.id}),
            ([State.DEAD], set()),
            (list(State), {ready.id, later.id, done.id}),
        ):
            assert set(ids((await store.find(Query.where(states=states))).jobs)) == expected

    async def test_ids_and_states_must_both_match(self, store: Store) -> None:
        ready, later = await one(store), await one(store, job(delay=SECOND))
        query = Query(ids=(ready.id, later.id), states=(State.SCHEDULED,))
        assert ids((await store.find(query)).jobs) == [later.id]

    async def test_the_newest_id_comes_first(self, store: Store) -> None:
        """Over live and ended jobs."""
        jobs = [job() for _ in range(4)]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        await hand.succeed(*(await hand.take(2))[:1])
        assert ids((await store.find(Query(ids=tuple(ids(jobs))))).jobs) == ids(jobs[::-1])


@pytest.mark.asyncio
class TestFind:
    async def test_by_queue_and_task(self, store: Store) -> None:
        first, second, third = job(queue="a", task="x"), job(queue="a", task="y"), job(queue="b", task="y")
        await put_in(store, first, second, third)
        for query, expected in (
            (Query.where(queues=["a"]), {first.id, second.id}),
            (Query.where(tasks=["y"]), {second.id, third.id}),
            (Query.where(queues=["a", "b"], tasks=["y"]), {second.id, third.id}),
            (Query.where(queues=["b"], tasks=["x"]), set()),
            (Query.everything(), {first.id, second.id, third.id}),
        ):
            assert set(ids((await store.find(query)).jobs)) == expected

    async def test_pages_cover_everything_once(self, store: Store) -> None:
        """Live and ended jobs in one order, newest id first, whatever the size of the page."""
        jobs = await self.mixed(store, 25)
        expected = sorted(ids(jobs), reverse=True)
        for size in (1, 7, 25, 100):
            assert await paged(store, Query.everything(), size) == expected

    async def test_the_last_page_has_no_cursor(self, store: Store) -> None:
        await self.mixed(store, 3)
        assert (await store.find(Query.everything(), limit=100)).cursor is None
        first = await store.find(Query.everything(), limit=2)
        assert (len(first.jobs), first.cursor is None) == (2, False)

    async def test_jobs_that_come_between_pages_disturb_nothing(self, store: Store) -> None:
        jobs = await self.mixed(store, 6)
        first = await store.find(Query.everything(), limit=3)
        newcomer = await one(store)
        rest = await store.find(Query.everything(), limit=10, cursor=first.cursor)
        assert ids([*first.jobs, *rest.jobs]) == sorted(ids(jobs), reverse=True)
        assert newcomer.id not in ids(rest.jobs)

    async def test_pages_of_a_filtered_query(self, store: Store) -> None:
        jobs = await self.mixed(store, 12)
        wanted = sorted((each.id for each in jobs if each.queue == "odd"), reverse=True)
        assert await paged(store, Query.where(queues=["odd"]), 2) == wanted

    @staticmethod
    async def mixed(store: Store, n: int) -> list[NewJob]:
        """Jobs of two queues, some finished."""
        jobs = [job(id=each.bytes, queue=("even", "odd")[at % 2]) for at, each in enumerate(new_ids(n))]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        await hand.succeed(*await hand.take(n // 3, "even/any", "odd/any"))
        return jobs


@pytest.mark.asyncio
class TestCount:
    async def test_every_state_is_a_key(self, store: Store) -> None:
        assert await store.count(Query.everything()) == dict.fromkeys(State, 0)

    async def test_exact_numbers_of_live_and_ended_jobs(self, store: Store) -> None:
        parent = job()
        await put_in(store, parent, job(after=[parent]), job(delay=SECOND), job(delay=SECOND), job(queue="w"))
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one("w/any"))
        _, _ = await running(store)
        assert await store.count(Query.everything()) == {
            **dict.fromkeys(State, 0),
            State.READY: 1,
            State.BLOCKED: 1,
            State.SCHEDULED: 2,
            State.RUNNING: 1,
            State.SUCCEEDED: 1,
        }

    async def test_a_count_of_a_query(self, store: Store) -> None:
        first, _ = await one(store), await one(store)
        assert (await store.count(Query(ids=(first.id,))))[State.READY] == 1
        assert (await store.count(Query.where(states=[State.DEAD])))[State.READY] == 0
        assert sum((await store.count(Query())).values()) == 0
