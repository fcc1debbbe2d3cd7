"""Schedules while the clock goes back, and replies that are lost."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.common.clock import MovableClock, to_datetime
from mainspring.common.ids import raw_id
from mainspring.jobs.records import JobBatch
from mainspring.schedules.plan import ScheduleStep, decode, trigger
from mainspring.schedules.records import ScheduleSwap
from mainspring.schedules.service import Scheduler
from mainspring.schedules.swap import swap_row
from mainspring.stores.base import Store
from mainspring.stores.connect import connect
from mainspring.testing.contract.hands import Hand
from tests.schedules.scheduled import jobs, plan_of, put, what
from tests.unit.schedule_samples import HOUR, JOB, SECOND, T0


@pytest.mark.row("O1")
async def test_schedules_on_a_clock_that_went_back(store_url: str, store: Store, clock: MovableClock) -> None:
    """Fired occurrences do not fire again, continuous schedules run on, and ends of runs are seen."""
    await put(store)
    await put(store, "c", mode="continuous", min_pause=5 * SECOND)
    await put(store, "r", mode="triggered")
    (r_row,) = await store.schedules(["r"])
    made = trigger("r", decode(r_row.doc), clock.now_us(), {}, raw_id)
    assert isinstance(made, ScheduleStep)
    assert (await swap_row(store, r_row, made)).ok
    clock.advance("1m")
    await Scheduler(store).tick()
    assert (await what(store), await what(store, "c")) == (["fired"], ["fired"])
    hand = await Hand(store, tasks=[JOB.task]).join()
    await hand.succeed(*await hand.take(3))
    clock.set(to_datetime(T0 - HOUR))
    assert (await store.due_schedules()).rows == ()
    restart = connect(store_url, durability="normal", clock=clock)
    await restart.open()
    scheduler = Scheduler(restart)
    await scheduler.tick()
    assert (await plan_of(store, "r")).open == ()
    clock.advance("5s")
    await scheduler.tick()
    await restart.close()
    assert await what(store, "c") == ["fired", "fired"]
    assert await what(store) == ["fired"]


@pytest.mark.row("O1")
async def test_a_clock_that_goes_back_during_a_check_keeps_the_pause(
    store: Store, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or stands still, as the clock of SQLite does then."""
    own = 100.0
    monkeypatch.setattr("mainspring.schedules.store_time.boottime", lambda: own)
    await put(store, "c", mode="continuous", min_pause=5 * SECOND)
    scheduler = Scheduler(store)
    await scheduler.tick()
    hand = await Hand(store, tasks=[JOB.task]).join()
    await hand.succeed(await hand.take_one())
    scheduler.on_runs_ended(["c"])
    await scheduler.tick()
    clock.set(to_datetime(T0 - HOUR))
    for _ in range(5):
        await scheduler.tick()
        assert await what(store, "c") == ["fired"]
        clock.advance("990ms")
        own += 0.99
    for _ in range(12):
        await scheduler.tick()
        clock.advance("1s")
        own += 1
    assert await what(store, "c") == ["fired", "fired"]


async def test_a_lost_reply_makes_no_second_job(store: Store, clock: MovableClock) -> None:
    await put(store)
    clock.advance("1m")
    real = store.swap_schedule

    async def swap(asked: ScheduleSwap, batch: JobBatch | None = None) -> Any:
        await real(asked, batch)
        return await real(asked, batch)  # the first reply never came

    store.swap_schedule = swap  # type: ignore[method-assign, assignment]
    await Scheduler(store).tick()
    assert (await jobs(store), await what(store)) == (1, ["fired"])
