"""Base lanes with terms: jobs that only some workers may claim stay apart from other jobs."""

from __future__ import annotations

import pytest

from mainspring.jobs.lanes import base_lane, limited_lane, on_terms, parked_lane, suspect_lane, version_term
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.states import Action, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import LANE, TASK, Hand, bucket, ids, job, lease, one, put_in, row, running
from mainspring.worker.records import Want

__all__ = ["TestTerms"]

PLAIN = on_terms("async", ())
SETS = [(), ("gpu",), ("gpu", "big"), ("9x", "gpu"), ("gpu", version_term("1.4")), (version_term("1.4"),), ("gpu-2",)]
GPU = on_terms("async", ["gpu"])
GPU_LANE = base_lane("q", GPU)


@pytest.mark.asyncio
class TestTerms:
    async def test_each_set_of_terms_has_its_own_lane(self, store: Store) -> None:
        """Also if one set is a prefix of the other."""
        jobs = [job(kind=on_terms("async", terms)) for terms in SETS]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        for made in reversed(jobs):
            claims = await hand.take(9, base_lane("q", made.kind))
            assert ids(claims) == [made.id]
            assert claims[0].lane == base_lane("q", made.kind)

    async def test_one_want_merges_several_lanes(self, store: Store) -> None:
        low, high, other = job(kind=PLAIN), job(kind=GPU, priority=5), job(kind=on_terms("async", ["big"]), priority=9)
        await put_in(store, low, high, other)
        hand = await Hand(store).join()
        assert ids(await hand.take(9, base_lane("q", PLAIN), GPU_LANE)) == ids([high, low])

    async def test_a_handed_back_job_stays_in_its_lane(self, store: Store) -> None:
        hand, claim = await running(store, job(kind=GPU))
        await hand.turn(Ack.returned(lease(claim)))
        assert (await row(store, claim)).lane == GPU_LANE

    async def test_a_parked_job_keeps_its_terms(self, store: Store) -> None:
        """Only a worker that knows the task and names the lane gets it."""
        made = await one(store, job(kind=GPU))
        stranger = await Hand(store, tasks=()).join()
        await stranger.turn(Ack.returned(lease(await stranger.take_one(GPU_LANE)), park=True))
        assert (await row(store, made)).lane == parked_lane(GPU_LANE, TASK)
        expert = await Hand(store).join()
        assert await stranger.take(9, GPU_LANE, base_lane("q", PLAIN), LANE) == ()
        assert await expert.take(9, base_lane("q", PLAIN), LANE) == ()
        assert ids(await expert.take(9, GPU_LANE)) == [made.id]

    async def test_a_suspect_keeps_its_terms(self, store: Store) -> None:
        made = await one(store, job(kind=GPU, crashes=2))
        hand = await Hand(store).join()
        await hand.take_one(GPU_LANE)
        await store.rescue(hand.name, hand.beats, Outcome.CRASHED)
        assert (await row(store, made)).lane == suspect_lane(GPU_LANE)
        other = await Hand(store).join()
        assert await other.take(9, base_lane("q", PLAIN)) == ()
        assert ids(await other.take(9, GPU_LANE)) == [made.id]

    @pytest.mark.parametrize("key", ["", "7"])
    async def test_a_limited_job_keeps_its_terms(self, store: Store, key: str) -> None:
        gate = bucket("gate", 1, key=key)
        first, second, plain = job(kind=GPU, buckets=[gate]), job(kind=GPU, buckets=[gate]), job(kind=PLAIN)
        await put_in(store, first, second, plain)
        assert (await row(store, first)).lane == limited_lane(GPU_LANE, [gate])
        hand = await Hand(store).join()
        assert ids(await hand.take(9, GPU_LANE)) == [first.id]
        assert ids(await hand.take(9, base_lane("q", PLAIN))) == [plain.id]

    async def test_a_retry_by_hand_keeps_the_terms(self, store: Store) -> None:
        hand, claim = await running(store, job(kind=GPU, crashes=1))
        await store.rescue(hand.name, hand.beats, Outcome.CRASHED)
        assert (await row(store, claim)).state is State.DEAD
        await store.act(Action.RETRY, Query(ids=(claim.id,)))
        found = await row(store, claim)
        assert (found.state, found.lane) == (State.READY, GPU_LANE)

    async def test_each_of_many_wants_gets_its_number_of_jobs(self, store: Store) -> None:
        """A worker that shares its claims by weight sends one want for each queue."""
        await put_in(store, *(job(queue=queue, kind=PLAIN) for _ in range(9) for queue in ("a", "b", "c")))
        hand = await Hand(store, queues=("a", "b", "c")).join()
        wants = [Want((base_lane(queue, PLAIN),), n) for queue, n in (("a", 5), ("b", 3), ("c", 2))]
        claims = (await hand.turn(wants=wants)).claims
        assert [claim.queue for claim in claims] == ["a"] * 5 + ["b"] * 3 + ["c"] * 2
