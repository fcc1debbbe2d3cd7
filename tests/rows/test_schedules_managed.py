"""S8, S11: schedules that are made, changed, asked for and run by hand, from any process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from mainspring import Context, Job, Key, Mainspring, NotTriggered, ScheduleEvent
from mainspring.client.blocking import run as blocking
from mainspring.errors import InvalidOption, NotFound, UnknownTask
from mainspring.schedules.records import ScheduleRow, ScheduleSwap
from mainspring.states import State
from mainspring.stores.door import Door
from mainspring.tasks.task import Task
from mainspring.testing.app import TestApp
from tests.rows.crew import until
from tests.rows.scheduling import MONDAY, minutes, staged, whats


@pytest.fixture
def t(store_url: str) -> Iterator[TestApp]:
    with staged(store_url) as t:
        yield t


@pytest.fixture
def report(t: TestApp) -> Task[..., str]:
    @t.app.task(name="shop.report", retries=0)
    def report(region: str = "eu") -> str:
        if region == "nowhere":
            raise ValueError("no such region")
        return region.upper()

    return report


def _overtaken(monkeypatch: pytest.MonkeyPatch, call: str, other: Callable[[], Awaitable[Any]]) -> None:
    """Another process changes the store right before the next such call."""
    usual = getattr(Door, call)

    async def late(door: Door, *args: Any) -> Any:
        monkeypatch.setattr(Door, call, usual)
        await other()
        return await usual(door, *args)

    monkeypatch.setattr(Door, call, late)


async def _stored_by_a_newer_version(t: TestApp, name: str) -> None:
    store = await t.app.client.store()
    [row] = await store.schedules([name])
    doc = row.doc.replace(b'"kind":"every"', b'"kind":"moon"')
    assert (await store.swap_schedule(ScheduleSwap(name=name, rev=row.rev, doc=doc, look=row.look))).ok


@pytest.mark.row("S8")
class TestPut:
    def test_put_creates_a_schedule(self, t: TestApp, report: Task[..., str]) -> None:
        info = t.schedules.put("night", report.s("us"), cron="30 2 * * *", tz="America/New_York")
        assert (info.owner, info.enabled, info.tz) == ("user", True, "America/New_York")
        assert info.rule == "at 02:30 every day (America/New_York)"
        assert info.next == datetime(2030, 1, 8, 7, 30, tzinfo=UTC)
        t.advance("1d")
        [run] = t.schedules.history("night")
        assert t.app.jobs.get(run.job or "").result() == "US"
        last = t.schedules.get("night").last
        assert last is not None
        assert (last.outcome, last.at, last.job) == ("succeeded", run.at, run.job)

    def test_put_with_another_definition_replaces_the_schedule(self, t: TestApp, report: Task[..., str]) -> None:
        t.schedules.put("often", report.s("us"), every="10m")
        t.advance("20m")
        t.schedules.put("often", report.s("asia"), every="30m")
        t.advance("1h")
        assert minutes(t, "often") == [10, 20, 50, 80]
        assert t.schedules.get("often").args == {"region": "asia"}
        assert len(t.schedules.list()) == 1

    def test_put_with_the_same_definition_changes_nothing(self, t: TestApp, report: Task[..., str]) -> None:
        t.schedules.put("often", report.s("us"), every="10m")
        t.advance("7m")
        t.schedules.put("often", report.s("us"), every="10m")
        t.advance("5m")
        assert minutes(t, "often") == [10]

    def test_put_leaves_a_schedule_disabled(self, t: TestApp, report: Task[..., str]) -> None:
        t.schedules.put("often", report, every="10m")
        t.schedules.disable("often", "too loud")
        info = t.schedules.put("often", "shop.report", every="5m")
        assert (info.enabled, info.off) == (False, "operator")
        assert "too loud" in info.note

    @pytest.mark.parametrize(
        ("name", "call", "options", "error", "says"),
        [
            ("x", "shop.reprot", {"every": "1h"}, UnknownTask, "did you mean 'shop.report'"),
            ("x", 7, {"every": "1h"}, InvalidOption, "neither a call nor a task"),
            ("x", "shop.report", {"every": "0s"}, InvalidOption, "greater than zero"),
            ("x", "shop.report", {}, InvalidOption, "says when it runs"),
            ("x", "shop.report", {"at": MONDAY - timedelta(1)}, InvalidOption, "at='2030-01-06 12:.*is in the past"),
            ("x", "shop.report", {"every": "1h", "depends_on": "nobody"}, InvalidOption, "not in the store"),
            ("x", "shop.report", {"every": "1h", "blocks": "nobody"}, InvalidOption, "not in the store"),
            ("x", "shop.report", {"every": "1h", "depends_on": "x"}, InvalidOption, "names the schedule itself"),
            ("x", "shop.report", {"every": "1h", "group": "nobody"}, InvalidOption, "is not declared"),
            ("code", "shop.report", {"every": "1h"}, InvalidOption, "the name of a schedule that the code declares"),
            ("a", "shop.report", {"every": "1h", "depends_on": "c"}, InvalidOption, "cycle: a -> c -> b -> a"),
        ],
    )
    @pytest.mark.stores("sqlite")
    def test_bad_definitions_are_refused(
        self, t: TestApp, report: Task[..., str], name: str, call: Any, options: Any, error: Any, says: str
    ) -> None:
        t.app.schedule("code", every="1h")(report)
        t.schedules.put("a", report, every="1h")
        t.schedules.put("b", report, every="1h", depends_on="a")
        t.schedules.put("c", report, every="1h", depends_on="b")
        before = t.schedules.list()
        with pytest.raises(error, match=says):
            t.schedules.put(name, call, **options)
        assert t.schedules.list() == before

    def test_delete_removes_the_schedule(self, t: TestApp, report: Task[..., str]) -> None:
        t.schedules.put("often", report, every="10m")
        t.advance("10m")
        t.schedules.delete("often")
        t.advance("1h")
        assert t.schedules.list() == []
        assert len(t.enqueued(report)) == 1
        with pytest.raises(NotFound, match="not in the store"):
            t.schedules.delete("often")
        t.schedules.put("often", report, every="10m")  # a new one, which knows nothing of the old
        assert t.schedules.history("often") == []

    def test_delete_refuses_schedules_of_the_code_and_dependencies_of_others(
        self, t: TestApp, report: Task[..., str]
    ) -> None:
        t.app.schedule("code", every="1h")(report)
        t.advance("0s")
        t.schedules.put("a", report, every="1h")
        t.schedules.put("b", report, every="1h", depends_on="a")
        with pytest.raises(InvalidOption, match="declared by the code"):
            t.schedules.delete("code")
        with pytest.raises(InvalidOption, match="dependency of other schedules: b"):
            t.schedules.delete("a")
        t.schedules.delete("b")
        t.schedules.delete("a")

    def test_unknown_names_are_refused_with_a_suggestion(self, t: TestApp, report: Task[..., str]) -> None:
        t.schedules.put("nightly", report, every="10m")
        verbs: list[Any] = [t.schedules.get, t.schedules.enable, t.schedules.disable, t.schedules.delete]
        verbs += [t.schedules.trigger, t.schedules.next, t.schedules.history]
        for verb in verbs:
            with pytest.raises(NotFound, match="did you mean 'nightly'"):
                verb("nigthly")

    def test_a_change_of_one_schedule_does_not_read_the_others(
        self, t: TestApp, report: Task[..., str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An app can have a schedule for each of many thousands of users."""
        asked: list[tuple[str, ...]] = []
        schedules = Door.schedules

        async def noted(door: Door, names: Sequence[str] = ()) -> list[ScheduleRow]:
            asked.append(tuple(names))
            return await schedules(door, names)

        monkeypatch.setattr(Door, "schedules", noted)
        t.schedules.put("ann", report, every="10m")
        t.schedules.put("ann", report, every="20m")
        t.schedules.disable("ann")
        t.schedules.enable("ann")
        t.schedules.trigger("ann")
        assert t.schedules.get("ann").waiting
        t.schedules.delete("ann")
        assert set(asked) == {("ann",)}
        t.schedules.list()
        assert asked[-1] == ()

    def test_a_value_that_is_not_a_schedule_name_is_refused(self, t: TestApp) -> None:
        for wrong in (None, 5, print, ["ann"]):
            with pytest.raises(InvalidOption, match="is neither the name of a schedule nor a task"):
                t.schedules.get(wrong)  # type: ignore[arg-type]

    def test_a_schedule_of_a_newer_version_does_not_disturb_the_others(
        self, t: TestApp, report: Task[..., str], caplog: pytest.LogCaptureFixture
    ) -> None:
        """During an upgrade of a fleet, old processes cannot read what new processes store."""
        t.schedules.put("lunar", report, every="10m")
        t.schedules.put("ann", report, every="10m")
        blocking("newer", _stored_by_a_newer_version(t, "lunar"))
        assert [info.name for info in t.schedules.list()] == ["ann"]
        assert "this version cannot read schedule 'lunar'" in caplog.text
        t.schedules.put("bob", report, every="10m", depends_on="ann", blocks="ann")
        t.schedules.delete("bob")
        t.schedules.disable("ann")
        for verb in (t.schedules.get, t.schedules.enable, t.schedules.delete, t.schedules.trigger, t.schedules.next):
            with pytest.raises(InvalidOption, match="upgrade this process"):
                verb("lunar")

    def test_two_concurrent_puts_make_no_circular_dependency(
        self, t: TestApp, report: Task[..., str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("x", "y"):
            t.schedules.put(name, report, every="10m")
        _overtaken(monkeypatch, "swap_schedule", lambda: t.schedules.aput("y", report, every="10m", depends_on="x"))
        with pytest.raises(InvalidOption, match="is a cycle"):
            t.schedules.put("x", report, every="10m", depends_on="y")
        assert [info.depends_on for info in t.schedules.list()] == [(), ("x",)]
        t.advance("10m")
        assert t.app.jobs.count()[State.SUCCEEDED] == 2

    def test_a_put_that_is_undone_does_not_start_the_schedule_again(
        self, t: TestApp, report: Task[..., str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The success that its last start has used stays used."""
        t.schedules.put("a", report, every="30d")
        for name in ("x", "y"):
            t.schedules.put(name, report, every="10m", depends_on="a")
        t.schedules.trigger("a")
        t.advance("10m")
        assert (whats(t, "x"), whats(t, "y")) == (["fired"], ["fired"])
        _overtaken(monkeypatch, "swap_schedule", lambda: t.schedules.aput("y", report, every="10m", depends_on="x"))
        with pytest.raises(InvalidOption, match="is a cycle"):
            t.schedules.put("x", report, every="10m", depends_on="y")
        assert t.schedules.get("x").depends_on == ("a",)
        t.advance("10m")
        assert whats(t, "x") == ["fired", "waiting"]

    def test_a_dependency_is_not_deleted_while_a_schedule_that_needs_it_is_put(
        self, t: TestApp, report: Task[..., str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        t.schedules.put("first", report, every="10m")
        _overtaken(monkeypatch, "swap_schedule", lambda: t.schedules.adelete("first"))
        with pytest.raises(InvalidOption, match="depends_on='first': is not in the store"):
            t.schedules.put("second", report, every="10m", depends_on="first")
        assert t.schedules.list() == []

    def test_a_dependency_of_a_schedule_that_was_just_put_is_not_deleted(
        self, t: TestApp, report: Task[..., str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        t.schedules.put("first", report, every="10m")
        second = partial(t.schedules.aput, "second", report, every="10m", depends_on="first")
        _overtaken(monkeypatch, "swap_schedule", second)
        with pytest.raises(InvalidOption, match="is a dependency of other schedules: second"):
            t.schedules.delete("first")
        t.advance("10m")
        assert t.app.jobs.count()[State.SUCCEEDED] == 2

    def test_status_by_name(self, t: TestApp, report: Task[..., str]) -> None:
        t.schedules.put("ann", report, every="10m")
        assert t.schedules.status()["ann"].name == "ann"
        with pytest.raises(KeyError, match="bob"):
            t.schedules.status()["bob"]


@pytest.mark.row("S8")
class TestEnableAndDisable:
    def test_occurrences_of_a_disabled_schedule_are_not_run_later(self, t: TestApp, report: Task[..., str]) -> None:
        heard: list[ScheduleEvent] = []
        t.app.on("schedule_disabled", "schedule_enabled")(heard.append)
        t.schedules.put("often", report, every="10m")
        t.advance("10m")
        info = t.schedules.disable("often", "holidays")
        assert (info.enabled, info.off, info.note, info.next) == (
            False,
            "operator",
            "an operator disabled it: holidays",
            None,
        )
        t.schedules.disable("often", "holidays")
        t.advance("1h")
        assert t.schedules.enable("often").next == MONDAY + timedelta(minutes=80)
        t.schedules.enable("often")
        t.advance("10m")
        assert minutes(t, "often") == [10, 80]
        until(lambda: len(heard) == 2)
        assert [(event.name, event.note) for event in heard] == [
            ("schedule_disabled", "holidays"),
            ("schedule_enabled", ""),
        ]

    @pytest.mark.asyncio
    async def test_the_async_methods_of_schedules(self, t: TestApp, report: Task[..., str]) -> None:
        schedules = t.app.schedules
        await schedules.aput("often", report, every="10m")
        await t.aadvance("10m")
        assert [info.name for info in await schedules.alist()] == ["often"]
        assert not (await schedules.adisable("often")).enabled
        assert (await schedules.aenable("often")).enabled
        assert (await (await schedules.atrigger("often")).ainfo()).schedule == "often"
        assert len(await schedules.anext("often", 3)) == 3
        assert len(await schedules.ahistory("often")) == 2
        assert len((await schedules.astatus()).schedules) == 1
        assert (await schedules.abackfill("often", MONDAY, MONDAY + timedelta(minutes=15))) == []
        await t.adrain()
        await schedules.adelete("often")
        assert await schedules.adeclare() == ((), (), (), (), ())


@pytest.mark.row("S11")
class TestTrigger:
    def test_trigger_returns_the_job(self, t: TestApp, report: Task[..., str]) -> None:
        t.app.schedule("code", cron="0 3 * * *")(report)
        t.advance("0s")
        job: Job[Any] = t.schedules.trigger(report)
        assert job.info().schedule == "code"
        t.drain()
        assert job.result() == "EU"
        [run] = t.schedules.history("code")
        assert (run.what, run.job, run.state) == ("triggered", job.id, "succeeded")
        assert t.schedules.get("code").next == datetime(2030, 1, 8, 3, tzinfo=UTC)

    @pytest.mark.option("schedule.mode")
    def test_a_trigger_at_the_time_of_an_occurrence_has_its_own_record(
        self, t: TestApp, report: Task[..., str]
    ) -> None:
        t.schedules.put("often", report, every="10m", overlap="queue")
        t.schedules.put("hand", report, mode="triggered")
        t.clock.advance("10m")
        for _ in range(3):
            t.schedules.trigger("often")
            t.schedules.trigger("hand")
            t.drain()
        assert sorted(whats(t, "often")) == ["fired", "triggered", "triggered", "triggered"]
        assert whats(t, "hand") == ["triggered"] * 3
        t.advance("1d")
        assert len(whats(t, "hand")) == 3  # never on a timer

    def test_a_trigger_obeys_overlap_and_names_the_open_run(self, t: TestApp, report: Task[..., str]) -> None:
        t.schedules.put("often", report, every="10m")
        first = t.schedules.trigger("often")
        with pytest.raises(NotTriggered, match="has not ended") as refused:
            t.schedules.trigger("often")
        assert (refused.value.schedule, refused.value.job) == ("often", first.id)
        forced = t.schedules.trigger("often", force=True)
        t.drain()
        assert [job.info().state for job in (first, forced)] == ["succeeded"] * 2

    def test_a_trigger_of_a_disabled_schedule_is_refused(self, t: TestApp, report: Task[..., str]) -> None:
        t.schedules.put("often", report, every="10m")
        t.schedules.disable("often", "holidays")
        with pytest.raises(NotTriggered, match="it is disabled: holidays") as refused:
            t.schedules.trigger("often")
        assert "force=True" in refused.value.hint
        t.schedules.trigger("often", force=True)
        t.drain()
        assert whats(t, "often") == ["triggered"]

    def test_a_trigger_obeys_queues_and_keys(self, t: TestApp, report: Task[..., str]) -> None:
        t.schedules.put("drained", report, mode="triggered", queue="old")
        t.queues.drain("old", create=True)
        with pytest.raises(NotTriggered, match="drain"):
            t.schedules.trigger("drained")
        keyed = report.options(key=Key("one"))
        holder = keyed.enqueue("eu")
        t.schedules.put("keyed", keyed.s("eu"), mode="triggered")
        with pytest.raises(NotTriggered, match="unique key") as refused:
            t.schedules.trigger("keyed")
        assert refused.value.job == holder.id
        t.drain()
        assert t.schedules.trigger("keyed").created

    def test_a_trigger_from_a_process_that_does_not_know_the_task(
        self, t: TestApp, report: Task[..., str], store_url: str
    ) -> None:
        t.schedules.put("often", report, every="10m")
        other = Mainspring("sqlite://")
        with other.test(url=store_url, start=MONDAY) as elsewhere:
            job = elsewhere.schedules.trigger("often")
            assert elsewhere.schedules.get("often").task == "shop.report"
        t.drain()
        assert t.app.jobs.get(job.id).result() == "EU"


@pytest.mark.row("S8")
class TestBackfill:
    def test_backfill_runs_occurrences_without_a_run(self, t: TestApp, report: Task[..., str]) -> None:
        t.schedules.put("hourly", report, cron="0 * * * *")
        t.advance("2h")
        jobs = t.schedules.backfill("hourly", MONDAY - timedelta(hours=3), MONDAY + timedelta(hours=9))
        assert len(jobs) == 3  # nine to eleven: twelve to two ran, and the rest is to come
        t.drain()
        assert {job.info().state.value for job in jobs} == {"succeeded"}
        assert minutes(t, "hourly") == [-180, -120, -60, 0, 60, 120]
        assert t.schedules.backfill("hourly", MONDAY - timedelta(hours=3), MONDAY) == []

    @pytest.mark.row("S5")
    def test_an_occurrence_that_was_backfilled_before_the_scheduler_saw_it_runs_once(
        self, t: TestApp, report: Task[..., str]
    ) -> None:
        t.schedules.put("hourly", report, every="1h", overlap="queue")
        t.clock.advance("3h30m")
        t.queues.pause("default")
        assert len(t.schedules.backfill("hourly", MONDAY, MONDAY + timedelta(hours=4))) == 3
        t.drain()  # a scheduler finds that it missed them
        assert whats(t, "hourly") == ["backfilled"] * 3
        assert t.schedules.backfill("hourly", MONDAY, MONDAY + timedelta(hours=4)) == []
        t.queues.resume("default")
        t.drain()
        assert t.app.jobs.count().total == 3

    def test_a_backfill_of_occurrences_beyond_the_history_is_refused(self, t: TestApp, report: Task[..., str]) -> None:
        """Otherwise an occurrence that was run or backfilled long ago could run again."""
        before = MONDAY - timedelta(hours=3)
        t.schedules.put("hourly", report, cron="0 * * * *", history=5, overlap="queue")
        assert len(t.schedules.backfill("hourly", before, MONDAY)) == 3
        t.advance("3h")
        assert minutes(t, "hourly") == [-60, 0, 60, 120, 180]
        for start, end in ((before, MONDAY), (before, before + timedelta(hours=2))):
            with pytest.raises(InvalidOption, match="the history of earlier occurrences is gone") as refused:
                t.schedules.backfill("hourly", start, end)
            assert "history=" in refused.value.hint
        t.schedules.put("hourly", report, cron="0 * * * *", history=50, overlap="queue")  # what is forgotten stays so
        with pytest.raises(InvalidOption, match="is before 2030-01-07 11:00"):
            t.schedules.backfill("hourly", before, MONDAY)
        assert t.schedules.backfill("hourly", MONDAY - timedelta(hours=1), MONDAY + timedelta(hours=9)) == []
        t.drain()
        assert len(t.enqueued(report)) == 7

    def test_a_backfill_of_large_runs_takes_several_steps(self, t: TestApp, report: Task[..., str]) -> None:
        """The runs exceed what a store accepts in one step, and all of them are made."""
        t.schedules.put("hourly", report.s("x" * 300_000), cron="0 * * * *", overlap="allow")
        jobs = t.schedules.backfill("hourly", MONDAY - timedelta(hours=30), MONDAY)
        assert len({job.id for job in jobs}) == 30
        t.drain()
        assert minutes(t, "hourly") == list(range(-1800, 1, 60))  # and the one that is due now
        assert {info.state for info in t.enqueued(report)} == {"succeeded"}

    def test_a_backfill_larger_than_the_history_is_refused(self, t: TestApp, report: Task[..., str]) -> None:
        t.schedules.put("hourly", report, cron="0 * * * *", history=5)
        with pytest.raises(InvalidOption, match="the schedule keeps the 5 latest"):
            t.schedules.backfill("hourly", MONDAY - timedelta(hours=6), MONDAY)
        assert t.enqueued(report) == []
        t.schedules.put("hourly", report, cron="0 * * * *", history=6)
        assert len(t.schedules.backfill("hourly", MONDAY - timedelta(hours=6), MONDAY)) == 6

    def test_a_bad_range_of_a_backfill_is_refused(self, t: TestApp, report: Task[..., str]) -> None:
        t.schedules.put("hourly", report, cron="0 * * * *")
        t.schedules.put("hand", report, mode="triggered")
        with pytest.raises(InvalidOption, match="240 occurrences"):
            t.schedules.backfill("hourly", MONDAY - timedelta(10), MONDAY)
        with pytest.raises(InvalidOption, match="not later than start"):
            t.schedules.backfill("hourly", MONDAY, MONDAY)
        with pytest.raises(InvalidOption, match="'triggered'"):
            t.schedules.backfill("hand", MONDAY, MONDAY + timedelta(1))


@pytest.mark.row("S8")
def test_changes_are_effective_at_once_in_a_running_fleet(app: Mainspring) -> None:
    """Schedules are declared, changed and deleted while a worker runs."""
    ran: list[str] = []

    @app.task(name="shop.work")
    def work(ctx: Context, what: str = "") -> None:
        ran.append(what)

    with app.worker():
        app.schedules.put("often", work.s("one"), every="100ms")
        until(lambda: ran.count("one") >= 2)
        app.schedules.put("often", work.s("two"), every="100ms")
        until(lambda: ran.count("two") >= 2)
        app.schedules.disable("often")
        until(lambda: not app.schedules.get("often").running and not app.schedules.get("often").waiting)
        made = app.jobs.count().total
        app.schedules.put("end", work.s("end"), after="100ms")
        until(lambda: "end" in ran)
        assert app.jobs.count().total == made + 1
        app.schedules.delete("often")
    assert [info.name for info in app.schedules.list()] == ["end"]
