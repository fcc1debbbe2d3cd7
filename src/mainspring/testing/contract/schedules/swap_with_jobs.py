"""The jobs of an exchange: the exchange and the enqueue are one step, or nothing happens."""

from __future__ import annotations

import asyncio

import pytest

from mainspring.errors import KeyTaken, MainspringError, QueueDisabled, QueueDraining, QueueFull, StoreConflict
from mainspring.jobs.query import Query
from mainspring.jobs.records import Edge, Enqueued, NewJob, UniqueKey
from mainspring.queues.records import DisabledMode, QueueMode, QueueSettings
from mainspring.schedules.records import ScheduleRun, ScheduleSwap
from mainspring.states import State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import Hand, gone, ids, job, one, state

from .swap import batch, made, whole

__all__ = ["TestSwapAndJobs", "TestSwapRaces", "TestSwapRefused"]


@pytest.mark.asyncio
class TestSwapAndJobs:
    async def test_the_exchange_enqueues_the_batch(self, store: Store) -> None:
        first, second = job(), job(after=[one_of := job(queue="p")], marks=["red"])
        said = await store.swap_schedule(ScheduleSwap(name="s", rev=0, doc=b"{}"), batch(one_of, first, second))
        assert said.enqueued == tuple(Enqueued(each.id, True) for each in (one_of, first, second))
        assert [await state(store, each) for each in (first, second)] == [State.READY, State.BLOCKED]
        hand = await Hand(store).join()
        assert ids(await hand.take(9)) == [first.id]

    async def test_an_exchange_without_a_batch(self, store: Store) -> None:
        said = await store.swap_schedule(ScheduleSwap(name="s", rev=0, doc=b"{}"), batch())
        assert (said.ok, said.enqueued) == (True, ())

    async def test_jobs_that_exist_answer_created_false(self, store: Store) -> None:
        there = await one(store, job(unique=UniqueKey(b"k" * 16)))
        again = job(unique=UniqueKey(b"k" * 16))
        said = await store.swap_schedule(ScheduleSwap(name="s", rev=0, doc=b"{}"), batch(there, again))
        assert said.enqueued == (Enqueued(there.id, False), Enqueued(there.id, False))
        assert (await store.count(Query.everything()))[State.READY] == 1

    async def test_a_deletion_can_enqueue_jobs(self, store: Store) -> None:
        rev = await made(store)
        last = job()
        assert (await store.swap_schedule(ScheduleSwap(name="s", rev=rev, doc=None), batch(last))).enqueued == (
            Enqueued(last.id, True),
        )
        assert await state(store, last) == State.READY

    async def test_an_occurrence_has_one_job(self, store: Store) -> None:
        first, second, other = job(), job(), job()
        rev = await made(store, runs=(ScheduleRun(at=10, job=first.id, doc=b"first"),))
        before = await whole(store)
        runs = (ScheduleRun(at=11, job=other.id), ScheduleRun(at=10, job=second.id))
        said = await store.swap_schedule(
            ScheduleSwap(name="s", rev=rev, doc=b"mine", look=3, runs=runs), batch(other, second)
        )
        assert (said.ok, said.rev, said.taken, said.enqueued) == (False, rev, 10, ())
        assert await whole(store) == before
        assert await gone(store, second)
        assert await gone(store, other)

    async def test_a_run_without_a_job_can_be_overwritten(self, store: Store) -> None:
        """One without a job by one with a job, and one with a job by one with the same."""
        rev = await made(store, runs=(ScheduleRun(at=10, doc=b"missed"), ScheduleRun(at=11)))
        made_now = job()
        runs = (ScheduleRun(at=10, job=made_now.id, doc=b"late"),)
        said = await store.swap_schedule(ScheduleSwap(name="s", rev=rev, doc=b"{}", runs=runs), batch(made_now))
        assert (said.ok, said.taken) == (True, None)
        assert await store.schedule_runs("s") == [ScheduleRun(at=11), *runs]
        ended = ScheduleRun(at=10, job=made_now.id, doc=b"it ended")
        assert (await store.swap_schedule(ScheduleSwap(name="s", rev=said.rev, doc=b"{}", runs=(ended,)))).ok
        assert await store.schedule_runs("s") == [ScheduleRun(at=11), ended]

    async def test_two_schedules_may_have_the_same_occurrence(self, store: Store) -> None:
        await made(store, "a", runs=(ScheduleRun(at=10, job=b"a" * 16),))
        assert (
            await store.swap_schedule(
                ScheduleSwap(name="b", rev=0, doc=b"{}", runs=(ScheduleRun(at=10, job=b"b" * 16),))
            )
        ).ok


async def draining(store: Store) -> NewJob:
    await store.set_queue_mode(["q"], QueueMode.DRAINING)
    return job()


async def disabled(store: Store) -> NewJob:
    await store.disable_queues(["q"], DisabledMode.REJECT)
    return job()


async def full(store: Store) -> NewJob:
    await store.configure_queue("q", QueueSettings(max_depth=1))
    await one(store)
    return job()


async def taken(store: Store) -> NewJob:
    await one(store, job(unique=UniqueKey(b"k" * 16)))
    return job(unique=UniqueKey(b"k" * 16, conflict="error"))


async def orphaned(_: Store) -> NewJob:
    return job(after=[Edge(b"n" * 16)])


REFUSALS = {
    QueueDraining: draining, QueueDisabled: disabled, QueueFull: full, KeyTaken: taken, StoreConflict: orphaned,
}  # fmt: skip


