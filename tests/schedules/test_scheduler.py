"""The scheduler on a real store: each occurrence becomes one job, however many schedulers run."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

import pytest
from msgspec.structs import replace

from mainspring.common.clock import MovableClock, to_datetime
from mainspring.common.ids import raw_id
from mainspring.errors import StoreUnavailable
from mainspring.jobs.query import Query
from mainspring.schedules.plan import ScheduleNews, SchedulePlan, ScheduleStep, decode, trigger
from mainspring.schedules.rules import Cron, RuleWindow
from mainspring.schedules.service import Scheduler
from mainspring.schedules.swap import swap_row
from mainspring.states import State
from mainspring.stores.base import Store
from mainspring.stores.connect import connect
from mainspring.testing.contract.hands import Hand, row
from mainspring.testing.history import History, Promise, check, read
from tests.schedules.scheduled import Counting, Heard, asked, jobs, plan_of, put, records, what
from tests.unit.schedule_samples import JOB, MINUTE, SECOND, T0

MANY = 1000
SCHEDULERS = 20


async def tick_until(scheduler: Scheduler, store: Store) -> None:
    """As a worker does it: a call that has no answer in time is repeated. Here all schedulers share one event loop."""
    due = True
    while due:
        with suppress(StoreUnavailable):
            if due := bool((await store.due_schedules(1)).rows):
                await scheduler.tick()


@pytest.mark.row("S5")
async def test_a_thousand_schedules_on_one_minute_with_20_schedulers(
    store_url: str, store: Store, clock: MovableClock
) -> None:
    """Exactly a thousand jobs, one for each occurrence."""
    for start in range(0, MANY, 50):
        await asyncio.gather(*(put(store, f"s{n:04}", cron="* * * * *", tz="UTC") for n in range(start, start + 50)))
    stores = [connect(store_url, durability="normal", clock=clock) for _ in range(SCHEDULERS)]
    for each in stores:
        await each.open()
    await asyncio.gather(*(tick_until(Scheduler(each), each) for each in stores))
    for each in stores:
        await each.close()
    assert await store.count(Query.everything()) == {state: MANY if state is State.READY else 0 for state in State}
    for each_row in await store.schedules():
        (run,) = await store.schedule_runs(each_row.name)
        (opened,) = decode(each_row.doc).open
        assert (run.at, run.job) == (opened.at, opened.job) == (T0, opened.job)


@pytest.mark.row("S5")
async def test_five_schedulers_fire_a_thousand_occurrences_once(
    store_url: str, store: Store, clock: MovableClock
) -> None:
    """The history in the store has one run for each."""
    names, minutes = [f"s{n}" for n in range(20)], 50
    for name in names:
        await put(store, name, cron="* * * * *", misfire="all", overlap="queue")
    stores = [connect(store_url, durability="normal", clock=clock) for _ in range(5)]
    for each in stores:
        await each.open()
    schedulers = [Scheduler(each) for each in stores]
    hand = await Hand(store, tasks=[JOB.task]).join()
    for minute in range(minutes):
        at = T0 + minute * MINUTE
        clock.set(to_datetime(at - 5 * SECOND if minute % 7 == 6 else at))  # for some nobody looks in time
        await asyncio.gather(*(scheduler.tick() for scheduler in schedulers[: 1 + minute % 5]))
        if claims := await hand.take(50):
            await hand.succeed(*claims)
        schedulers[minute % 5].on_runs_ended(names)
    clock.advance("2m")
    await asyncio.gather(*(tick_until(scheduler, store) for scheduler in schedulers))
    stored = await read(store)
    due = tuple(T0 + minute * MINUTE for minute in range(minutes + 2))
    runs = {each.job: Promise(schedule=each.schedule) for each in stored.occurrences if each.job}
    for each in stores:
        await each.close()
    assert check(
        History(
            events=stored.events, listed=stored.listed, occurrences=stored.occurrences, promises=runs,
            rules=dict.fromkeys(names, RuleWindow(Cron("* * * * *"))), quiet=False,
        )
    ) == []  # fmt: skip
    assert len(stored.jobs) == len(runs) == 20 * len(due)


async def test_an_occurrence_becomes_a_job_and_its_end_is_recorded(store: Store, clock: MovableClock) -> None:
    await put(store)
    scheduler = Scheduler(store)
    assert await scheduler.tick() == 1.0
    assert await jobs(store) == 0
    clock.advance("59s")
    await scheduler.tick()
    clock.advance("700ms")
    assert await scheduler.tick() == pytest.approx(0.3)
    clock.advance("300ms")
    await scheduler.tick()
    hand = await Hand(store, tasks=[JOB.task]).join()
    claim = await hand.take_one()
    await hand.succeed(claim)
    await scheduler.tick()  # nobody has to look yet
    assert (await plan_of(store)).open != ()
    scheduler.on_runs_ended(["s", "no such thing"])
    await scheduler.tick()
    plan = await plan_of(store)
    assert (plan.open, plan.succeeded) == ((), clock.now_us())
    (record,) = await records(store)
    assert (record.what, record.state, record.ended) == ("fired", State.SUCCEEDED, clock.now_us())


async def test_a_check_that_finds_nothing_writes_nothing(store: Store, clock: MovableClock) -> None:
    """Also after a hint that came too early. An open run is written when its next check is due."""
    await put(store)
    clock.advance("1m")
    scheduler = Scheduler(store)
    await scheduler.tick()
    before = await store.schedules()
    for _ in range(3):
        scheduler.on_runs_ended(["s"])
        await scheduler.tick()
    assert await store.schedules() == before
    clock.advance("1s")
    await scheduler.tick()
    ((after,), (was,)) = await store.schedules(), before
    assert (after.doc, after.look) == (was.doc, clock.now_us() + SECOND)


async def test_missed_occurrences_are_reported(store: Store, clock: MovableClock) -> None:
    heard = Heard()
    await put(store, misfire="all", overlap="queue")
    clock.advance("3m31s")
    await Scheduler(store, on_news=heard).tick()
    assert heard == [("s", ScheduleNews("missed", "all", 3))]
    assert await what(store) == 3 * ["fired"]
    hand = await Hand(store, tasks=[JOB.task]).join()
    first_one = await hand.take_one()
    assert await hand.take(5) == ()  # one at a time
    await hand.succeed(first_one)
    assert len(await hand.take(5)) == 1


async def test_overlap_cancel_previous_cancels_the_run_after_the_next_one_is_stored(
    store: Store, clock: MovableClock
) -> None:
    await put(store, overlap="cancel_previous")
    scheduler = Scheduler(store)
    clock.advance("1m")
    await scheduler.tick()
    hand = await Hand(store, tasks=[JOB.task]).join()
    before = await hand.take_one()
    clock.advance("1m")
    await scheduler.tick()
    assert [order.id for order in (await hand.turn()).orders] == [before.id]
    after = (await plan_of(store)).open[-1].job
    assert (await row(store, after)).state is State.READY
    assert await hand.take(5) == ()  # not beside the other
    await hand.succeed(before)
    await hand.take_one()


async def test_a_forgotten_cancel_is_done_by_the_next_check(store: Store, clock: MovableClock) -> None:
    """The scheduler died right after the swap."""
    await put(store, overlap="cancel_previous")
    scheduler = Scheduler(store)
    clock.advance("1m")
    await scheduler.tick()
    (first_run,) = (await plan_of(store)).open
    made = trigger("s", await plan_of(store), clock.now_us(), {first_run.job: None}, raw_id, force=True)
    assert isinstance(made, ScheduleStep)
    made = trigger("s", await plan_of(store), clock.now_us(), {}, raw_id, force=True)
    assert isinstance(made, ScheduleStep)
    await asked(store, made)
    assert (await row(store, first_run.job)).state is State.READY
    clock.advance("1s")
    await scheduler.tick()
    assert (await row(store, first_run.job)).state is State.CANCELLED


async def test_a_scheduler_that_lost_the_race_cancels_nothing(store: Store, clock: MovableClock) -> None:
    await put(store, overlap="cancel_previous")
    scheduler = Scheduler(store)
    clock.advance("1m")
    await scheduler.tick()
    (first_run,) = (await plan_of(store)).open
    clock.advance("1m")

    class Late(Scheduler):
        async def _store_step(self, row: Any, plan: SchedulePlan, made: ScheduleStep, now: int) -> bool:
            off = replace(plan, enabled=False, off="operator")
            assert (await swap_row(store, row, ScheduleStep(off, None))).ok  # somebody disables it meanwhile
            return await super()._store_step(row, plan, made, now)

    await Late(store).tick()
    assert (await row(store, first_run.job)).state is State.READY
    assert await jobs(store) == 1


async def test_a_tick_without_due_schedules_is_one_read(store: Store, clock: MovableClock) -> None:
    """However many schedules there are. One due schedule costs a read and a swap."""
    for start in range(0, 300, 50):
        await asyncio.gather(*(put(store, f"s{n}", cron="0 3 * * *") for n in range(start, start + 50)))
    await put(store)
    calls = list[str]()
    scheduler = Scheduler(cast("Store", Counting(store, calls)))
    await scheduler.tick()  # the first one looks for what a clock that went back may have left
    assert calls == ["due_schedules", "schedules"]
    clock.advance("59s")
    calls.clear()
    await scheduler.tick()
    assert calls == ["due_schedules"]
    clock.advance("1s")
    await scheduler.tick()
    assert calls == ["due_schedules", "due_schedules", "swap_schedule"]
