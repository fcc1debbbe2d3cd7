"""Crashes: which job is charged, which job is a suspect, and when a job is dead."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mainspring.common.clock import MovableClock
from mainspring.jobs.lanes import suspect_lane
from mainspring.jobs.outcomes import CRASH_DELAYS, Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobRow, NewJob
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import (
    ERROR,
    LANE,
    SECOND,
    Hand,
    applied,
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

__all__ = ["TestChargedCrashes", "TestReportedCrashes", "TestSuspects"]


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
class TestReportedCrashes:
    """A job ran alone in a process that died. Its worker lives and says so with an ack: a crash of this one job."""

    async def test_the_first_crash_makes_the_job_ready_at_once(self, store: Store, clock: MovableClock) -> None:
        """The attempt is given back and is in the list of attempts with its error; the worker goes on."""
        hand, claim = await running(store, job(queue="slots", expires_in=60 * SECOND, priority=3))
        clock.advance("2s")
        said = await hand.turn(Ack.crashed(lease(claim), ERROR, run_us=55), wants=[Want(("slots/any",), 1)])
        assert applied(said)
        (again,) = said.claims
        assert (again.id, again.attempt, again.crashes, again.expires) == (claim.id, 1, 1, None)
        found = await row(store, claim)
        assert (found.priority, found.ran, found.error) == (3, None, None)
        (kept,) = await store.attempts(claim.id)
        assert (kept.outcome, kept.attempt, kept.token, kept.worker, kept.error, kept.ran, kept.ended) == (
            Outcome.CRASHED, 1, claim.token, hand.name, ERROR, 55, clock.now_us(),
        )  # fmt: skip

    @pytest.mark.parametrize("delays", [CRASH_DELAYS, (0,), (SECOND, 2 * SECOND), ()], ids=str)
    async def test_each_further_crash_waits_longer(
        self, store: Store, clock: MovableClock, delays: tuple[int, ...]
    ) -> None:
        """As after crashes of workers. The last delay applies to every further crash."""
        made = await one(store, job(crashes=9))
        hand = await Hand(store).join()
        for crash in range(1, 8):
            await hand.turn(Ack.crashed(lease(await hand.take_one()), ERROR, delays=delays))
            found = await row(store, made)
            delay = delays[min(crash, len(delays)) - 1] if delays else 0
            due = clock.now_us() + delay if delay else None
            assert (found.crashes, found.attempt, found.due) == (crash, 0, due)
            assert found.state == (State.RETRYING if delay else State.READY)
            clock.advance(delay / SECOND)
            await store.promote()

    async def test_a_job_whose_next_crash_would_be_its_last_is_a_suspect(self, store: Store) -> None:
        made = await one(store, job(crashes=3))
        hand = await Hand(store).join()
        for lane in (LANE, suspect_lane(LANE)):
            await hand.turn(Ack.crashed(lease(await hand.take_one()), ERROR, delays=(0,)))
            assert (await row(store, made)).lane == lane
        assert await hand.take(1, suspects=0) == ()
        assert (await hand.take_one()).id == made.id

    @pytest.mark.parametrize("limit", [0, 1, 2])
    @pytest.mark.parametrize("out_of_memory", [False, True])
    async def test_the_crash_limit_makes_a_job_dead(
        self, store: Store, clock: MovableClock, limit: int, out_of_memory: bool
    ) -> None:
        made = await one(store, job(crashes=limit))
        hand = await Hand(store).join()
        for _ in range(max(1, limit)):
            claim = await hand.take_one()
            ack = Ack.crashed(lease(claim), ERROR, out_of_memory=out_of_memory, label="ChildDied", run_us=7)
            assert applied(await hand.turn(ack))
        found = await row(store, made)
        reason = Reason.OUT_OF_MEMORY if out_of_memory else Reason.CRASHED
        assert (found.state, found.reason, found.crashes, found.attempt) == (State.DEAD, reason, max(1, limit), 0)
        assert (found.error, found.ran, found.finished, found.worker) == (ERROR, 7, clock.now_us(), hand.name)
        assert await outcomes(store, made) == [Outcome.CRASHED] * max(1, limit)
        (group,) = await store.tally(Query.everything(), "error")
        assert group.value == "ChildDied"

    @pytest.mark.parametrize("known", [False, True], ids=["the worker", "the store"])
    async def test_an_early_job_is_dead(self, store: Store, known: bool) -> None:
        """It began, so it never runs again, whoever knows that it acknowledges early."""
        hand, claim = await running(store, job(early=known))
        await hand.turn(Ack.crashed(lease(claim), ERROR, early=not known))
        assert await ending(store, claim) == (State.DEAD, Reason.CRASHED)
        assert (await row(store, claim)).crashes == 1

    async def test_other_jobs_of_the_worker_run_on(self, store: Store) -> None:
        """It is certain which job crashed, also beside jobs that crashed before."""
        before = job(crashes=9, priority=2)
        await one(store, before)
        hand = await Hand(store).join()
        await hand.turn(Ack.crashed(lease(await hand.take_one()), ERROR))
        await put_in(store, poison := job(crashes=1, priority=1), other := job())
        claims = await hand.take(3)
        assert ids(claims) == ids([before, poison, other])
        assert applied(await hand.turn(Ack.crashed(lease(claims[1]), ERROR)))
        assert await ending(store, poison) == (State.DEAD, Reason.CRASHED)
        for each, crashes in ((before, 1), (other, 0)):
            found = await row(store, each)
            assert (found.state, found.crashes, found.worker) == (State.RUNNING, crashes, hand.name)
        await hand.succeed(claims[0], claims[2])

    async def test_a_cancel_order_is_obeyed(self, store: Store) -> None:
        hand, claim = await running(store, job(crashes=1))
        await store.act(Action.CANCEL, Query(ids=(claim.id,)), reason="not needed")
        await hand.turn(Ack.crashed(lease(claim), ERROR, label="ChildDied"))
        found = await row(store, claim)
        assert (found.state, found.reason, found.note) == (State.CANCELLED, Reason.BY_USER, "not needed")
        assert (found.crashes, found.error) == (1, ERROR)

    async def test_a_repeat_charges_no_second_crash(self, store: Store) -> None:
        hand, claim = await running(store, job(crashes=1))
        await hand.turn(Ack.crashed(lease(claim), ERROR))
        before = await row(store, claim)
        assert (await hand.repeat()).already == (lease(claim),)
        assert await row(store, claim) == before
        assert await outcomes(store, claim) == [Outcome.CRASHED]

    async def test_a_late_report_is_stale(self, store: Store) -> None:
        """The worker was silent and its job was taken back: that was no crash."""
        hand, claim = await running(store)
        other = await Hand(store).join()
        await store.rescue(hand.name, hand.beats, Outcome.LOST)
        assert (await hand.turn(Ack.crashed(lease(claim), ERROR))).lost
        again = await other.take_one(f"{claim.queue}/any")
        assert (await other.turn(Ack.crashed(lease(claim), ERROR))).stale == (lease(claim),)
        found = await row(store, claim)
        assert (found.state, found.crashes, found.token) == (State.RUNNING, 0, again.token)

    async def test_a_retirement_may_bring_it(self, store: Store) -> None:
        await put_in(store, poison := job(crashes=1), other := job())
        hand = await Hand(store).join()
        claims = await hand.take(2)
        await store.retire(hand.name, Outcome.INTERRUPTED, [Ack.crashed(lease(claims[0]), ERROR)])
        assert await ending(store, poison) == (State.DEAD, Reason.CRASHED)
        found = await row(store, other)
        assert (found.state, found.crashes) == (State.READY, 0)

    @pytest.mark.parametrize("limit", [1, 2, 3, 9])
    @pytest.mark.parametrize("crashes", [1, 2, 3])
    @pytest.mark.parametrize("ordered", [False, True])
    async def test_it_is_the_crash_of_a_worker_with_this_one_job(
        self, store: Store, clock: MovableClock, limit: int, crashes: int, ordered: bool
    ) -> None:
        """Two equal jobs, one ended by acks and one by rescues: every field is the same that is not about the ack."""
        gate = bucket("gate", 9)
        jobs = [job(queue=name, crashes=limit, expires_in=60 * SECOND, buckets=[gate]) for name in ("acked", "rescued")]
        await put_in(store, *jobs)
        acking = await Hand(store).join()
        for crash in range(1, min(crashes, limit) + 1):
            claim = await acking.take_one("acked/any")
            dying = await Hand(store).join()
            await dying.take_one("rescued/any")
            if ordered and crash == min(crashes, limit):
                await store.act(Action.CANCEL, Query(ids=tuple(ids(jobs))))
            await acking.turn(Ack.crashed(lease(claim), ERROR))
            await dying.crash()
            acked, rescued = [_common(await row(store, each)) for each in jobs]
            assert acked == rescued
            assert await outcomes(store, jobs[0]) == await outcomes(store, jobs[1])
            clock.advance("10m")
            await store.promote()


def _common(found: JobRow) -> JobRow:
    """The row without the fields that differ between the two jobs of a test, and those that only an ack knows."""
    lane = found.lane.removeprefix(found.queue)
    return msgspec.structs.replace(
        found, id=b"", record=b"", queue="", lane=lane, seq=0, token=0, worker=None, error=None, ran=None
    )


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
