"""What a scheduler does when the store does not take its jobs, or it cannot read a row: others go on."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mainspring.common.clock import MovableClock
from mainspring.common.ids import raw_id
from mainspring.errors import StoreConflict
from mainspring.jobs.records import JobBatch, UniqueKey
from mainspring.queues.records import DisabledMode, QueueMode, QueueSettings
from mainspring.schedules.plan import ScheduleNews, ScheduleStep, backfill, new_plan, trigger
from mainspring.schedules.records import ScheduleSwap
from mainspring.schedules.rules import Cron, RuleWindow
from mainspring.schedules.service import Scheduler
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import Hand, job, one
from tests.schedules.scheduled import Heard, asked, jobs, plan_of, put, records, what
from tests.unit.schedule_samples import JOB, MINUTE, SECOND, T0, definition


@pytest.mark.parametrize("how", ["draining", "disabled", "full", "taken"])
async def test_a_refused_job_is_recorded(store: Store, clock: MovableClock, how: str) -> None:
    heard, template = Heard(), JOB
    match how:
        case "draining":
            await store.set_queue_mode(["q"], QueueMode.DRAINING)
        case "disabled":
            await store.disable_queues(["q"], DisabledMode.REJECT)
        case "full":
            await store.configure_queue("q", QueueSettings(max_depth=1))
            await one(store)
        case _:
            await one(store, job(unique=UniqueKey(b"k" * 16)))
            template = replace(JOB, unique=UniqueKey(b"k" * 16, conflict="error"))
    there = await jobs(store)
    await put(store, job=template)
    await put(store, "other", job=replace(JOB, queue="other"))
    clock.advance("1m")
    await Scheduler(store, on_news=heard).tick()
    assert await jobs(store) == there + 1  # that of the other
    (record,) = await records(store)
    assert record.what == "rejected"
    assert record.note
    assert heard == [("s", ScheduleNews("skipped", record.note, 1))]
    plan = await plan_of(store)
    assert (plan.open, plan.due) == ((), T0 + 2 * MINUTE)


async def test_an_occurrence_waits_while_its_queue_is_full(store: Store, clock: MovableClock) -> None:
    """Schedules that wait for a full queue do not delay the others, however many they are."""
    await store.configure_queue("q", QueueSettings(max_depth=1, on_full="wait"))
    blocker = await one(store)
    waiting = [f"s{n:03}" for n in range(250)]
    for name in waiting:
        await put(store, name)
    await put(store, "z", job=replace(JOB, queue="other"), every=MINUTE + 1)
    clock.advance("1m1s")
    scheduler = Scheduler(store)
    for _ in range(3):
        await scheduler.tick()
    assert await what(store, "z") == ["fired"]
    assert await what(store, waiting[0]) == []
    assert (await store.due_schedules(1)).rows == ()
    hand = await Hand(store).join()
    assert (await hand.take_one()).id == blocker.id
    clock.advance("1s")
    await scheduler.tick()
    fired = [name for name in waiting if await what(store, name) == ["fired"]]
    assert len(fired) == 1


async def test_an_occurrence_whose_key_another_job_holds_is_skipped(store: Store, clock: MovableClock) -> None:
    heard, unique = Heard(), UniqueKey(b"k" * 16)
    await one(store, job(unique=unique))
    await put(store, job=replace(JOB, unique=unique))
    clock.advance("1m")
    await Scheduler(store, on_news=heard).tick()
    (record,) = await records(store)
    assert record.what == "skipped"
    assert "unique key" in record.note
    assert ((await plan_of(store)).open, await jobs(store), len(heard)) == ((), 1, 1)


async def test_a_run_whose_job_was_never_made_ends(store: Store, clock: MovableClock) -> None:
    """The process died before it recorded that. The next check finds that there is no such job."""
    unique = UniqueKey(b"k" * 16)
    await one(store, job(unique=unique))
    await put(store, job=replace(JOB, unique=unique))
    clock.advance("1m")

    class Dies(Scheduler):
        def _publish(self, *_: Any) -> None:
            raise RuntimeError("dead")

    with pytest.raises(RuntimeError):
        await Dies(store, on_news=Heard()).tick()
    assert len((await plan_of(store)).open) == 1
    clock.advance("1s")
    await Scheduler(store).tick()
    (record,) = await records(store)
    assert ((await plan_of(store)).open, record.state) == ((), None)
    assert "deleted before a scheduler saw its end" in record.note


async def test_a_conflict_that_passes_loses_no_occurrence(store: Store, clock: MovableClock) -> None:
    """A conflict that remains is recorded after three tries."""
    await put(store)
    clock.advance("1m")
    scheduler = Scheduler(store)
    real, left = store.swap_schedule, 2

    async def swap(asked: ScheduleSwap, batch: JobBatch | None = None) -> Any:
        nonlocal left
        if batch is not None and left:
            left -= 1
            raise StoreConflict("somebody else changed the same rows")
        return await real(asked, batch)

    store.swap_schedule = swap  # type: ignore[method-assign, assignment]
    for _ in range(3):
        await scheduler.tick()
    assert await what(store) == ["fired"]
    left = 3
    await (await Hand(store, tasks=[JOB.task]).join()).take_one()
    await put(store, "t", every=MINUTE + 1)
    clock.advance("1s")
    for _ in range(3):
        await scheduler.tick()
    assert await what(store, "t") == ["rejected"]


async def test_an_occurrence_that_was_backfilled_does_not_stop_its_schedule(store: Store, clock: MovableClock) -> None:
    """A backfill ran the due occurrence before the scheduler saw it."""
    await put(store, overlap="queue", misfire="all")
    clock.advance("2m")
    made = backfill("s", await plan_of(store), clock.now_us(), [T0 + MINUTE], raw_id)
    assert isinstance(made, ScheduleStep)
    await asked(store, made)
    await Scheduler(store).tick()
    assert await what(store) == ["backfilled", "fired"]
    assert (await jobs(store), (await plan_of(store)).due) == (2, T0 + 3 * MINUTE)


async def test_a_trigger_at_the_time_of_an_occurrence_makes_a_second_run(store: Store, clock: MovableClock) -> None:
    """The clock stands at that microsecond."""
    await put(store, overlap="allow", cron="* * * * *")
    made = trigger("s", await plan_of(store), clock.now_us(), {}, raw_id)
    assert isinstance(made, ScheduleStep)
    await asked(store, made)
    await Scheduler(store).tick()
    assert sorted(await what(store)) == ["fired", "triggered"]


async def test_unreadable_rows_are_left_alone(
    store: Store, clock: MovableClock, caplog: pytest.LogCaptureFixture
) -> None:
    """However many: newer code may have stored them. The other schedules fire."""
    for n in range(250):
        await store.swap_schedule(ScheduleSwap(name=f"new{n:03}", rev=0, doc=b'{"of": "tomorrow"}', look=T0))
    odd = new_plan(definition(cron="0 3 * * *"), T0)
    odd = replace(odd, due=T0, rule=RuleWindow(Cron("0 3 * * *", "Mars/Olympus")))
    await put(store, "mars", odd)
    await put(store, every=SECOND)
    clock.advance("1s")
    before = {row.name: row for row in await store.schedules()}
    scheduler = Scheduler(store)
    pauses = [await scheduler.tick() for _ in range(4)]
    assert await what(store) == ["fired"]
    assert pauses[-1] > 0
    after = {row.name: row for row in await store.schedules()}
    assert {name for name in after if after[name] != before[name]} == {"s"}
    told = [record.getMessage() for record in caplog.records if "cannot run schedule" in record.getMessage()]
    assert len(told) == 251
