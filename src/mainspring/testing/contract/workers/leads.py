"""Which worker leads a service of the fleet, and when the services have work."""

from __future__ import annotations

import asyncio

import pytest

from mainspring.common.clock import MovableClock
from mainspring.jobs.outcomes import Outcome
from mainspring.limits.records import Bucket
from mainspring.schedules.records import ALWAYS_DUE, ScheduleSwap
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import SECOND, Hand, job, put_in
from mainspring.worker.records import LeadResult

__all__ = ["TestLead", "TestWorkOfTheFleet"]

SPAN = 3 * SECOND


async def leads(store: Store, worker: str, *services: str) -> tuple[str, ...]:
    """What the worker leads after it has asked for these services."""
    return (await store.lead(worker, services or ("jobs",), SPAN)).services


@pytest.mark.asyncio
class TestLead:
    async def test_the_first_worker_leads_and_the_next_one_does_not(self, store: Store) -> None:
        assert await leads(store, "a") == ("jobs",)
        assert await leads(store, "b") == ()
        assert await leads(store, "a") == ("jobs",)

    async def test_a_lead_ends_after_its_span(self, store: Store, clock: MovableClock) -> None:
        await leads(store, "a")
        clock.advance("2999ms")
        assert await leads(store, "b") == ()
        clock.advance("1ms")
        assert await leads(store, "b") == ("jobs",)
        assert await leads(store, "a") == ()

    async def test_a_call_of_the_leader_begins_the_span_again(self, store: Store, clock: MovableClock) -> None:
        for _ in range(4):
            assert await leads(store, "a") == ("jobs",)
            clock.advance("2s")
            assert await leads(store, "b") == ()

    async def test_each_service_has_its_own_leader(self, store: Store) -> None:
        assert await leads(store, "a", "jobs") == ("jobs",)
        assert await leads(store, "b", "schedules", "jobs") == ("schedules",)
        assert await leads(store, "a", "jobs", "schedules") == ("jobs",)

    async def test_a_worker_that_asks_for_nothing_gets_nothing(self, store: Store) -> None:
        found = await store.lead("a", (), SPAN)
        assert found.services == ()
        assert await leads(store, "b") == ("jobs",)

    async def test_one_of_many_workers_that_ask_at_once_leads(self, store: Store) -> None:
        found = await asyncio.gather(*(leads(store, f"w{n}", "jobs", "schedules") for n in range(8)))
        assert sorted(name for names in found for name in names) == ["jobs", "schedules"]

    async def test_retirement_ends_what_a_worker_leads(self, store: Store) -> None:
        first, second = await Hand(store).join(), await Hand(store).join()
        assert await leads(store, first.name, "jobs", "schedules") == ("jobs", "schedules")
        await store.retire(second.name, Outcome.INTERRUPTED)
        assert await leads(store, "b") == ()
        await store.retire(first.name, Outcome.INTERRUPTED)
        assert await leads(store, "b", "jobs", "schedules") == ("jobs", "schedules")

    @pytest.mark.parametrize("cause", [Outcome.LOST, Outcome.CRASHED])
    async def test_a_rescue_ends_what_a_worker_leads(self, store: Store, cause: Outcome) -> None:
        hand = await Hand(store).join()
        assert await leads(store, hand.name) == ("jobs",)
        assert not (await store.rescue(hand.name, hand.beats - 1, cause)).taken
        assert await leads(store, "b") == ()
        assert (await store.rescue(hand.name, hand.beats, cause)).taken
        assert await leads(store, "b") == ("jobs",)

    async def test_the_fleet_is_counted(self, store: Store) -> None:
        for expected in (1, 2, 3):
            await Hand(store).join()
            await leads(store, "a")
            assert (await store.lead("b", ("jobs",), SPAN)).fleet == expected


