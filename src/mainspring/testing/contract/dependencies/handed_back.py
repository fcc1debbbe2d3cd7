"""A worker hands back a job that is no run of a schedule though its task says so: from then on it is a run."""

from __future__ import annotations

import pytest

from mainspring.common.clock import MovableClock
from mainspring.jobs.lanes import limited_lane
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import NewJob
from mainspring.limits.records import Bucket, Limit
from mainspring.queues.records import QueueSettings
from mainspring.schedules.records import part_mark
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import (
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
    state,
)
from mainspring.worker.records import Claim

from .release import after, noted, of, succeeds, waiting

__all__ = ["TestHandedBackAsRun", "TestHandedBackAsRunInContext"]


def joined(claim: Claim, part: str = "x", *buckets: Bucket) -> Ack:
    return Ack.returned(lease(claim), buckets=buckets, part=part)


async def handed_back(hand: Hand, *made: NewJob, part: str = "x") -> None:
    """These jobs are enqueued, claimed, and handed back as runs of the schedule."""
    await put_in(hand.store, *made)
    claims = await hand.take(len(made))
    assert ids(claims) == ids(made)
    assert applied(await hand.turn(*(joined(claim, part) for claim in claims)))


@pytest.mark.asyncio
class TestHandedBackAsRun:
    async def test_a_handed_back_run_waits_until_each_dependency_has_succeeded(
        self, store: Store, second_store: Store
    ) -> None:
        """The job has not started: it uses no attempt, and its claim was no start of the schedule."""
        await after(store, "x", "a", "b")
        hand = await Hand(store).join()
        made = job()
        await handed_back(hand, made)
        found = await row(store, made)
        assert (found.state, found.attempt, found.deps, found.due) == (State.BLOCKED, 0, 1, None)
        assert await waiting(store) == [made.id]
        await succeeds(await Hand(second_store).join(), "a", "a")
        assert await hand.take(9) == ()
        await succeeds(hand, "b")
        claim = await hand.take_one()
        assert (claim.id, claim.attempt, claim.of_part) == (made.id, 1, True)
        await hand.succeed(claim)
        assert await outcomes(store, made) == [Outcome.INTERRUPTED]

    async def test_a_handed_back_run_keeps_its_position_when_all_successes_are_recorded(self, store: Store) -> None:
        """It deletes the recorded successes, as the next start of the schedule."""
        await after(store, "x", "a")
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        made, later = await one(store), job()
        claim = await hand.take_one()
        await put_in(store, later)
        assert applied(await hand.turn(joined(claim)))
        assert await noted(store) == {"a": False}
        assert ids(await hand.take(9)) == [made.id, later.id]

    async def test_runs_enqueued_first_are_released_first(self, store: Store) -> None:
        """Whenever they were handed back, and whether or not they were runs from the start."""
        await after(store, "x", "a")
        first, second, third = await one(store), await one(store, of("x", queue="q")), await one(store)
        hand = await Hand(store).join()
        early, late = await hand.take(9)
        assert applied(await hand.turn(joined(late)))
        assert applied(await hand.turn(joined(early)))
        assert await waiting(store) == ids([first, second, third])
        for each in (first, second, third):
            await succeeds(hand, "a")
            claim = await hand.take_one()
            assert claim.id == each.id
            await hand.succeed(claim)

    @pytest.mark.parametrize("waits", [True, False], ids=["released later", "released at once"])
    async def test_a_success_before_its_start_is_not_recorded(self, store: Store, waits: bool) -> None:
        """Although the job was claimed before: that claim was no start."""
        await after(store, "x", "a")
        hand = await Hand(store).join()
        if not waits:
            await succeeds(hand, "a")
        made = job()
        await handed_back(hand, made)
        await succeeds(hand, "a", "a")
        assert await noted(store) == {"a": False}
        claim = await hand.take_one()
        assert claim.id == made.id
        await succeeds(hand, "a")
        assert await noted(store) == {"a": True}
        await hand.succeed(claim)

    async def test_its_own_success_is_recorded_for_dependents(self, store: Store) -> None:
        """Also if its own schedule has no dependencies: then it is ready at once."""
        await after(store, "y", "x")
        other = await one(store, of("y"))
        hand = await Hand(store).join()
        made = job(marks=["own"])
        await handed_back(hand, made)
        assert await state(store, made) == State.READY
        claim = await hand.take_one()
        assert claim.of_part
        await hand.succeed(claim)
        assert await state(store, other) == State.READY
        for mark in ("own", part_mark("x")):
            assert ids((await store.find(Query(marks=(mark,)))).jobs) == [made.id]

    async def test_a_run_keeps_its_schedule(self, store: Store) -> None:
        await after(store, "x", "a")
        await after(store, "y", "a")
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        made = await one(store, of("y", queue="q"))
        claim = await hand.take_one()
        assert claim.of_part
        assert applied(await hand.turn(joined(claim)))
        assert await state(store, made) == State.READY
        assert await noted(store, "x") == {"a": True}
        assert ids(await hand.take(9)) == [made.id]

    async def test_claims_say_whether_a_job_is_a_run(self, store: Store) -> None:
        """Alone and among others, limited and not, and when a turn is repeated."""
        limited = bucket("roomy", 9)
        jobs = [job(), of("x", queue="q"), job(marks=["x"]), job(buckets=[limited])]
        jobs += [of("x", queue="q", buckets=[limited]), of("x", queue="q", fair=None, priority=-1)]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        claims = await hand.take(9)
        assert {claim.id: claim.of_part for claim in claims} == {made.id: part_mark("x") in made.marks for made in jobs}
        again = await store.turn(hand.last)
        assert {claim.id: claim.of_part for claim in again.claims} == {claim.id: claim.of_part for claim in claims}