@pytest.mark.asyncio
class TestSwapRefused:
    @pytest.mark.parametrize("error", REFUSALS, ids=lambda error: error.__name__)
    async def test_an_error_of_the_enqueue_changes_nothing(self, store: Store, error: type[MainspringError]) -> None:
        """No row, no run and no other job of the batch is stored."""
        rev = await made(store, doc=b"before", look=9, runs=(ScheduleRun(at=1),))
        refused, other = await REFUSALS[error](store), job(queue="other")
        before = await whole(store)
        runs = (ScheduleRun(at=1, job=other.id), ScheduleRun(at=2, job=refused.id))
        for swap in (
            ScheduleSwap(name="s", rev=rev, doc=b"after", runs=runs),
            ScheduleSwap(name="s", rev=rev, doc=None),
        ):
            with pytest.raises(error):
                await store.swap_schedule(swap, batch(other, refused))
            assert await whole(store) == before
        with pytest.raises(error):
            await store.swap_schedule(ScheduleSwap(name="new", rev=0, doc=b"{}", runs=runs), batch(other, refused))
        assert await whole(store, "new") == ([], [])
        assert await gone(store, refused)
        assert await gone(store, other)
        assert (await store.swap_schedule(ScheduleSwap(name="s", rev=rev, doc=b"after"))).ok

    @pytest.mark.parametrize("error", REFUSALS, ids=lambda error: error.__name__)
    async def test_the_number_is_compared_before_the_enqueue(self, store: Store, error: type[MainspringError]) -> None:
        """A late caller gets ``ok=False``, not an error of the enqueue."""
        rev = await made(store)
        refused = await REFUSALS[error](store)
        said = await store.swap_schedule(ScheduleSwap(name="s", rev=rev - 1, doc=b"{}"), batch(refused))
        assert (said.ok, said.rev) == (False, rev)


@pytest.mark.asyncio
class TestSwapRaces:
    async def test_one_of_twenty_concurrent_exchanges_wins(self, store: Store, second_store: Store) -> None:
        """Each brings a job: one of them is there."""
        rev = 0
        for at in range(5):
            jobs = [job(queue=f"q{at}") for _ in range(20)]
            swaps = [
                ScheduleSwap(name="s", rev=rev, doc=each.id, runs=(ScheduleRun(at=at, job=each.id),)) for each in jobs
            ]
            places = [store, second_store] * 10
            said = await asyncio.gather(
                *(place.swap_schedule(swap, batch(each)) for place, swap, each in zip(places, swaps, jobs, strict=True))
            )
            ((winner, won),) = [(each, reply) for each, reply in zip(jobs, said, strict=True) if reply.ok]
            assert {reply.rev for reply in said} <= {won.rev, rev}
            rev = won.rev
            assert [row.doc for row in await store.schedules(["s"])] == [winner.id]
            assert (await store.schedule_runs("s"))[0] == ScheduleRun(at=at, job=winner.id)
            assert ids((await store.find(Query(queues=(f"q{at}",)))).jobs) == [winner.id]

    async def test_concurrent_exchanges_of_one_occurrence_make_one_job(self, store: Store, second_store: Store) -> None:
        """Both read the same row: one of them makes the job."""
        for at in range(8):
            name = f"s{at}"
            rev = await made(store, name)
            first, second = job(queue=name), job(queue=name)
            swaps = [
                ScheduleSwap(name=name, rev=rev, doc=b"{}", runs=(ScheduleRun(at=at, job=each.id),))
                for each in (first, second)
            ]
            said = await asyncio.gather(
                store.swap_schedule(swaps[0], batch(first)), second_store.swap_schedule(swaps[1], batch(second))
            )
            assert sorted(reply.ok for reply in said) == [False, True]
            assert len((await store.find(Query(queues=(name,)))).jobs) == 1

    async def test_concurrent_exchanges_of_many_schedules(self, store: Store, second_store: Store) -> None:
        """They do not block each other, also if their jobs share a queue and a key."""
        names = [f"s{n}" for n in range(40)]
        places = [store, second_store] * 20
        keyed = [job(unique=UniqueKey(b"k" * 16)) for _ in names]
        said = await asyncio.gather(
            *(
                place.swap_schedule(
                    ScheduleSwap(name=name, rev=0, doc=b"{}", runs=(ScheduleRun(at=1),)),
                    batch(job(queue="plain"), each),
                )
                for place, name, each in zip(places, names, keyed, strict=True)
            )
        )
        assert all(reply.ok for reply in said)
        assert sum(reply.enqueued[1].created for reply in said) == 1
        assert [row.name for row in await store.schedules()] == sorted(names)
        assert (await store.count(Query(queues=("plain",))))[State.READY] == 40

    async def test_an_exchange_races_a_deletion(self, store: Store, second_store: Store) -> None:
        """A schedule that was deleted has no runs and no row, a schedule that stays has both."""
        for n in range(8):
            name = f"s{n}"
            rev = await made(store, name, runs=(ScheduleRun(at=1),))
            kept, went = await asyncio.gather(
                store.swap_schedule(ScheduleSwap(name=name, rev=rev, doc=b"{}", runs=(ScheduleRun(at=2),))),
                second_store.swap_schedule(ScheduleSwap(name=name, rev=rev, doc=None)),
            )
            assert kept.ok is not went.ok
            rows, runs = await whole(store, name)
            assert (len(rows), len(runs)) == ((1, 2) if kept.ok else (0, 0))
