"""Two clients at the same moment. Each pair is tried in several rounds; the result must be right in every round."""

from __future__ import annotations

import asyncio

import pytest

from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import Edge
from mainspring.states import Action, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import Hand, applied, bucket, ids, job, lease, one, put_in, row, state

__all__ = ["TestRaces"]

ROUNDS = 8


@pytest.mark.asyncio
class TestRaces:
    async def test_two_acks_race_on_one_join(self, store: Store, second_store: Store) -> None:
        """The last two parents end at the same instant: the child is released once."""
        here, there = await Hand(store).join(), await Hand(second_store).join()
        for _ in range(ROUNDS):
            left, right = job(queue="l"), job(queue="r")
            join = job(queue="j", after=[left, right])
            await put_in(store, left, right, join)
            first, second = await here.take_one("l/any"), await there.take_one("r/any")
            await asyncio.gather(here.succeed(first), there.succeed(second))
            assert await state(store, join) == State.READY

    async def test_two_turns_race_for_the_last_capacity(self, store: Store, second_store: Store) -> None:
        """Capacity for one job is left and two workers ask: one gets it."""
        gate = bucket("gate", 2)
        here, there = await Hand(store).join(), await Hand(second_store).join()
        for _ in range(ROUNDS):
            jobs = [job(buckets=[gate]) for _ in range(4)]
            await put_in(store, *jobs)
            (held,) = await here.take(1)
            mine, theirs = await asyncio.gather(here.take(3), there.take(3))
            assert len(mine) + len(theirs) == 1
            await here.succeed(held, *mine)
            await there.succeed(*theirs)
            await store.act(Action.CANCEL, Query(ids=tuple(ids(jobs)), states=(State.READY,)))

    async def test_many_workers_race_for_one_job(self, store: Store, second_store: Store) -> None:
        hands = [await Hand(place).join() for place in (store, second_store) for _ in range(3)]
        for _ in range(ROUNDS):
            made = await one(store)
            taken = [claim for claims in await asyncio.gather(*(hand.take(1) for hand in hands)) for claim in claims]
            assert ids(taken) == [made.id]

    async def test_an_enqueue_of_a_child_races_the_end_of_its_parent(self, store: Store, second_store: Store) -> None:
        """Whichever is first: the child is ready, never blocked for ever."""
        hand = await Hand(store).join()
        for _ in range(ROUNDS):
            parent = await one(store, job(queue="p"))
            claim = await hand.take_one("p/any")
            child = job(queue="c", after=[Edge(parent.id)])
            await asyncio.gather(hand.succeed(claim), put_in(second_store, child))
            found = await row(store, child)
            assert (found.state, found.deps) == (State.READY, 0)

    async def test_a_repeated_enqueue_races_the_end_of_its_job(self, store: Store, second_store: Store) -> None:
        """The job moves to history while the store searches for it: no second job is made."""
        hand = await Hand(store).join()
        for _ in range(10 * ROUNDS):
            made = await one(store)
            claim = await hand.take_one()
            _, (said,) = await asyncio.gather(hand.succeed(claim), put_in(second_store, made, retry=True))
            assert not said.created
            assert await state(store, made) == State.SUCCEEDED
            assert await hand.take(9) == ()

    async def test_cancel_races_a_claim(self, store: Store, second_store: Store) -> None:
        """The job is cancelled before it started, or runs with an order: it never runs without one."""
        hand = await Hand(store).join()
        for _ in range(ROUNDS):
            made = await one(store)
            claims, said = await asyncio.gather(hand.take(1), second_store.act(Action.CANCEL, Query(ids=(made.id,))))
            assert said.done == (made.id,)
            found = await row(store, made)
            if claims:
                assert (found.state, found.ordered) == (State.RUNNING, True)
                assert applied(await hand.turn(Ack.succeeded(lease(claims[0]))))
            assert await state(store, made) == State.CANCELLED

    async def test_cancel_races_an_ack(self, store: Store, second_store: Store) -> None:
        """The job is cancelled, or it had succeeded and the cancel is refused."""
        hand = await Hand(store).join()
        for _ in range(ROUNDS):
            made = await one(store)
            claim = await hand.take_one()
            _, said = await asyncio.gather(hand.succeed(claim), second_store.act(Action.CANCEL, Query(ids=(made.id,))))
            assert (await state(store, made), bool(said.done)) in {(State.CANCELLED, True), (State.SUCCEEDED, False)}

    async def test_beat_races_a_rescue(self, store: Store, second_store: Store) -> None:
        """Either the heartbeat counts and no job is taken, or the reply says that the worker is lost."""
        for _ in range(ROUNDS):
            hand = await Hand(store).join()
            made = await one(store, job(queue="b"))
            await hand.take_one("b/any")
            seen = hand.beats
            alive, said = await asyncio.gather(hand.beat(), second_store.rescue(hand.name, seen, Outcome.LOST))
            assert alive is not said.taken
            assert await state(store, made) == (State.RUNNING if alive else State.READY)
            await store.act(Action.CANCEL, Query(ids=(made.id,)))

    async def test_ack_races_a_rescue(self, store: Store, second_store: Store) -> None:
        """The job ends or is ready again, and the reply says which."""
        for _ in range(ROUNDS):
            hand = await Hand(store).join()
            made = await one(store, job(queue="a"))
            claim = await hand.take_one("a/any")
            told, said = await asyncio.gather(
                hand.turn(Ack.succeeded(lease(claim))), second_store.rescue(hand.name, hand.beats, Outcome.LOST)
            )
            assert said.taken
            assert (await state(store, made), told.lost, len(said.ready)) in {
                (State.SUCCEEDED, False, 0), (State.READY, True, 1),
            }  # fmt: skip
            await store.act(Action.CANCEL, Query(ids=(made.id,)))

    async def test_two_rescuers_race(self, store: Store, second_store: Store) -> None:
        for _ in range(ROUNDS):
            hand = await Hand(store).join()
            made = await one(store, job(queue="r", crashes=9))
            await hand.take_one("r/any")
            replies = await asyncio.gather(
                *(place.rescue(hand.name, hand.beats, Outcome.CRASHED) for place in (store, second_store))
            )
            assert sorted(said.taken for said in replies) == [False, True]
            assert (await row(store, made)).crashes == 1
            await store.act(Action.CANCEL, Query(ids=(made.id,)))

    async def test_the_same_batch_sent_twice_races(self, store: Store, second_store: Store) -> None:
        """A first try that still runs on the server and its repeat."""
        for _ in range(ROUNDS):
            jobs = [job() for _ in range(5)]
            first, again = await asyncio.gather(put_in(store, *jobs), put_in(second_store, *jobs, retry=True))
            assert [one.created + two.created for one, two in zip(first, again, strict=True)] == [1] * 5

    async def test_two_promoters_race(self, store: Store, second_store: Store) -> None:
        for _ in range(ROUNDS):
            jobs = [job(queue="s") for _ in range(5)]
            await put_in(store, *jobs)
            hand = await Hand(store).join()
            claims = await hand.take(5, "s/any")
            await hand.turn(*(Ack.snoozed(lease(claim)) for claim in claims))
            both = await asyncio.gather(store.promote(), second_store.promote())
            assert sum(said.promoted for said in both) == 5
            await store.act(Action.CANCEL, Query(ids=tuple(ids(jobs))))
