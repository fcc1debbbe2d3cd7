"""Declarations that have no effect, or another effect than the user expects: each one is said once, in one sentence."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mainspring import Context, Mainspring, Tasks
from tests.rows.project import Project

WARNING = logging.WARNING


def said(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == WARNING and text in each.getMessage()]


class TestScheduleWithoutFunction:
    def test_a_worker_says_so(self, app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
        app.schedule("remind", every="1h")
        with app.worker():
            pass
        [line] = said(caplog, "declares nothing")
        assert line.startswith(f"schedule('remind', every='1h') at {__file__}:")
        assert line.endswith("use it as a decorator of a function, or give it call=task.s(...)")

    def test_a_sync_says_so(self, app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
        tasks = Tasks()
        app.include(tasks)
        tasks.schedule(cron="0 3 * * *")
        app.schedules.declare()
        assert len(said(caplog, "schedule(cron='0 3 * * *') at")) == 1

    def test_a_used_one_is_no_mistake(self, app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
        """Also if one result decorates several functions."""
        hourly = app.schedule(every="1h")
        hourly(app.task(name="one")(_work))
        hourly(app.task(name="two")(_work))
        task = app.task(name="three")(_work)
        app.schedule("third", every="1h", call=task.s())
        with app.worker():
            pass
        assert said(caplog, "declares nothing") == []

    def test_check_fails(self, tmp_path: Path, store_url: str) -> None:
        project = Project(tmp_path, store_url)
        project.write("""
            import os
            from mainspring import Mainspring
            app = Mainspring(os.environ["SHOP_STORE"])
            app.schedule("remind", every="1h")
        """)
        project.run("-m", "mainspring", "migrate", "-A", "shop:app")
        done = project.run("-m", "mainspring", "check", "-A", "shop:app")
        assert done.returncode == 1, done.stderr
        assert "schedule('remind', every='1h') at " in done.stdout
        assert "shop.py:5 declares nothing" in done.stdout


class TestDeclaredWhileAWorkerRuns:
    def test_a_schedule(self, app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
        with app.worker():
            app.schedule(every="1h", name="late")(_work)
            [line] = said(caplog, "'late'")
            assert "call app.schedules.declare(), or start the worker after all declarations" in line
            app.schedules.declare()
            assert [each.name for each in app.schedules.list()] == ["late"]
        caplog.clear()
        app.schedule(every="1h", name="later")(_work)
        assert said(caplog, "later") == []

    def test_a_task_of_a_queue_that_the_worker_does_not_serve(
        self, app: Mainspring, caplog: pytest.LogCaptureFixture
    ) -> None:
        with app.worker():
            late = app.task(name="late")(_work)
            assert late.enqueue().join(timeout=60).state == "succeeded"
            assert said(caplog, "'late'") == []
            app.task(name="mail", queue="mail")(_work)
            [line] = said(caplog, "'mail'")
        assert "does not serve its queue 'mail': start the worker after all declarations" in line


class TestSameNamesInTwoPrograms:
    """Programs with a task of one name run each other's jobs."""

    def test_another_function_is_named(self, store_url: str, caplog: pytest.LogCaptureFixture) -> None:
        for name, function in (("one", _work), ("two", _other)):
            app = Mainspring(store_url, name=name)
            app.task(name="send")(function)
            with app.worker():
                pass
            app.close()
        [line] = said(caplog, "tasks of the same name")
        assert "'send' (app 'one'); app 'two' and they run each other's jobs" in line
        assert 'Use namespace=... or another database, or give the tasks different names: @app.task(name="...")' in line

    def test_the_same_function_is_a_shared_library(self, store_url: str, caplog: pytest.LogCaptureFixture) -> None:
        for name in ("one", "two"):
            app = Mainspring(store_url, name=name)
            app.task(name="send")(_work)
            with app.worker():
                pass
            app.close()
        assert said(caplog, "tasks of the same name") == []

    def test_a_new_version_of_one_program_is_no_other_program(
        self, store_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        for function in (_work, _other):
            app = Mainspring(store_url, name="one")
            app.task(name="send")(function)
            with app.worker():
                pass
            app.close()
        assert said(caplog, "tasks of the same name") == []

    def test_programs_without_a_name_are_told_apart_by_their_folders(self, tmp_path: Path, store_url: str) -> None:
        """Both have a module ``tasks`` with a function ``send``."""
        outputs = []
        for name in ("shop", "mail"):
            (tmp_path / name).mkdir()
            project = Project(tmp_path / name, store_url)
            project.write(f"""
                import os
                from mainspring import Mainspring
                app = Mainspring(os.environ["SHOP_STORE"])
                @app.task
                def send() -> str:
                    return {name!r}
            """)
            outputs.append(project.work().stderr)
        assert "tasks of the same name" not in outputs[0]
        assert "'shop.send' (app 'shop'); app 'mail' and they run each other's jobs" in outputs[1]


def test_resume_says_that_a_queue_stays_disabled(app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
    app.task(name="send", queue="mail")(_work)
    app.queues.disable("mail")
    app.queues.resume("mail")
    [line] = said(caplog, "'mail' stays disabled (hold)")
    assert "app.queues.enable('mail')" in line
    app.queues.enable("mail")
    caplog.clear()
    app.queues.resume("mail")
    assert said(caplog, "mail") == []


def test_several_lifespans_are_read_as_attributes_and_as_items(app: Mainspring) -> None:
    @app.lifespan
    def database() -> Iterator[dict[str, str]]:
        yield {"dsn": "one"}

    @app.lifespan
    def cache() -> Iterator[int]:
        yield 2

    @app.task(name="read")
    def read(ctx: Context) -> list[object]:
        problems = []
        looks: list[Callable[[], object]] = [lambda: ctx.state["dsn"], lambda: ctx.state.dsn]
        for look in looks:
            try:
                look()
            except (KeyError, AttributeError) as error:
                problems.append(str(error.args[0]))
        return [ctx.state["cache"], ctx.state.cache, ctx.state["database"]["dsn"], *problems]

    with app.worker():
        found = read.enqueue().result(timeout=60)
    problem = (
        "ctx.state has one value for each lifespan, by the name of its function: database, cache; there is no 'dsn'"
    )
    assert found == [2, 2, "one", problem, problem]


def test_a_worker_that_is_never_started_says_so(app: Mainspring) -> None:
    with pytest.warns(RuntimeWarning, match=r"app\.worker\(\) was never started, so no job ran"):
        app.worker()


def test_why_names_a_worker_that_is_stopping(app: Mainspring, tmp_path: Path) -> None:
    hold, holds = threading.Event(), threading.Event()

    @app.task(name="hold")
    def wait() -> None:
        holds.set()
        hold.wait(60)

    wait.enqueue()
    worker = app.worker(drain="1m")
    worker.start()
    try:
        assert holds.wait(60)
        stopping = threading.Thread(target=worker.stop)
        stopping.start()
        job = wait.enqueue()
        end = time.monotonic() + 60
        while "is stopping" not in job.why().text:
            assert time.monotonic() < end, job.why().text
            time.sleep(0.02)
        assert job.why().text == "ready: the only live worker of queue 'default' is stopping and claims no more jobs"
    finally:
        hold.set()
        stopping.join()


class TestNamesThatFindNothing:
    def test_a_listing_of_an_unknown_queue(self, app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
        app.task(name="send", queue="mail")(_work)
        assert len(app.jobs.list(queue="mail")) == 0
        assert said(caplog, "no job was found") == []
        assert len(app.jobs.list(queue="mial")) == 0
        assert len(app.jobs.list(queue="mial")) == 0, "and says so once"
        assert app.jobs.count(queue="emial").total == 0
        first, second = said(caplog, "no job was found")
        assert "queue 'mial'" in first
        assert "did you mean 'mail'" in first
        assert "queue 'emial'" in second

    def test_an_error_that_no_dead_job_has(self, app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
        @app.task(name="fail", retries=0)
        def fail() -> None:
            raise ValueError("no")

        with app.worker():
            fail.enqueue().join(timeout=60)
        caplog.clear()
        assert app.dead.retry(error="KeyError") == 0, "it has not happened: this is no mistake"
        assert said(caplog, "no job was found") == []
        assert app.dead.retry(error="ValueEror") == 0
        assert said(caplog, "no dead job has the error 'ValueEror'; did you mean 'ValueError'?") != []


def _work() -> None: ...


def _other() -> str:
    return "other"