@pytest.mark.asyncio
class TestHandedBackAsRunInContext:
    async def test_handed_back_with_limits_and_a_schedule(self, store: Store) -> None:
        gate, key = Bucket("gate"), Bucket("tenant", "7")
        await store.declare_limits([Limit(name="gate", size=1), Limit(name="tenant", size=1)])
        await after(store, "x", "a")
        hand = await Hand(store).join()
        made, running = job(), job(buckets=[key])
        await put_in(store, made, running)
        mine, held = await hand.take(2)
        assert applied(await hand.turn(joined(mine, "x", gate, key)))
        found = await row(store, made)
        assert (found.state, found.lane) == (State.BLOCKED, limited_lane(LANE, (gate, key)))
        await succeeds(hand, "a")
        assert await hand.take(9) == ()
        await hand.succeed(held)
        assert ids(await hand.take(9)) == [made.id]
        assert [each.used for each in await store.buckets([gate, key])] == [1, 1]

    async def test_the_start_of_its_rate_is_given_back(self, store: Store) -> None:
        """The attempt that never began costs nothing."""
        await after(store, "x", "a")
        hand = await Hand(store).join()
        rate = bucket("rate", 1, per=60 * SECOND)
        await handed_back(hand, job(buckets=[rate]))
        assert ids(await hand.take(9)) == []
        other = await one(store, job(buckets=[rate]))
        assert ids(await hand.take(9)) == [other.id]

    async def test_a_cancel_order_ends_a_handed_back_run(self, store: Store) -> None:
        await after(store, "x", "a")
        hand = await Hand(store).join()
        made = await one(store)
        claim = await hand.take_one()
        await store.act(Action.CANCEL, Query(ids=(made.id,)))
        assert applied(await hand.turn(joined(claim)))
        assert await ending(store, made) == (State.CANCELLED, Reason.BY_USER)
        assert await waiting(store) == []

    async def test_cancel_expiry_and_delete_end_a_handed_back_run(self, store: Store, clock: MovableClock) -> None:
        """Afterwards it blocks no other run."""
        await after(store, "x", "a")
        hand = await Hand(store).join()
        cancelled, expired, deleted, last = job(), job(expires_in=SECOND), job(), job()
        await handed_back(hand, cancelled, expired, deleted, last)
        await store.act(Action.CANCEL, Query(ids=(cancelled.id,)))
        await store.act(Action.DELETE, Query(ids=(deleted.id,)))
        clock.advance(2)
        await store.promote(100)
        assert await ending(store, cancelled) == (State.CANCELLED, Reason.BY_USER)
        assert await ending(store, expired) == (State.CANCELLED, Reason.EXPIRED)
        assert await waiting(store) == [last.id]
        await succeeds(hand, "a")
        assert ids(await hand.take(9)) == [last.id]

    async def test_a_late_owner_changes_nothing(self, store: Store) -> None:
        await after(store, "x", "a")
        hand, other = await Hand(store).join(), await Hand(store).join()
        made = await one(store)
        claim = await hand.take_one()
        assert (await store.rescue(hand.name, hand.beats, Outcome.LOST)).taken
        assert (await hand.turn(joined(claim))).lost
        again = await other.take_one()
        assert (again.id, again.of_part) == (made.id, False)
        assert await waiting(store) == []

    async def test_a_repeat_changes_nothing(self, store: Store) -> None:
        await after(store, "x", "a")
        hand = await Hand(store).join()
        made = await one(store)
        claim = await hand.take_one()
        await hand.turn(joined(claim))
        said = await hand.turn(joined(claim))
        assert said.already == ((claim.id, claim.token),)
        found = await row(store, made)
        assert (found.state, found.deps, found.attempt) == (State.BLOCKED, 1, 0)

    async def test_a_retirement_hands_back_as_run(self, store: Store) -> None:
        await after(store, "x", "a")
        hand, other = await Hand(store).join(), await Hand(store).join()
        await succeeds(other, "a")
        first, second = await one(store), await one(store)
        claims = await hand.take(2)
        assert (await store.retire(hand.name, Outcome.INTERRUPTED, [joined(claim) for claim in claims])).taken
        assert [await state(store, each) for each in (first, second)] == [State.READY, State.BLOCKED]
        assert ids(await other.take(9)) == [first.id]
        await succeeds(other, "a")
        assert ids(await other.take(9)) == [second.id]

    async def test_handed_back_in_a_queue_with_settings(self, store: Store) -> None:
        """In a lifo queue; it counts for the depth, and waits in the order of its schedule."""
        await store.configure_queue("q", QueueSettings(order="lifo", max_depth=5))
        await after(store, "x", "a")
        hand = await Hand(store).join()
        first, second = await one(store), await one(store)
        claims = await hand.take(2)
        assert ids(claims) == ids([second, first])
        assert applied(await hand.turn(*map(joined, claims)))
        assert await waiting(store) == ids([first, second])
        await succeeds(hand, "a")
        assert ids(await hand.take(9)) == [first.id]

    async def test_removing_the_dependencies_releases_a_handed_back_run(self, store: Store) -> None:
        await after(store, "x", "a")
        hand = await Hand(store).join()
        made = [job(), job()]
        await handed_back(hand, *made)
        await after(store, "x")
        assert ids(await hand.take(9)) == ids(made)
