"""Crashes: which job is charged, which job is a suspect, and when a job is dead."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.common.clock import MovableClock
from mainspring.jobs.lanes import suspect_lane
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import NewJob
from mainspring.states import Action, Reason, State
from mainspring.stores.base import CRASH_DELAYS, Store
from mainspring.testing.contract.hands import (
    ERROR,
    LANE,
    SECOND,
    Hand,
    bucket,
    ending,
    ids,
    job,
    lease,
    one,
    outcomes,
    put_in,
    row,
    running,
    state,
)
from mainspring.worker.records import Claim, Want

__all__ = ["TestChargedCrashes", "TestSuspects"]


def shaky(**options: Any) -> NewJob:
    """A job that may crash once: after that it is a suspect, for the next crash would be its last."""
    return job(crashes=2, **options)


async def make_suspect(store: Store, made: NewJob) -> None:
    """Enqueue a shaky job and let one worker die under it."""
    hand, _ = await running(store, made)
    await hand.crash()
    found = await row(store, made)
    assert (found.crashes, found.crash_limit) == (1, 2)


async def crash_with(store: Store, made: NewJob) -> Claim:
    """A fresh worker takes the job and dies."""
    hand = await Hand(store).join()
    claim = await hand.take_one(f"{made.queue}/{made.kind}")
    assert claim.id == made.id
    await hand.crash()
    return claim


@pytest.mark.asyncio
class TestChargedCrashes:
    async def test_the_first_crash_charges_all_running_jobs(self, store: Store) -> None:
        """The cause is unknown: each job gets one crash, its attempt is not counted, and it is ready at once."""
        jobs = [job() for _ in range(3)]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        await hand.take(3)
        said = await store.rescue(hand.name, hand.beats, Outcome.CRASHED)
        assert (said.taken, set(said.ready), said.retrying, said.dead) == (True, set(ids(jobs)), (), ())
        for each in jobs:
            found = await row(store, each)
            assert (found.state, found.crashes, found.attempt) == (State.READY, 1, 0)
            assert found.lane == LANE
            assert await outcomes(store, each) == [Outcome.CRASHED]
        other = await Hand(store).join()
        assert len(await other.take(3, suspects=0)) == 3, "all of them run again at once"

    async def test_a_job_whose_next_crash_would_be_its_last_is_a_suspect(self, store: Store) -> None:
        made = await one(store, job(crashes=3))
        for lane in (LANE, suspect_lane(LANE)):
            hand = await Hand(store).join()
            await hand.take(1)
            await store.rescue(hand.name, hand.beats, Outcome.CRASHED, delays=(0,))
            assert (await row(store, made)).lane == lane

    async def test_only_the_suspect_of_several_jobs_is_charged(self, store: Store) -> None:
        poison = shaky(priority=100)
        await make_suspect(store, poison)
        innocent = [job() for _ in range(3)]
        await put_in(store, *innocent)
        hand = await Hand(store).join()
        assert len(await hand.take(4)) == 4
        said = await store.rescue(hand.name, hand.beats, Outcome.CRASHED)
        assert set(said.ready) == set(ids(innocent))
        assert said.dead == (poison.id,)
        assert (await row(store, poison)).crashes == 2
        for each in innocent:
            found = await row(store, each)
            assert (found.state, found.crashes, found.attempt, found.lane) == (State.READY, 0, 0, LANE)

    async def test_a_suspect_is_not_charged_while_another_crashed_job_ran(self, store: Store) -> None:
        suspect, before = shaky(), job()
        await put_in(store, suspect, before)
        hand = await Hand(store).join()
        await hand.take(2)
        await hand.crash()
        other = await Hand(store).join()
        assert len(await other.take(2)) == 2
        said = await store.rescue(other.name, other.beats, Outcome.CRASHED)
        assert (said.ready, said.retrying, said.dead) == ((suspect.id,), (before.id,), ())
        assert [(await row(store, each)).crashes for each in (suspect, before)] == [1, 2]

    async def test_a_lost_worker_charges_no_crash(self, store: Store) -> None:
        hand, claim = await running(store)
        said = await store.rescue(hand.name, hand.beats, Outcome.LOST)
        assert said.ready == (claim.id,)
        found = await row(store, claim)
        assert (found.state, found.crashes, found.attempt, found.lane) == (State.READY, 0, 0, f"{claim.queue}/any")
        assert await outcomes(store, claim) == [Outcome.LOST]

    async def test_a_suspect_of_a_lost_worker_stays_a_suspect(self, store: Store) -> None:
        poison = shaky()
        await make_suspect(store, poison)
        hand = await Hand(store).join()
        await hand.take(1)
        await store.rescue(hand.name, hand.beats, Outcome.LOST)
        found = await row(store, poison)
        assert (found.state, found.crashes, found.lane) == (State.READY, 1, suspect_lane(LANE))

    async def test_each_further_crash_waits_longer(self, store: Store, clock: MovableClock) -> None:
        """At once first, then with the given delays."""
        made = await one(store, job(crashes=9))
        for crash, delay in enumerate(CRASH_DELAYS, start=1):
            await crash_with(store, made)
            found = await row(store, made)
            assert found.crashes == crash
            if delay:
                assert (found.state, found.due) == (State.RETRYING, clock.now_us() + delay)
                clock.advance(delay / SECOND)
                await store.promote()
            assert await state(store, made) == State.READY

    async def test_the_last_delay_applies_to_every_further_crash(self, store: Store) -> None:
        made = await one(store)
        for _ in range(2):
            hand = await Hand(store).join()
            await hand.take(1)
            said = await store.rescue(hand.name, hand.beats, Outcome.CRASHED, delays=(0,))
            assert said.ready == (made.id,)

    async def test_the_crash_limit_makes_a_job_dead(self, store: Store, clock: MovableClock) -> None:
        """Three by default. The error of the last crash is in its attempts, and no retry is used."""
        made = await one(store)
        for _ in range(2):
            await crash_with(store, made)
            clock.advance("10m")
            await store.promote()
        hand = await Hand(store).join()
        await hand.take_one()
        said = await store.rescue(hand.name, hand.beats, Outcome.CRASHED)
        assert (said.dead, said.ready, said.retrying) == ((made.id,), (), ())
        assert await ending(store, made) == (State.DEAD, Reason.CRASHED)
        assert await outcomes(store, made) == [Outcome.CRASHED] * 3

    async def test_a_crash_limit_of_one_makes_a_job_dead_at_once(self, store: Store) -> None:
        hand, claim = await running(store, job(crashes=1))
        await hand.crash()
        assert await ending(store, claim) == (State.DEAD, Reason.CRASHED)

    async def test_no_job_dies_of_a_crash_that_another_job_may_have_caused(self, store: Store) -> None:
        jobs = [job(crashes=1), job(crashes=1)]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        await hand.take(2)
        said = await store.rescue(hand.name, hand.beats, Outcome.CRASHED)
        assert (set(said.ready), said.dead) == (set(ids(jobs)), ())
        again = await Hand(store).join()
        claim = await again.take_one()
        await again.crash()
        assert await ending(store, claim) == (State.DEAD, Reason.CRASHED)

    async def test_crashes_do_not_use_up_attempts(self, store: Store) -> None:
        made = await one(store)
        await crash_with(store, made)
        hand = await Hand(store).join()
        claim = await hand.take_one()
        assert (claim.attempt, claim.crashes) == (1, 1)

    async def test_a_retirement_charges_in_the_same_way(self, store: Store) -> None:
        jobs = [job(), job()]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        await hand.take(2)
        said = await store.retire(hand.name, Outcome.CRASHED)
        assert set(said.ready) == set(ids(jobs))
        assert [(await row(store, each)).crashes for each in jobs] == [1, 1]


@pytest.mark.asyncio
class TestSuspects:
    async def test_suspects_are_taken_one_at_a_time(self, store: Store) -> None:
        jobs = [shaky(), shaky(), shaky()]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        await hand.take(3)
        await hand.crash()
        other = await Hand(store).join()
        assert len(await other.take(3, suspects=1)) == 1
        assert await other.take(3, suspects=0) == ()
        third = await Hand(store).join()
        assert len(await third.take(3, suspects=2)) == 2

    async def test_one_suspect_for_all_wants_of_a_turn(self, store: Store) -> None:
        jobs = [shaky(), shaky(kind="async")]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        await hand.take(2, LANE, "q/async")
        await hand.crash()
        other = await Hand(store).join()
        said = await other.turn(wants=[Want((LANE,), 3), Want(("q/async",), 3)])
        assert len(said.claims) == 1

    async def test_suspects_come_first(self, store: Store) -> None:
        """A higher priority of other jobs does not delay them."""
        poison = shaky(priority=-100)
        await make_suspect(store, poison)
        other = await one(store, job(priority=100))
        hand = await Hand(store).join()
        assert ids(await hand.take(2)) == ids([poison, other])

    async def test_other_jobs_run_beside_a_suspect(self, store: Store) -> None:
        poison = shaky()
        await make_suspect(store, poison)
        await put_in(store, job(), job())
        hand = await Hand(store).join()
        assert len(await hand.take(5)) == 3

    @pytest.mark.parametrize("end", ["failed", "snoozed", "interrupted"])
    async def test_a_suspect_stays_a_suspect_until_it_ends(self, store: Store, end: str) -> None:
        poison = shaky()
        await make_suspect(store, poison)
        hand = await Hand(store).join()
        claim = await hand.take_one()
        await hand.turn(
            {
                "failed": Ack.failed(lease(claim), ERROR, retry_in=0),
                "snoozed": Ack.snoozed(lease(claim)),
                "interrupted": Ack.interrupted(lease(claim)),
            }[end]
        )
        await store.promote()
        found = await row(store, poison)
        assert (found.state, found.crashes, found.lane) == (State.READY, 1, suspect_lane(LANE))
        assert await hand.take(5, suspects=0) == ()

    async def test_a_suspect_can_succeed(self, store: Store) -> None:
        poison = shaky()
        await make_suspect(store, poison)
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one())
        assert await state(store, poison) == State.SUCCEEDED

    async def test_a_suspect_keeps_its_limits(self, store: Store) -> None:
        gate = bucket("gate", 1)
        poison = shaky(buckets=[gate])
        await make_suspect(store, poison)
        await one(store, job(buckets=[gate]))
        first, second = await Hand(store).join(), await Hand(store).join()
        taken = [*await first.take(5), *await second.take(5)]
        assert ids(taken) == [poison.id]

    async def test_a_suspect_can_be_cancelled(self, store: Store) -> None:
        poison = shaky()
        await make_suspect(store, poison)
        await store.act(Action.CANCEL, Query(ids=(poison.id,)))
        assert await ending(store, poison) == (State.CANCELLED, Reason.BY_USER)
