"""S2, S3, S9, S10, B12: when schedules run, on a clock that the test moves."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from mainspring import Context, ScheduleEvent
from mainspring.testing.app import TestApp
from tests.rows.scheduling import MONDAY, minutes, staged, whats


@pytest.fixture
def t(store_url: str) -> Iterator[TestApp]:
    with staged(store_url) as t:
        yield t


def scheduled(t: TestApp, name: str = "work", **o: Any) -> list[str]:
    """A schedule whose runs leave their names."""
    ran: list[str] = []

    @t.app.schedule(name, **o)
    @t.app.task(name=f"tasks.{name}")
    async def work() -> None:
        ran.append(name)

    return ran


class TestInTime:
    @pytest.mark.row("S2")
    def test_an_interval_is_anchored_once(self, t: TestApp) -> None:
        ran = scheduled(t, every="10m")
        t.advance("1h")
        t.clock.advance("7s")  # somebody who looks late
        t.advance("30m")
        assert minutes(t, "work") == [10, 20, 30, 40, 50, 60, 70, 80, 90]
        assert len(ran) == 9
        assert t.schedules.next("work", 2) == [MONDAY + timedelta(minutes=m) for m in (100, 110)]

    @pytest.mark.row("S2")
    def test_a_thousand_occurrences_do_not_drift(self, t: TestApp) -> None:
        """The scheduler looks late each time. Each occurrence keeps its exact time, and so does the next."""
        ran = scheduled(t, every="7s", misfire="all", overlap="allow", history=2_000)
        t.advance("0s")
        for late in itertools.cycle((0.1, 611.7, 3.3, 690.2, 6.9)):
            if len(ran) >= 1_000:
                break
            t.clock.advance(f"{late}s")
            t.drain()
        runs = list(reversed(t.schedules.history("work", 2_000)))
        assert [run.at for run in runs] == [MONDAY + timedelta(seconds=7 * n) for n in range(1, len(runs) + 1)]
        assert {run.what for run in runs} == {"fired"}
        assert len(ran) == len({run.job for run in runs}) >= 1_000
        assert t.schedules.get("work").next == MONDAY + timedelta(seconds=7 * (len(runs) + 1))

    @pytest.mark.row("S2")
    @pytest.mark.option("schedule.immediate")
    def test_immediate_runs_at_once_and_then_after_each_interval(self, t: TestApp) -> None:
        scheduled(t, "now", every="10m", immediate=True)
        scheduled(t, "later", every="10m")
        t.advance("10m")
        assert (minutes(t, "now"), minutes(t, "later")) == ([0, 10], [10])

    @pytest.mark.row("S3")
    def test_a_schedule_runs_once_at_a_moment_or_after_a_delay(self, t: TestApp) -> None:
        scheduled(t, "at", at=MONDAY + timedelta(minutes=3))
        scheduled(t, "after", after="5m")
        t.advance("1d")
        assert (minutes(t, "at"), minutes(t, "after")) == ([3], [5])
        assert [t.schedules.get(name).next for name in ("at", "after")] == [None, None]

    @pytest.mark.row("B12")
    @pytest.mark.option("schedule.tz")
    def test_a_monthly_schedule_runs_twelve_times_in_a_year(self, t: TestApp) -> None:
        ran = scheduled(t, cron="0 3 1 * *", tz="Europe/Kyiv")
        t.advance("365d")
        assert len(ran) == 12
        runs = t.schedules.history("work")
        assert {run.at.hour for run in runs} == {0, 1}  # summer and winter, in UTC
        info = t.schedules.get("work")
        assert (info.tz, info.rule) == ("Europe/Kyiv", "at 03:00 on day 1 of the month (Europe/Kyiv)")

    @pytest.mark.row("S10")
    @pytest.mark.option("schedule.start", "schedule.end")
    def test_a_schedule_runs_only_between_start_and_end(self, t: TestApp) -> None:
        start, end = MONDAY + timedelta(minutes=20), MONDAY + timedelta(minutes=41)
        scheduled(t, every="10m", start=start, end=end)
        t.advance("2h")
        assert minutes(t, "work") == [20, 30, 40]
        assert (t.schedules.get("work").start, t.schedules.get("work").end) == (start, end)

    @pytest.mark.row("S10")
    @pytest.mark.option("schedule.jitter")
    def test_jitter_delays_each_run(self, t: TestApp) -> None:
        scheduled(t, every="1h", jitter="30m")
        t.advance("6h")
        starts = [run.started - run.at for run in t.schedules.history("work") if run.started is not None]
        assert len(starts) >= 5
        assert all(timedelta(0) <= each <= timedelta(minutes=30) for each in starts)
        assert len(set(starts)) > 1


@pytest.mark.row("S12")
def test_a_run_knows_the_time_of_its_occurrence(t: TestApp) -> None:
    """However late the run is, also in a backfill. Its record has the same time."""
    told: list[tuple[str | None, Any]] = []

    @t.app.schedule("work", every="10m", misfire="all", overlap="queue")
    @t.app.task(name="tasks.work")
    def work(ctx: Context) -> None:
        told.append((ctx.schedule, ctx.occurrence))

    t.advance("0s")
    t.clock.advance("25m")  # nobody is there
    t.drain()
    t.schedules.disable("work")
    t.clock.advance("20m")
    t.schedules.backfill("work", MONDAY, t.clock.now())
    t.schedules.trigger("work", force=True)
    work.enqueue()
    t.drain()
    runs = [run.at for run in reversed(t.schedules.history("work")) if run.job is not None]
    assert runs[:4] == [MONDAY + timedelta(minutes=m) for m in (10, 20, 30, 40)]
    assert [each for each in told if each[0]] == [("work", at) for at in runs]
    assert told.count((None, None)) == 1
    infos = [t.app.jobs.get(run.job).info() for run in t.schedules.history("work") if run.job is not None]
    assert [info.occurrence for info in reversed(infos)] == runs


@pytest.mark.row("S9")
@pytest.mark.option("schedule.misfire")
class TestMissed:
    def missed(self, t: TestApp, **o: Any) -> list[ScheduleEvent]:
        heard: list[ScheduleEvent] = []
        t.app.on("schedule_missed")(heard.append)
        scheduled(t, every="10m", **o)
        t.advance("0s")
        t.clock.advance("55m")  # nobody is there
        t.drain()
        return heard

    def test_misfire_skip_runs_no_missed_occurrence(self, t: TestApp) -> None:
        [event] = self.missed(t, misfire="skip")
        assert (event.schedule, event.note, event.count) == ("work", "skip", 5)
        assert whats(t, "work") == ["missed"] * 5
        assert t.schedules.get("work").next == MONDAY + timedelta(minutes=60)

    def test_misfire_once_runs_one_missed_occurrence(self, t: TestApp) -> None:
        [event] = self.missed(t, misfire="once")
        assert event.count == 5
        assert whats(t, "work") == ["missed"] * 4 + ["fired"]
        assert minutes(t, "work") == [50]

    def test_misfire_all_runs_every_missed_occurrence(self, t: TestApp) -> None:
        [event] = self.missed(t, misfire="all")
        assert event.count == 5
        assert minutes(t, "work") == [10, 20, 30, 40, 50]

    @pytest.mark.option("schedule.history")
    def test_misfire_all_has_a_cap_and_the_history_is_bounded(self, t: TestApp) -> None:
        ran = scheduled(t, every="1m", misfire="all", overlap="allow", history=150)
        t.advance("0s")
        t.clock.advance("4h")
        t.drain()
        assert len(ran) == 100
        assert minutes(t, "work") == list(range(141, 241))
        assert sum(run.count for run in t.schedules.history("work", 1_000) if run.what == "missed") == 140
        t.advance("100m")
        assert len(t.schedules.history("work", 1_000)) == 150

    def test_large_missed_runs_are_enqueued_as_far_as_they_fit(self, t: TestApp) -> None:
        """A store accepts 8 MB in one step. Occurrences beyond half of that are recorded as missed, and no run is
        rejected.
        """
        ran: list[int] = []

        @t.app.task(name="tasks.large")
        async def large(text: str) -> None:
            ran.append(len(text))

        t.app.schedule("work", every="10m", call=large.s("x" * 300_000), misfire="all", overlap="allow")
        t.advance("0s")
        t.clock.advance("301m")
        t.drain()
        assert ran == [300_000] * 13
        assert minutes(t, "work") == list(range(180, 301, 10))
        assert sum(run.count for run in t.schedules.history("work") if run.what == "missed") == 17

    def test_no_occurrence_is_missed_while_a_scheduler_runs(self, t: TestApp) -> None:
        heard: list[ScheduleEvent] = []
        t.app.on("schedule_missed")(heard.append)
        scheduled(t, every="10m")
        t.advance("1d")
        assert heard == []


@pytest.mark.row("S10")
@pytest.mark.option("schedule.overlap")
class TestOverlap:
    """Each run is kept from starting: its queue is paused while another occurrence comes."""

    def crowd(self, t: TestApp, **o: Any) -> list[str]:
        ran = scheduled(t, every="10m", **o)
        t.queues.pause("default")
        t.advance("30m")
        t.queues.resume("default")
        t.drain()
        return ran

    def test_overlap_skip_leaves_out_the_occurrence(self, t: TestApp) -> None:
        heard: list[ScheduleEvent] = []
        t.app.on("schedule_skipped")(heard.append)
        ran = self.crowd(t)
        assert whats(t, "work") == ["fired", "skipped", "skipped"]
        assert len(ran) == 1
        assert [event.schedule for event in heard] == ["work", "work"]
        assert "has not ended" in heard[0].note

    def test_overlap_queue_runs_the_occurrence_afterwards(self, t: TestApp) -> None:
        ran = self.crowd(t, overlap="queue")
        assert whats(t, "work") == ["fired"] * 3
        assert len(ran) == 3

    def test_overlap_cancel_previous_cancels_the_earlier_run(self, t: TestApp) -> None:
        ran = self.crowd(t, overlap="cancel_previous")
        states = [str(run.state) for run in reversed(t.schedules.history("work"))]
        assert states == ["cancelled", "cancelled", "succeeded"]
        assert len(ran) == 1

    @pytest.mark.parametrize(("overlap", "most"), [("queue", 1), ("allow", 3)])
    def test_each_overlap_allows_its_number_of_runs_at_once(self, t: TestApp, overlap: Any, most: int) -> None:
        running: list[int] = [0, 0]

        @t.app.schedule("work", every="10m", overlap=overlap)
        @t.app.task
        def work(ctx: Context) -> None:
            running[0] += 1
            running[1] = max(running)
            end = time.monotonic() + 20
            while running[0] < most and time.monotonic() < end:
                time.sleep(0.005)
            if most == 1:
                time.sleep(0.05)
            running[0] -= 1 if most == 1 else 0

        t.queues.pause("default")
        t.advance("30m")
        t.queues.resume("default")
        t.drain()
        assert running[1] == most
        assert [str(run.state) for run in t.schedules.history("work")] == ["succeeded"] * 3
