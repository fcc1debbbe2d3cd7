"""The conditions of a query: the same jobs are found, counted, tallied and changed."""

from __future__ import annotations

import pytest

from mainspring.common.clock import MovableClock
from mainspring.common.ids import new_ids
from mainspring.jobs.outcomes import Ack
from mainspring.jobs.query import Query, parent_mark
from mainspring.jobs.records import JobRow, NewJob
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import ERROR, HOUR, Hand, gone, ids, job, lease, one, paged, put_in, running
from mainspring.worker.records import Claim

__all__ = ["TestConditions", "TestFindByMarks"]


async def means(store: Store, query: Query, *expected: NewJob | Claim | JobRow) -> None:
    """Find, count and tally agree that the query means these jobs."""
    wanted = sorted(ids(expected), reverse=True)
    assert ids((await store.find(query)).jobs) == wanted
    assert sum((await store.count(query)).values()) == len(wanted)
    assert sum(each.count for each in await store.tally(query, "task")) == len(wanted)


@pytest.mark.asyncio
class TestFindByMarks:
    async def test_a_job_must_have_all_marks(self, store: Store) -> None:
        both, first, second = job(marks=["a", "b"]), job(marks=["a"]), job(marks=["b", "ab"])
        await put_in(store, both, first, second, job())
        await means(store, Query(marks=("a",)), both, first)
        await means(store, Query(marks=("b",)), both, second)
        await means(store, Query(marks=("a", "b")), both)
        await means(store, Query(marks=("a", "ab")))
        await means(store, Query(marks=("c",)))

    async def test_marks_are_found_in_every_state(self, store: Store) -> None:
        made = job(marks=["a"])
        hand, claim = await running(store, made)
        await means(store, Query(marks=("a",), states=(State.RUNNING,)), made)
        await hand.kill(claim)
        await means(store, Query(marks=("a",), states=(State.DEAD,)), made)
        await store.act(Action.RETRY, Query(ids=(made.id,)))
        await means(store, Query(marks=("a",), states=(State.READY,)), made)
        await hand.succeed(await hand.take_one())
        await means(store, Query(marks=("a",), states=(State.SUCCEEDED,)), made)

    async def test_marks_with_other_conditions(self, store: Store) -> None:
        here, there = job(marks=["a"], queue="here"), job(marks=["a"], queue="there")
        await put_in(store, here, there, job(queue="here"))
        await means(store, Query(marks=("a",), queues=("here",)), here)
        await means(store, Query(marks=("a",), ids=(here.id,)), here)
        await means(store, Query(marks=("b",), ids=(here.id,)))
        await means(store, Query(marks=("a",), states=(State.RUNNING,)))

    async def test_the_children_of_a_parent(self, store: Store) -> None:
        parent = await one(store)
        child, other = job(marks=["a", parent_mark(parent.id)]), job(marks=["a"])
        await put_in(store, child, other)
        await means(store, Query.where(parent=parent.id.hex()), child)
        await means(store, Query.where(parent=parent.id.hex(), tags=["a"]), child)

    async def test_pages_of_marked_jobs(self, store: Store) -> None:
        """Newest first over live and ended jobs, each job once."""
        jobs = [job(id=each.bytes, marks=["a"] if at % 3 else []) for at, each in enumerate(new_ids(30))]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        await hand.succeed(*await hand.take(6))
        await hand.kill(*await hand.take(6))
        expected = sorted((each.id for each in jobs if each.marks), reverse=True)
        for size in (1, 4, 20, 100):
            assert await paged(store, Query(marks=("a",)), size) == expected
            ready = await paged(store, Query(marks=("a",), states=(State.READY,)), size)
            assert ready == expected[:12]

    async def test_one_marked_job_among_many(self, store: Store) -> None:
        """However many newer jobs share the mark."""
        made = [each.bytes for each in new_ids(800)]
        needles = [job(id=id, marks=["a"], queue="rare", delay=HOUR) for id in made[:2]]
        await put_in(store, *needles, *(job(id=id, marks=["a"]) for id in made[2:]))
        await means(store, Query(marks=("a",), states=(State.SCHEDULED,)), *needles)
        await means(store, Query(marks=("a",), queues=("rare",)), *needles)
        await means(store, Query(marks=("a",), states=(State.DEAD,)))

    async def test_action_by_mark(self, store: Store) -> None:
        marked, other = job(marks=["a"]), job(marks=["b"])
        await put_in(store, marked, other)
        query = Query(marks=("a",))
        assert (await store.act(Action.CANCEL, query)).done == (marked.id,)
        assert (await store.act(Action.RETRY, query)).done == (marked.id,)
        assert (await store.act(Action.DELETE, query)).done == (marked.id,)
        assert await gone(store, marked)
        await means(store, Query.everything(), other)

    async def test_a_deleted_job_is_not_found_by_its_marks(self, store: Store) -> None:
        """A job that comes back under the same id is another."""
        made = await one(store, job(marks=["a"]))
        await store.act(Action.DELETE, Query(ids=(made.id,)))
        await one(store, job(id=made.id))
        await means(store, Query(marks=("a",)))


