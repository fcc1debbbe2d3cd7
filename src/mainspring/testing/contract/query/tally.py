"""Tally: exact numbers by value and state, in one snapshot."""

from __future__ import annotations

import pytest

from mainspring.common.clock import MovableClock
from mainspring.common.ids import new_ids
from mainspring.jobs.query import Query
from mainspring.jobs.records import TallyRow
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import HOUR, Hand, job, one, put_in, running

__all__ = ["TestTally"]


@pytest.mark.asyncio
class TestTally:
    async def test_by_queue_and_state(self, store: Store, clock: MovableClock) -> None:
        """Live and ended jobs, sorted by value and state, nothing that is zero."""
        now = clock.now_us()
        await put_in(store, job(queue="b"), job(queue="b"), job(queue="a", delay=HOUR), job(queue="a"), job(queue="a"))
        hand = await Hand(store).join()
        done, dead = await hand.take(2, "a/any")
        await hand.succeed(done)
        await hand.kill(dead)
        assert await store.tally(Query.everything(), "queue") == [
            TallyRow("a", State.DEAD, 1, now, now),
            TallyRow("a", State.SCHEDULED, 1, now, now),
            TallyRow("a", State.SUCCEEDED, 1, now, now),
            TallyRow("b", State.READY, 2, now, now),
        ]

    async def test_by_task(self, store: Store, clock: MovableClock) -> None:
        now = clock.now_us()
        await put_in(store, job(task="x", queue="a"), job(task="x", queue="b"), job(task="y"))
        assert await store.tally(Query.everything(), "task") == [
            TallyRow("x", State.READY, 2, now, now),
            TallyRow("y", State.READY, 1, now, now),
        ]

    async def test_by_error(self, store: Store, clock: MovableClock) -> None:
        """Dead jobs only: by the type of their error, or their reason where there was no error."""
        now = clock.now_us()
        for label in ("ValueError", "KeyError", "ValueError", ""):
            hand, claim = await running(store)
            await hand.kill(claim, reason=Reason.CRASHED, label=label)
        hand, claim = await running(store)
        await hand.succeed(claim)
        await one(store)
        assert await store.tally(Query.everything(), "error") == [
            TallyRow("KeyError", State.DEAD, 1, now, now),
            TallyRow("ValueError", State.DEAD, 2, now, now),
            TallyRow("crashed", State.DEAD, 1, now, now),
        ]
        assert await store.tally(Query.where(states=["succeeded", "ready"]), "error") == []

    async def test_a_crash_is_an_error_by_its_reason(self, store: Store) -> None:
        hand, claim = await running(store, job(crashes=1))
        await hand.crash()
        (found,) = await store.tally(Query.everything(), "error")
        assert (found.value, found.count) == ("crashed", 1)
        assert [each.id for each in (await store.find(Query.where(errors=["crashed"]))).jobs] == [claim.id]

    async def test_first_and_last_moment(self, store: Store, clock: MovableClock) -> None:
        """Of live jobs when they were enqueued, of ended ones when they ended."""
        then = clock.now_us()
        first, claim = await running(store, job(queue="q"))
        await one(store)
        clock.advance("1h")
        await first.kill(claim)
        second, claim = await running(store, job(queue="q", priority=1))
        await one(store)
        clock.advance("1h")
        await second.kill(claim)
        assert await store.tally(Query.everything(), "queue") == [
            TallyRow("q", State.DEAD, 2, then + HOUR, then + 2 * HOUR),
            TallyRow("q", State.READY, 2, then, then + HOUR),
        ]

    async def test_a_tally_of_a_query(self, store: Store) -> None:
        meant, other = job(queue="a", marks=["x"]), job(queue="b")
        await put_in(store, meant, other, job(queue="a", delay=HOUR))
        for query, expected in (
            (Query(ids=(other.id,)), [("b", 1)]),
            (Query(ids=()), []),
            (Query(marks=("x",)), [("a", 1)]),
            (Query.where(states=["scheduled"]), [("a", 1)]),
            (Query.where(queues=["a"], states=["ready"]), [("a", 1)]),
            (Query(), []),
        ):
            assert [(each.value, each.count) for each in await store.tally(query, "queue")] == expected

    async def test_a_tally_of_many_ids(self, store: Store, clock: MovableClock) -> None:
        """One row for each value, however long the list; an id that is named twice counts once."""
        made = [job(id=each.bytes) for each in new_ids(900)]
        await put_in(store, *made[:450])
        clock.advance("1h")
        await put_in(store, *made[450:])
        asked = tuple(each.id for each in (*made, *made[:5]))
        (found,) = await store.tally(Query(ids=asked), "queue")
        assert (found.count, found.last - found.first) == (900, HOUR)

    async def test_a_tally_follows_every_transition(self, store: Store) -> None:
        made = await one(store, job(queue="a"))
        for action, expected in (
            (Action.CANCEL, [("a", State.CANCELLED)]),
            (Action.RETRY, [("a", State.READY)]),
            (Action.DELETE, []),
        ):
            await store.act(action, Query(ids=(made.id,)))
            assert [(each.value, each.state) for each in await store.tally(Query.everything(), "queue")] == expected
