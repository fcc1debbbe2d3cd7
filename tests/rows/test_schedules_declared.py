"""S6, S12: schedules are declared on tasks and functions, found by include, and refused with the fix."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from mainspring import Context, Mainspring, Tasks
from mainspring.errors import InvalidOption, UnknownOption, UnknownTask
from mainspring.testing.app import TestApp
from tests.rows.scheduling import MONDAY, minutes, staged


@pytest.fixture
def t(store_url: str) -> Iterator[TestApp]:
    with staged(store_url) as t:
        yield t


@pytest.fixture
def bare() -> Mainspring:
    return Mainspring("sqlite://")


@pytest.mark.row("S6")
class TestDiscovery:
    def test_a_schedule_is_declared_on_a_task_or_a_function(self, t: TestApp) -> None:
        ran: list[str] = []

        @t.app.schedule(every="10m")
        @t.app.task(name="shop.clean")
        def clean() -> None:
            ran.append("clean")

        @t.app.schedule("pinged", every="10m")
        async def ping() -> None:
            ran.append("ping")

        t.advance("10m")
        assert sorted(ran) == ["clean", "ping"]
        assert [(info.name, info.owner) for info in t.schedules.list()] == [("pinged", "code"), ("shop.clean", "code")]
        clean()
        assert ran.count("clean") == 2  # still a plain function

    @pytest.mark.stores("sqlite")
    def test_schedules_of_included_modules_are_found(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store_url: str
    ) -> None:
        (tmp_path / "cellar.py").write_text(
            "from mainspring import Tasks\n"
            "tasks = Tasks()\n"
            "@tasks.schedule('cellar', every='1h')\n"
            "@tasks.task\n"
            "def wine() -> str: return 'red'\n"
            "from attic import app\n"
            "app.include(tasks)\n"
        )
        (tmp_path / "attic.py").write_text("from mainspring import Mainspring\napp = Mainspring(include=['cellar'])\n")
        monkeypatch.syspath_prepend(tmp_path)
        app: Mainspring = importlib.import_module("attic").app
        assert app.tasks.scheduled == {}
        with app.test(url=store_url) as t:
            t.advance("2h")
            assert [run.state for run in t.schedules.history("cellar")] == ["succeeded"] * 2

    def test_a_library_can_be_included_before_or_after_it_declares(self, t: TestApp) -> None:
        library = Tasks()
        ran: list[int] = []

        @library.schedule("one", every="10m")
        @library.task(name="lib.one")
        def one() -> None:
            ran.append(1)

        t.app.include(library)

        @library.schedule("two", every="10m")
        @library.task(name="lib.two")
        def two() -> None:
            ran.append(2)

        t.advance("10m")
        assert sorted(ran) == [1, 2]

    @pytest.mark.stores("sqlite")
    def test_a_schedule_name_is_used_once(self, bare: Mainspring, store_name: str) -> None:
        @bare.schedule("nightly", cron="0 3 * * *")
        def one() -> None: ...

        with pytest.raises(InvalidOption, match=r"'nightly'.*already the name of a schedule of task.*one"):

            @bare.schedule("nightly", cron="0 4 * * *")
            def two() -> None: ...

        with pytest.raises(InvalidOption, match="already the name of a schedule"):
            bare.schedule("nightly", every="1h")(one)

    @pytest.mark.stores("sqlite")
    def test_a_module_that_is_run_twice_declares_its_schedules_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store_name: str
    ) -> None:
        (tmp_path / "loft_app.py").write_text("from mainspring import Mainspring\napp = Mainspring('sqlite://')\n")
        loft = "from loft_app import app\n@app.schedule('nightly', cron='0 {} * * *')\n@app.task\ndef work(): ...\n"
        (tmp_path / "loft.py").write_text(loft.format(3))
        monkeypatch.syspath_prepend(tmp_path)
        module = importlib.import_module("loft")
        (tmp_path / "loft.py").write_text(loft.format(11))
        importlib.reload(module)
        assert [each.rule.rule.expression for each in module.app.tasks.scheduled.values()] == ["0 11 * * *"]


Declare = Callable[[Mainspring], Any]


def nothing() -> None: ...


def needy(a: int, b: int = 1) -> None: ...


@pytest.mark.row("S6")
@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda app: app.schedule("x", cron="61 * * * *")(nothing), "61"),
        (lambda app: app.schedule("x", cron="0 0 31 2 *")(nothing), "cron="),
        (lambda app: app.schedule("x", cron="0 3 * * *", tz="Europe/Kiew")(nothing), "Europe/Kiew"),
        (lambda app: app.schedule("x", every=0)(nothing), "every=0: must be greater than zero.*every="),
        (lambda app: app.schedule("x", every="-1s")(nothing), "every"),
        (lambda app: app.schedule("x")(nothing), "has no rule that says when it runs.*triggered"),
        (lambda app: app.schedule("x", cron="0 3 * * *", every="1h")(nothing), "cannot be combined with"),
        (lambda app: app.schedule("x", at=datetime(2030, 1, 1))(nothing), "no time zone"),  # noqa: DTZ001 - refused
        (lambda app: app.schedule("a b", every="1h")(nothing), "not a schedule name"),
        (lambda app: app.schedule("a=b", every="1h")(nothing), "not a schedule name"),
        (lambda app: app.schedule("x", every="1h", mode="triggered")(nothing), "works with mode='scheduled' only"),
        (lambda app: app.schedule("x", mode="continuous", jitter="1s")(nothing), "works with mode='scheduled' only"),
        (lambda app: app.schedule("x", every="1h", min_pause="1s")(nothing), "works with mode='continuous' only"),
        (lambda app: app.schedule("x", mode="continuous", overlap="allow")(nothing), "one run at a time"),
        (lambda app: app.schedule("x", every="1h", tz="UTC")(nothing), "works with cron= only"),
        (lambda app: app.schedule("x", cron="0 3 * * *", immediate=True)(nothing), "works with every= only"),
        (lambda app: app.schedule("x", every="1m", jitter="2m")(nothing), "longer than the interval"),
        (lambda app: app.schedule("x", every="1h", misfire="all", overlap="cancel_previous")(nothing), "misfire"),
        (lambda app: app.schedule("x", every="1h", max_failures=-1)(nothing), "whole number from 0"),
        (lambda app: app.schedule("x", every="1h", max_failures=0, reenable_after="1h")(nothing), "no effect"),
        (lambda app: app.schedule("x", every="1h", history=0)(nothing), "whole number from 1"),
        (lambda app: app.schedule("x", every="1h", overlap="never")(nothing), "must be 'skip' or"),
        (lambda app: app.schedule("x", every="1h", depends_on="x")(nothing), "names the schedule itself"),
        (lambda app: app.schedule("x", every="1h", blocks=["x"])(nothing), "names the schedule itself.*overlap="),
        (
            lambda app: app.schedule("x", every="1h", depends_on=[7])(nothing),
            "neither the name of a schedule nor a task",
        ),
        (lambda app: app.schedule("x", every="1h")(needy), "needs arguments: a.*call="),
        (lambda app: app.schedule(nothing), "with parentheses"),
        (lambda app: app.schedule("x", every="1h", call="nothing"), "is not a call"),
        (lambda app: app.schedule("x", every="1h", call=Mainspring().task(nothing).s()), "a call of another app"),
        (lambda app: app.schedule("x", every="1h", call=app.task(nothing).options(delay="1s").s()), "delay"),
        (lambda app: app.schedules.group("g", max_concurrent=0), "max_concurrent=0"),
        (lambda app: [app.schedules.group("g", max_concurrent=n) for n in (1, 2)], "in the first declaration"),
    ],
)
@pytest.mark.stores("sqlite")
def test_bad_declarations_are_refused_at_once(bare: Mainspring, store_name: str, declare: Declare, says: str) -> None:
    with pytest.raises(InvalidOption, match=f"(?s){says}"):
        declare(bare)


def chained(app: Mainspring, *pairs: tuple[str, str]) -> None:
    for name, other in pairs:
        app.schedule(name, every="1h", depends_on=other)(app.task(name=name)(lambda: None))


@pytest.mark.row("S6", "O2")
@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda app: chained(app, ("a", "b")), "depends_on='b': is not the name of a schedule"),
        (
            lambda app: chained(app, ("a", "b"), ("b", "c"), ("c", "a")),
            "schedule 'a': depends_on='b': is a cycle: a -> b -> c -> a.*remove one",
        ),
        (lambda app: app.schedule("x", every="1h", blocks="y")(nothing), "blocks='y': is not the name of a schedule"),
        (lambda app: app.schedule("x", every="1h", group="g")(nothing), "group='g': is not declared.*max_concurrent="),
        (lambda app: app.schedule("x", every="1h", depends_on=app.task(name="y")(needy))(nothing), "has no schedule"),
        (lambda app: app.schedule("x", every="1h", call=app.call("nobody.knows")), "'nobody.knows' is not known"),
    ],
)
@pytest.mark.stores("sqlite")
def test_declarations_that_do_not_fit_together_are_refused_at_the_start(
    bare: Mainspring, store_name: str, declare: Declare, says: str
) -> None:
    """Checked when every module is imported: by a worker, by a test app, and by ``app.parts``."""
    declare(bare)
    for start in (bare.parts, lambda: bare.test().__enter__()):
        with pytest.raises((InvalidOption, UnknownTask), match=f"(?s){says}"):
            start()


@pytest.mark.row("S6")
@pytest.mark.stores("sqlite")
def test_unknown_options_are_refused(bare: Mainspring, store_name: str) -> None:
    anything: Any = bare.schedule
    with pytest.raises(UnknownOption, match=r"'overlaps' does not exist; did you mean 'overlap'"):
        anything("x", every="1h", overlaps="skip")(nothing)
    with pytest.raises(UnknownOption, match=r"(?s)'limit'.*@app.task"):
        anything("x", every="1h", limit=1)(nothing)
    with pytest.raises(UnknownOption, match=r"(?s)'misfire'.*@app.schedule"):
        bare.task(misfire="all")(nothing)  # type: ignore[call-overload]


@pytest.mark.row("S12")
class TestOptionsOfEachSchedule:
    def test_each_schedule_has_its_own_arguments(self, t: TestApp) -> None:
        """Several schedules on one task."""
        ran: list[str] = []

        @t.app.task(name="shop.report")
        def report(region: str, *, full: bool = False) -> None:
            ran.append(f"{region} {full}")

        t.app.schedule("eu", every="10m", call=report.s("eu"))
        t.app.schedule("us", every="20m", call=report.s("us", full=True))(report)
        t.advance("20m")
        assert sorted(ran) == ["eu False", "eu False", "us True"]
        assert t.schedules.get("us").args == {"region": "us", "full": True}
        job = report.enqueue("asia")  # of none of them
        assert job.info().schedule is None

    @pytest.mark.option("schedule.queue", "schedule.priority", "schedule.tags", "schedule.meta", "schedule.expires")
    def test_options_of_a_schedule_apply_to_its_runs(self, t: TestApp) -> None:
        @t.app.schedule(
            "work", every="10m", queue="slow", priority="high", tags=["nightly"], meta={"team": 7}, expires="2m"
        )
        @t.app.task(name="shop.work", tags=["shop"])
        def work() -> None: ...

        t.queues.pause("slow", create=True)
        t.advance("10m")
        [info] = t.enqueued(work)
        assert (info.queue, info.priority, info.tags, info.meta) == ("slow", 50, ("shop", "nightly"), {"team": 7})
        assert info.expires == MONDAY + timedelta(minutes=12)
        assert info.schedule == "work"

    @pytest.mark.option("schedule.retries", "schedule.timeout")
    def test_retries_and_timeout_of_a_schedule_apply_to_its_runs(self, t: TestApp) -> None:
        @t.app.schedule("fails", every="10m", retries=1)
        @t.app.task(name="fails", backoff="1s")
        def fails() -> None:
            raise ValueError("no")

        @t.app.schedule("slow", mode="triggered", timeout="50ms", retries=0)
        @t.app.task(name="slow", soft_timeout="10ms")
        def slow(ctx: Context) -> None:
            while True:
                ctx.check()

        t.advance("11m")
        [run] = t.schedules.history("fails")
        assert (run.state, run.error) == ("dead", "ValueError: no")
        assert len(t.app.jobs.get(run.job or "").info().attempts) == 2
        job = t.schedules.trigger("slow")
        t.drain()
        assert job.info().options["timeout"] == "50ms"
        assert job.info().state == "dead"

    @pytest.mark.option("schedule.on_success", "schedule.on_dead", "schedule.on_cancel")
    def test_follow_ups_of_a_schedule_run(self, t: TestApp) -> None:
        heard: list[tuple[str, UUID]] = []
        last_of: list[UUID] = []

        @t.app.task
        def last(job: UUID) -> None:
            last_of.append(job)

        @t.app.task(on_success=last)
        def good(job: UUID) -> None:
            heard.append(("good", job))

        @t.app.task
        def bad(job: UUID) -> None:
            heard.append(("bad", job))

        @t.app.task(name="shop.work", retries=0)
        def work(fail: bool) -> None:
            if fail:
                raise ValueError("no")

        for name, fail in (("fine", False), ("fails", True)):
            t.app.schedule(name, every="10m", call=work.s(fail), on_success=good, on_dead=bad, on_cancel=bad)
        t.advance("10m")
        ended = {name: t.schedules.history(name)[0].job for name in ("fine", "fails")}
        assert sorted(heard) == [("bad", ended["fails"]), ("good", ended["fine"])]
        t.queues.pause("default")
        t.schedules.trigger("fine").cancel()
        t.queues.resume("default")
        t.drain()
        assert [name for name, _ in heard] == [*(name for name, _ in heard[:2]), "bad"]
        follow_ups = [info for info in t.enqueued() if info.parent is not None]
        assert {info.parent for info in follow_ups} == {*last_of, *(job for _, job in heard)}
        [of_good] = last_of
        assert t.app.jobs.get(of_good).info().task.endswith("good")
        assert {info.trace for info in follow_ups} == {job.hex for _, job in heard}

    def test_runs_are_ordinary_jobs(self, t: TestApp) -> None:
        @t.app.schedule("work", every="10m")
        @t.app.task(name="shop.work")
        def work(ctx: Context) -> str:
            ctx.progress(1, 2)
            return "done"

        t.advance("10m")
        assert minutes(t, "work") == [10]
        [run] = t.schedules.history("work")
        assert t.app.jobs.get(run.job or "").result() == "done"
        assert work.job(run.job or "").result() == "done"

    @pytest.mark.stores("sqlite")
    def test_the_same_declaration_gives_an_equal_definition(self, bare: Mainspring, store_name: str) -> None:
        from mainspring.schedules.edit import load_code_schedules

        bare.schedule("x", cron="0 3 * * *", tags=["b", "a"])(bare.task(on_dead="shop.alert")(nothing))
        assert load_code_schedules(bare) == load_code_schedules(bare)