@pytest.mark.asyncio
class TestConditions:
    async def test_each_state_is_a_condition(self, store: Store) -> None:
        """As the only condition, and together with a condition that all jobs meet."""
        parent, later = job(), job(delay=HOUR)
        await put_in(store, parent, job(after=[parent]), later)
        for n in range(5):
            hand, claim = await running(store)
            ends = (
                Ack.succeeded(lease(claim)),
                Ack.cancelled(lease(claim)),
                Ack.dead(lease(claim), ERROR, Reason.CRASHED),
                Ack.failed(lease(claim), ERROR, retry_in=HOUR),
            )
            await hand.turn(*ends[n : n + 1])
        for state in State:
            (found,) = (await store.find(Query(states=(state,)))).jobs
            await means(store, Query(states=(state,)), found)
            await means(store, Query(states=(state,), since=0), found)

    async def test_reasons_are_a_condition(self, store: Store) -> None:
        hand, crashed = await running(store)
        await hand.kill(crashed, reason=Reason.CRASHED)
        hand, tired = await running(store)
        await hand.kill(tired, reason=Reason.RETRIES_EXHAUSTED)
        called_off = await one(store)
        await store.act(Action.CANCEL, Query(ids=(called_off.id,)))
        await one(store)
        await means(store, Query.where(reasons=["crashed"]), crashed)
        await means(store, Query.where(reasons=["crashed", "by_user"]), crashed, called_off)
        await means(store, Query.where(reasons=["crashed"], states=["cancelled"]))
        await means(store, Query.where(reasons=["expired"]))

    async def test_errors_are_a_condition(self, store: Store) -> None:
        """Of dead jobs: the type of the error, or the reason where there was no error."""
        hand, typed = await running(store)
        await hand.kill(typed, reason=Reason.RETRIES_EXHAUSTED, label="ValueError")
        hand, untyped = await running(store)
        await hand.kill(untyped, reason=Reason.CRASHED)
        hand, done = await running(store)
        await hand.succeed(done)
        await means(store, Query.where(errors=["ValueError"]), typed)
        await means(store, Query.where(errors=["crashed"]), untyped)
        await means(store, Query.where(errors=["crashed", "ValueError"]), typed, untyped)
        await means(store, Query.where(errors=["retries_exhausted"]))
        await means(store, Query.where(errors=["ValueError"], states=["succeeded", "ready"]))

    async def test_the_time_of_the_enqueue_is_a_condition(self, store: Store, clock: MovableClock) -> None:
        """From ``since`` on, up to but not including ``until``, in every state."""
        hand, first = await running(store)
        then = clock.now_us()
        clock.advance("1h")
        second = await one(store)
        await hand.succeed(first)
        await means(store, Query(since=then), first, second)
        await means(store, Query(since=then + 1), second)
        await means(store, Query(until=then + HOUR), first)
        await means(store, Query(until=then + HOUR + 1), first, second)
        await means(store, Query(since=then, until=then + 1), first)
        await means(store, Query(since=then + 1, until=then + HOUR))

    async def test_the_time_of_the_end_is_a_condition(self, store: Store, clock: MovableClock) -> None:
        """Whatever the final state. A live job has no end."""
        hand, done = await running(store)
        await hand.succeed(done)
        hand, dead = await running(store)
        await hand.kill(dead)
        await running(store)
        clock.advance("1h")
        hand, late = await running(store)
        await hand.turn(Ack.cancelled(lease(late)))
        await means(store, Query(ended_before=clock.now_us() - HOUR))
        await means(store, Query(ended_before=clock.now_us()), done, dead)
        await means(store, Query(ended_before=clock.now_us() + 1), done, dead, late)
        await means(store, Query(ended_before=clock.now_us() + 1, states=(State.DEAD,)), dead)
        await means(store, Query(ended_before=clock.now_us() + 1, states=(State.RUNNING,)))

    @pytest.mark.parametrize("condition", ["errors", "reasons", "since", "until", "ended_before"])
    async def test_an_action_obeys_every_condition(self, store: Store, clock: MovableClock, condition: str) -> None:
        """Jobs that a condition excludes are not changed."""
        hand, old = await running(store)
        await hand.kill(old, reason=Reason.TIMED_OUT, label="ValueError")
        clock.advance("1h")
        hand, new = await running(store)
        await hand.kill(new, reason=Reason.CRASHED, label="KeyError")
        query = {
            "errors": Query(errors=("ValueError",)),
            "reasons": Query(reasons=(Reason.TIMED_OUT,)),
            "since": Query(since=clock.now_us() - 5),
            "until": Query(until=clock.now_us() - 5),
            "ended_before": Query(ended_before=clock.now_us()),
        }[condition]
        (meant,) = (await store.find(query)).jobs
        (spared,) = {old.id, new.id} - {meant.id}
        assert (await store.act(Action.RETRY, query)).done == (meant.id,)
        states = {each.id: each.state for each in (await store.find(Query.everything())).jobs}
        assert states == {meant.id: State.READY, spared: State.DEAD}