@pytest.mark.asyncio
class TestWorkOfTheFleet:
    async def test_an_empty_store_has_none(self, store: Store, clock: MovableClock) -> None:
        assert await store.lead("a", ("jobs",), SPAN) == LeadResult(
            now=clock.now_us(), services=("jobs",), fleet=0, next_due=None, next_look=None
        )

    @pytest.mark.parametrize("worker", ["leader", "other"])
    async def test_every_worker_learns_when_the_next_job_is_due(
        self, store: Store, clock: MovableClock, worker: str
    ) -> None:
        await leads(store, "leader")
        due = clock.now_us() + 2 * SECOND
        await put_in(store, job(delay=5 * SECOND), job(delay=2 * SECOND))
        assert (await store.lead(worker, ("jobs",), SPAN)).next_due == due
        clock.advance("4s")
        assert (await store.lead(worker, ("jobs",), SPAN)).next_due == due
        await store.promote()
        assert (await store.lead(worker, ("jobs",), SPAN)).next_due == due + 3 * SECOND

    async def test_the_end_of_a_waiting_job_is_work(self, store: Store, clock: MovableClock) -> None:
        await put_in(store, job(expires_in=SECOND))
        assert (await store.lead("a", ("jobs",), SPAN)).next_due == clock.now_us() + SECOND

    @pytest.mark.parametrize("worker", ["leader", "other"])
    async def test_every_worker_learns_when_the_next_schedule_is_due(
        self, store: Store, clock: MovableClock, worker: str
    ) -> None:
        await leads(store, "leader")
        for name, look in (("late", 5), ("first", 2), ("never", None)):
            moment = None if look is None else clock.now_us() + look * SECOND
            await store.swap_schedule(ScheduleSwap(name=name, rev=0, look=moment, doc=b"{}"))
        look_at = clock.now_us() + 2 * SECOND
        assert (await store.lead(worker, ("jobs",), SPAN)).next_look == look_at
        clock.advance("3s")
        assert (await store.lead(worker, ("jobs",), SPAN)).next_look == look_at

    @pytest.mark.parametrize("worker", ["leader", "other"])
    async def test_a_schedule_that_is_always_due_does_not_hide_when_the_next_one_is(
        self, store: Store, clock: MovableClock, worker: str
    ) -> None:
        """Else every worker would take the schedule that waits for a late one, and the leader for dead."""
        await leads(store, "leader")
        moment = clock.now_us() + SECOND
        timed = await store.swap_schedule(ScheduleSwap(name="timed", rev=0, look=moment, doc=b"{}"))
        assert not (await store.lead(worker, ("jobs",), SPAN)).always_due
        waits = await store.swap_schedule(ScheduleSwap(name="waits", rev=0, look=ALWAYS_DUE, doc=b"{}"))
        found = await store.lead(worker, ("jobs",), SPAN)
        assert (found.next_look, found.always_due) == (moment, True)
        assert [row.name for row in (await store.due_schedules()).rows] == ["waits"]
        await store.swap_schedule(ScheduleSwap(name="timed", rev=timed.rev, doc=None))
        await store.swap_schedule(ScheduleSwap(name="waits", rev=waits.rev, look=None, doc=b"{}"))
        assert not (await store.lead(worker, ("jobs",), SPAN)).always_due

    async def test_a_schedule_that_is_always_due_is_no_late_one(self, store: Store) -> None:
        await store.swap_schedule(ScheduleSwap(name="waits", rev=0, look=ALWAYS_DUE, doc=b"{}"))
        found = await store.lead("a", ("jobs",), SPAN)
        assert (found.next_look, found.always_due) == (None, True)

    async def test_it_is_the_moment_that_a_promotion_returns(self, store: Store, clock: MovableClock) -> None:
        await put_in(store, job(delay=SECOND), job(expires_in=3 * SECOND))
        await store.hold(b"h" * 16, [Bucket("held")], 2 * SECOND)
        for _ in range(5):
            promoted = await store.promote()
            assert (await store.lead("a", ("jobs",), SPAN)).next_due == promoted.next_due
            clock.advance("1s")
