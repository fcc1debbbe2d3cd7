"""Buckets: a limit holds at every moment, and no capacity leaks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from mainspring.jobs.lanes import limited_lane
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import ERROR, LANE, Hand, bucket, ids, job, lease, one, put_in, row
from mainspring.worker.records import Claim

__all__ = ["TestBuckets"]

GATE = bucket("gate", 2)

Exit = Callable[[Store, Hand, Claim], Awaitable[object]]


async def _ordered(store: Store, hand: Hand, claim: Claim) -> None:
    await store.act(Action.CANCEL, Query(ids=(claim.id,)))
    await hand.turn(Ack.succeeded(lease(claim)))


EXITS: dict[str, Exit] = {
    "succeeded": lambda _store, hand, claim: hand.turn(Ack.succeeded(lease(claim))),
    "failed": lambda _store, hand, claim: hand.turn(Ack.failed(lease(claim), ERROR, retry_in=10**9)),
    "dead": lambda _store, hand, claim: hand.turn(Ack.dead(lease(claim), ERROR, Reason.NOT_RETRYABLE)),
    "snoozed": lambda _store, hand, claim: hand.turn(Ack.snoozed(lease(claim), delay=10**9)),
    "cancelled": lambda _store, hand, claim: hand.turn(Ack.cancelled(lease(claim))),
    "interrupted": lambda _store, hand, claim: hand.turn(Ack.interrupted(lease(claim))),
    "crashed": lambda _store, hand, claim: hand.turn(Ack.crashed(lease(claim), ERROR)),
    "parked": lambda _store, hand, claim: hand.turn(Ack.returned(lease(claim), park=True)),
    "ordered": _ordered,
    "rescued as lost": lambda store, hand, _claim: store.rescue(hand.name, hand.beats, Outcome.LOST),
    "rescued as crashed": lambda store, hand, _claim: store.rescue(hand.name, hand.beats, Outcome.CRASHED),
    "retired": lambda store, hand, _claim: store.retire(hand.name, Outcome.INTERRUPTED),
    "retired with an ack": lambda store, hand, claim: store.retire(
        hand.name, Outcome.INTERRUPTED, [Ack.succeeded(lease(claim))]
    ),
}


@pytest.mark.asyncio
class TestBuckets:
    async def test_a_limited_job_is_in_the_lane_of_its_buckets(self, store: Store) -> None:
        made = await one(store, job(buckets=[bucket("tenant:7", 1), bucket("gate", 2)]))
        assert (await row(store, made)).lane == limited_lane(LANE, [bucket("gate", 2), bucket("tenant:7", 1)])

    async def test_no_more_jobs_than_the_size_run(self, store: Store, second_store: Store) -> None:
        """Over one turn, over turns and over workers."""
        await put_in(store, *(job(buckets=[GATE]) for _ in range(6)))
        first, second = await Hand(store).join(), await Hand(second_store).join()
        assert len(await first.take(1)) == 1
        assert len(await second.take(5)) == 1
        assert await first.take(5) == ()
        assert (await store.count(Query.everything()))[State.RUNNING] == 2

    async def test_a_full_bucket_holds_back_only_its_own_jobs(self, store: Store) -> None:
        limited = [job(buckets=[GATE], priority=100) for _ in range(4)]
        plain = [job() for _ in range(2)]
        await put_in(store, *limited, *plain)
        hand = await Hand(store).join()
        assert ids(await hand.take(6)) == ids(limited[:2] + plain)

    async def test_a_bucket_spans_queues_and_kinds(self, store: Store) -> None:
        await put_in(store, *(job(queue=queue, buckets=[GATE]) for queue in "abc"))
        hand = await Hand(store).join()
        assert len(await hand.take(5, "a/any", "b/any", "c/any")) == 2

    async def test_each_bucket_has_its_own_capacity(self, store: Store) -> None:
        await put_in(store, *(job(buckets=[bucket(f"tenant:{n}", 1)]) for n in (1, 1, 2, 2, 3)))
        hand = await Hand(store).join()
        assert len(await hand.take(9)) == 3

    async def test_a_job_needs_capacity_in_all_its_buckets(self, store: Store) -> None:
        gate, tenant = bucket("gate", 3), bucket("tenant:7", 1)
        both, only_gate = [job(buckets=[gate, tenant]) for _ in range(3)], [job(buckets=[gate]) for _ in range(3)]
        await put_in(store, *both, *only_gate)
        hand = await Hand(store).join()
        claims = await hand.take(9)
        assert ids(claims) == ids([both[0], only_gate[0], only_gate[1]])
        await hand.succeed(claims[1])
        assert ids(await hand.take(9)) == [only_gate[2].id]
        await hand.succeed(claims[0])
        assert ids(await hand.take(9)) == [both[1].id]

    @pytest.mark.parametrize("door", EXITS)
    async def test_every_end_of_an_attempt_frees_its_capacity(self, store: Store, door: str) -> None:
        """Exactly once: afterwards the limit admits not one job more and not one less."""
        hand = await Hand(store).join()
        leaving = await one(store, job(buckets=[GATE]))
        claim = await hand.take_one()
        await EXITS[door](store, hand, claim)
        await store.act(Action.CANCEL, Query(ids=(leaving.id,)))
        await put_in(store, *(job(buckets=[GATE]) for _ in range(4)))
        next_hand = await Hand(store).join()
        assert len(await next_hand.take(9)) == 2

    async def test_a_repeated_ack_frees_capacity_once(self, store: Store) -> None:
        await put_in(store, *(job(buckets=[GATE]) for _ in range(6)))
        hand = await Hand(store).join()
        first, _ = await hand.take(2)
        for _ in range(3):
            await hand.turn(Ack.succeeded(lease(first)))
        assert len(await hand.take(9)) == 1

    async def test_a_stale_ack_frees_no_capacity(self, store: Store) -> None:
        await put_in(store, *(job(buckets=[GATE]) for _ in range(6)))
        old = await Hand(store).join()
        late = await old.take(2)
        await store.rescue(old.name, old.beats, Outcome.LOST)
        new = await Hand(store).join()
        assert len(await new.take(9)) == 2
        thief = await Hand(store).join()
        await thief.turn(*(Ack.succeeded(lease(claim)) for claim in late))
        assert await new.take(9) == ()

    async def test_a_waiting_job_uses_no_capacity(self, store: Store) -> None:
        waiting = [job(buckets=[GATE], delay=10**9), job(buckets=[GATE])]
        blocked = job(buckets=[GATE], after=[waiting[0]])
        await put_in(store, *waiting, blocked, job(buckets=[GATE]))
        hand = await Hand(store).join()
        assert len(await hand.take(9)) == 2

    async def test_no_capacity_leaks_over_many_rounds(self, store: Store) -> None:
        await put_in(store, *(job(buckets=[GATE]) for _ in range(20)))
        hand = await Hand(store).join()
        claims: tuple[Claim, ...] = ()
        for _ in range(10):
            claims = await hand.take(9)
            assert len(claims) == 2
            await hand.turn(*(Ack.succeeded(lease(claim)) for claim in claims))
        assert await hand.take(9) == ()
        assert (await store.count(Query.everything()))[State.SUCCEEDED] == 20

    async def test_waiting_jobs_start_in_order_when_capacity_is_freed(self, store: Store) -> None:
        jobs = [job(buckets=[GATE], priority=priority) for priority in (0, 0, 5, -5)]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        first = await hand.take(9)
        assert ids(first) == ids([jobs[2], jobs[0]])
        await hand.succeed(*first)
        assert ids(await hand.take(9)) == ids([jobs[1], jobs[3]])
