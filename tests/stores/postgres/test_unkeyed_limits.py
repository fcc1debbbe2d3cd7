"""Unkeyed limits with much capacity: turns share their locks, and together never start more than the size."""

from __future__ import annotations

import asyncio

import pytest

from mainspring.jobs.outcomes import Ack
from mainspring.stores.postgres import PostgresStore
from mainspring.testing.contract.hands import HOUR, LANE, Hand, bucket, ids, job, lease, put_in, running
from mainspring.worker.records import Claim, Turn, Want
from tests.stores.postgres.sides import Sides

SIZE = 640
MOST = SIZE // 64
SHARERS = 16


def turn(hand: Hand, *acks: Ack, n: int = MOST) -> Turn:
    return Turn(worker=hand.name, number=hand.number + 1, seen=hand.seen, acks=acks, wants=(Want((LANE,), n),))


async def rest(store: PostgresStore) -> list[Claim]:
    """All that can still be claimed."""
    hand = await Hand(store).join()
    said = await hand.turn(wants=[Want((LANE,), 100)])
    claims = [*said.claims]
    while said.claims or said.more:
        said = await hand.turn(wants=[Want((LANE,), 100)])
        claims += said.claims
    return claims


@pytest.mark.parametrize("per", [0, HOUR], ids=["at once", "rate"])
class TestShared:
    async def test_turns_share_an_unkeyed_limit_with_much_capacity(
        self, store: PostgresStore, sides: Sides, per: int
    ) -> None:
        await put_in(store, *(job(buckets=[bucket("gate", SIZE, per=per)]) for _ in range(30)))
        hands = [await Hand(store).join() for _ in range(2)]
        first, second = await sides.open(), await sides.open()
        one, other = await first.turn(turn(hands[0])), await asyncio.wait_for(second.turn(turn(hands[1])), 30)
        assert len({claim.id for claim in (*one.claims, *other.claims)}) == 2 * MOST
        await first.commit()
        await second.commit()
        (found,) = await store.buckets([bucket("gate", SIZE)])
        assert found.used == 2 * MOST

    async def test_turns_that_share_a_limit_never_exceed_its_size(
        self, store: PostgresStore, sides: Sides, per: int
    ) -> None:
        """As many turns as can share the lock, with the smallest capacity that allows sharing. The next turn waits."""
        await put_in(store, *(job(buckets=[bucket("gate", SIZE, per=per)]) for _ in range(SIZE + 50)))
        used = await (await Hand(store).join()).take(SIZE // 4)
        hands = [await Hand(store).join() for _ in range(SHARERS + 1)]
        *early, last = [await sides.open() for _ in hands]
        said = [await asyncio.wait_for(side.turn(turn(hand)), 30) for side, hand in zip(early, hands, strict=False)]
        claims = [claim for each in said for claim in each.claims]
        assert len(claims) == SHARERS * MOST
        late = asyncio.create_task(last.turn(turn(hands[-1])))
        await sides.until_waiting(1)
        for side in early:
            await side.commit()
        claims += (await asyncio.wait_for(late, 30)).claims
        await last.commit()
        claims += await rest(store)
        assert len(used) + len({claim.id for claim in claims}) == SIZE == len(used) + len(claims)

    @pytest.mark.parametrize("taken", [SIZE // 4 + 1, SIZE - 5])
    async def test_a_limit_with_little_capacity_is_locked_exclusively(
        self, store: PostgresStore, sides: Sides, per: int, taken: int
    ) -> None:
        await put_in(store, *(job(buckets=[bucket("gate", SIZE, per=per)]) for _ in range(SIZE + 50)))
        await (await Hand(store).join()).take(taken)
        hands = [await Hand(store).join() for _ in range(2)]
        first, second = await sides.open(), await sides.open()
        one = await first.turn(turn(hands[0]))
        other = await sides.behind(first, second, lambda: second.turn(turn(hands[1])))
        assert len(one.claims) + len(other.claims) == min(2 * MOST, SIZE - taken)

    async def test_a_turn_that_wants_many_jobs_locks_the_limit_exclusively(
        self, store: PostgresStore, sides: Sides, per: int
    ) -> None:
        await put_in(store, *(job(buckets=[bucket("gate", SIZE, per=per)]) for _ in range(30)))
        hands = [await Hand(store).join() for _ in range(2)]
        first, second = await sides.open(), await sides.open()
        await first.turn(turn(hands[0]))
        assert (await sides.behind(first, second, lambda: second.turn(turn(hands[1], n=MOST + 1)))).claims

    async def test_capacity_released_beside_a_claim(self, store: PostgresStore, sides: Sides, per: int) -> None:
        gate = bucket("gate", SIZE, per=per)
        hand, claim = await running(store, job(buckets=[gate]))
        await put_in(store, *(job(buckets=[gate]) for _ in range(30)))
        other = await Hand(store).join()
        first, second = await sides.open(), await sides.open()
        await first.turn(turn(other))
        ack = turn(hand, Ack.succeeded(lease(claim)))
        assert len((await asyncio.wait_for(second.turn(ack), 30)).claims) == MOST
        await first.commit()
        await second.commit()
        (found,) = await store.buckets([gate])
        assert found.used == 2 * MOST + (per > 0)


class TestCosts:
    @pytest.mark.parametrize("size", [50, 64_000])
    async def test_no_job_overtakes_a_job_with_a_cost(self, store: PostgresStore, size: int) -> None:
        costs = [1, 1, 20, 1, 3, 1]
        jobs = [job(buckets=[bucket("calls", size, per=HOUR, cost=cost)]) for cost in costs]
        jobs += [job(buckets=[bucket("calls", size, per=HOUR)], priority=-1)]
        await put_in(store, *jobs)
        assert ids(await rest(store)) == ids(jobs)
        (found,) = await store.buckets([bucket("calls", size)])
        assert found.used == sum(costs) + 1


class TestPassed:
    @pytest.mark.parametrize("held", [True, False])
    async def test_a_rate_window_that_ends_while_a_turn_waits_is_not_missed(
        self, store: PostgresStore, sides: Sides, held: bool
    ) -> None:
        """No transaction wakes a queue when a window ends: the turn says that it could not read the bucket."""
        calls = bucket("calls", 1, per=HOUR)
        await put_in(store, job(buckets=[calls]), job(buckets=[calls]))
        hand, claim = await running(store, job(queue="own", buckets=[bucket("gate", 1)]))
        said = await (await Hand(store).join()).turn(wants=[Want((LANE,), 9)])
        assert (len(said.claims), said.next_at is not None) == (1, True)
        holder, side = await sides.open(), await sides.open()
        await holder.run(f"select {store.schema}.lock_buckets_v1(array['gate'])")
        waiting = asyncio.create_task(side.turn(turn(hand, Ack.succeeded(lease(claim)))))
        await sides.until_blocked(holder, side, waiting)
        later = await sides.open()
        await later.run(
            f"update {store.schema}.rate_starts set first = first - {HOUR}, last = last - {HOUR} returning n"
        )
        await later.commit()
        if held:
            await later.run(f"select {store.schema}.lock_buckets_v1(array['calls'])")
        await holder.commit()
        said = await asyncio.wait_for(waiting, 30)
        await side.commit()
        assert (len(said.claims), said.more) == ((0, True) if held else (1, False))
