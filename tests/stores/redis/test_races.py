"""Two clients race. A script is one atomic step, so each race has two orders: both are tested."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from mainspring.common.ids import new_id
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.states import Action, State
from mainspring.stores.door import Door
from mainspring.testing.contract.hands import Hand, bucket, ids, job, lease, one, put_in, row, running, state


class TestJoin:
    async def test_two_acks_at_once_free_the_child_once(self, store: Door, second: Door) -> None:
        """The last two parents finish at the same instant, again and again."""
        for _ in range(20):
            left, right = job(kind="async"), job(kind="thread")
            child = job(after=[left, right], queue="joined")
            await put_in(store, left, right, child)
            one_hand, other = await Hand(store).join(), await Hand(second).join()
            first, last = await one_hand.take_one("q/async"), await other.take_one("q/thread")
            await asyncio.gather(one_hand.succeed(first), other.succeed(last))
            assert (await row(store, child)).deps == 0
            assert ids(await one_hand.take(5, "joined/any")) == [child.id]

    @pytest.mark.parametrize("child_first", [True, False])
    async def test_a_child_added_while_its_parent_is_acked(self, store: Door, second: Door, child_first: bool) -> None:
        hand, claim = await running(store)
        child = job(after=[job(id=claim.id)])
        if child_first:
            await put_in(second, child)
            assert await state(second, child) == State.BLOCKED
            await hand.succeed(claim)
        else:
            await hand.succeed(claim)
            await put_in(second, child)
        found = await row(store, child)
        assert (found.state, found.deps) == (State.READY, 0)

    async def test_children_and_the_ack_in_flight_together(self, store: Door, second: Door) -> None:
        hand, claim = await running(store)
        children = [job(after=[job(id=claim.id)]) for _ in range(20)]
        await asyncio.gather(*(put_in(second, child) for child in children), hand.succeed(claim))
        assert Counter([await state(store, child) for child in children]) == {State.READY: 20}


class TestLimit:
    async def test_two_turns_at_limit_minus_one(self, store: Door, second: Door) -> None:
        gate = bucket("gate", 3)
        await put_in(store, *(job(buckets=[gate]) for _ in range(40)))
        hands = [await Hand(each).join() for each in (store, second) * 4]
        held = list(await hands[0].take(2))
        got = await asyncio.gather(*(hand.take(2) for hand in hands))
        held += [claim for claims in got for claim in claims]
        assert len(held) == 3
        assert (await store.count(Query.everything()))[State.RUNNING] == 3

    async def test_a_crash_frees_capacity(self, store: Door, second: Door) -> None:
        gate = bucket("gate", 1)
        await put_in(store, job(buckets=[gate]), job(buckets=[gate]))
        dead, living = await Hand(store).join(), await Hand(second).join()
        await dead.take_one()
        assert await living.take(1, suspects=0) == ()
        await dead.crash()
        assert len(await living.take(5)) == 1


class TestCancel:
    @pytest.mark.parametrize("cancel_first", [True, False])
    async def test_cancel_against_claim(self, store: Door, second: Door, cancel_first: bool) -> None:
        made = await one(store)
        hand = await Hand(store).join()
        if cancel_first:
            await second.act(Action.CANCEL, Query(ids=(made.id,)))
            assert await hand.take(1) == ()
        else:
            claim = await hand.take_one()
            said = await second.act(Action.CANCEL, Query(ids=(made.id,)), reason="enough")
            assert said.done == (made.id,)
            (order,) = (await hand.turn()).orders
            assert (order.id, order.token, order.reason) == (claim.id, claim.token, "enough")
            await hand.turn(Ack.succeeded(lease(claim)))
        assert await state(store, made) == State.CANCELLED

    async def test_cancels_and_claims_in_flight_together(self, store: Door, second: Door) -> None:
        """Each job is either cancelled at once or runs with an order; none is missed, none is both."""
        jobs = [job() for _ in range(50)]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        cancels = [second.act(Action.CANCEL, Query(ids=(each.id,))) for each in jobs]
        claims, said = await asyncio.gather(hand.take(25), asyncio.gather(*cancels))
        assert sorted(each for acted in said for each in acted.done) == sorted(ids(jobs))
        counts = await store.count(Query.everything())
        assert (counts[State.RUNNING], counts[State.CANCELLED], counts[State.READY]) == (
            len(claims),
            50 - len(claims),
            0,
        )
        assert sorted(order.id for order in (await hand.turn()).orders) == sorted(ids(claims))


class TestRescue:
    @pytest.mark.parametrize("beat_first", [True, False])
    async def test_beat_against_rescue(self, store: Door, second: Door, beat_first: bool) -> None:
        hand, claim = await running(store)
        seen = hand.beats
        if beat_first:
            assert await hand.beat()
            assert not (await second.rescue(hand.name, seen, Outcome.LOST)).taken
            assert await state(store, claim) == State.RUNNING
        else:
            assert (await second.rescue(hand.name, seen, Outcome.LOST)).taken
            assert not await hand.beat()
            assert (await hand.turn()).lost
            assert await state(store, claim) == State.READY

    async def test_beat_and_rescue_in_flight_together(self, store: Door, second: Door) -> None:
        """One of them wins and the other fails."""
        for _ in range(20):
            hand, claim = await running(store)
            alive, said = await asyncio.gather(hand.beat(), second.rescue(hand.name, hand.beats, Outcome.LOST))
            assert alive is not said.taken
            assert await state(store, claim) == (State.RUNNING if alive else State.READY)


class TestEnqueue:
    async def test_the_same_batch_from_many_at_once_makes_each_job_once(self, store: Door, second: Door) -> None:
        jobs = [job() for _ in range(10)]
        replies = await asyncio.gather(*(put_in(each, *jobs, retry=True) for each in (store, second) * 5))
        made = Counter(each.id for reply in replies for each in reply if each.created)
        assert made == dict.fromkeys(ids(jobs), 1)
        hand = await Hand(store).join()
        assert ids(await hand.take(50)) == ids(jobs)

    async def test_one_id_twice_in_a_batch_makes_one_job(self, store: Door) -> None:
        """As when a call and its repeat are sent together."""
        made = job()
        assert [each.created for each in await put_in(store, made, job(), made)] == [True, True, False]
        assert (await store.count(Query.everything()))[State.READY] == 2
        assert len(await (await Hand(store).join()).take(9)) == 2

    async def test_order_is_decided_by_the_store_not_by_clocks_of_producers(self, store: Door, second: Door) -> None:
        """Producers whose clocks are one hour ahead and one hour behind: jobs run in the order of their enqueue."""
        hour_ms = 3_600_000
        jobs = []
        for n in range(9):
            skewed = int.from_bytes(new_id().bytes) + ((n % 3 - 1) * hour_ms << 80)
            jobs.append(job(id=skewed.to_bytes(16)))
            await put_in((store, second)[n % 2], jobs[-1])
        hand = await Hand(store).join()
        assert ids(await hand.take(9)) == ids(jobs)
