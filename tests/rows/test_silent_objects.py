"""Objects and names in a place where they would have no effect: each one is refused, or a worker says so."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from mainspring import Concurrency, Context, Depends, Key, Mainspring, Rate, Tasks
from mainspring.errors import BadSignature, InvalidOption
from mainspring.queues.queue import Queue
from mainspring.schedules.plan import ScheduleNews
from mainspring.schedules.service import describe_news
from tests.timing import patience

LIMIT = 60


def warned(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    """The warnings with this text."""
    return [
        each.getMessage() for each in caplog.records if each.levelno == logging.WARNING and text in each.getMessage()
    ]


def _work(x: int = 0) -> int:
    return x


class TestLimiterOfABlock:
    @pytest.mark.parametrize(
        ("chosen", "text"),
        [({"key": "42"}, "key='42'"), ({"wait": "1s"}, "wait='1s'"), ({"cost": 3, "wait": 2}, "cost=3, wait=2")],
    )
    def test_a_task_refuses_it(self, app: Mainspring, chosen: dict[str, Any], text: str) -> None:
        """The key would be ignored: jobs that must not overlap would."""
        api = app.limiter("api", Concurrency(1, by="x"), Rate(9, per="1s"))
        with pytest.raises(InvalidOption, match=rf"(?s)limit=.*has {text}, which would be ignored.*limiter itself"):
            app.task(name="work", limit=api.at(**chosen))(_work)

    def test_a_queue_refuses_it(self, app: Mainspring) -> None:
        api = app.limiter("api", Concurrency(1))
        with pytest.raises(InvalidOption, match="which would be ignored"):
            app.queue("mail", limit=api.at(wait="1s"))

    def test_the_limiter_itself_is_accepted(self, app: Mainspring) -> None:
        api = app.limiter("api", Concurrency(1, by="x"))
        assert app.task(name="work", limit=[api])(_work).enqueue(1).created
        assert app.task(name="other", limit=api.at())(_work).enqueue(1).created


class TestQueueOfAnotherApp:
    def test_a_task_refuses_it(self, app: Mainspring, other: Mainspring) -> None:
        mail = other.queue("mail", max_depth=1)
        with pytest.raises(InvalidOption, match=r"(?s)queue=Queue\('mail', max_depth=1\): is the queue of another app"):
            app.task(name="send", queue=mail)(_work)
        with pytest.raises(InvalidOption, match=r"app\.queue\('loose', \.\.\.\)"):
            app.task(name="send", queue=Queue("loose", {"weight": 3}))(_work)

    def test_a_queue_that_both_declare_is_accepted(self, app: Mainspring, other: Mainspring) -> None:
        mail = other.queue("mail", max_depth=1)
        app.queue("mail", max_depth=1)
        assert app.task(name="send", queue=mail)(_work).queue == "mail"

    def test_a_library_may_use_the_queue_of_an_app(self, app: Mainspring) -> None:
        tasks = Tasks()
        tasks.task(name="send", queue=app.queue("mail", weight=3))(_work)
        app.include(tasks)

    def test_an_app_refuses_a_library_with_it(self, app: Mainspring, other: Mainspring) -> None:
        """The app of a library is not known before: the check is made when the library is included."""
        mail = other.queue("mail", weight=3)
        tasks, more = Tasks(), Tasks()
        tasks.task(name="plain")(_work)
        tasks.task(name="send", queue=mail)(_work)
        more.task(name="later")(_work).options(queue=mail)
        for each in (tasks, more):
            with pytest.raises(
                InvalidOption, match=r"task '\w+': queue=Queue\('mail', weight=3\): is the queue of anot"
            ):
                app.include(each)
        assert [app.tasks.find(name) for name in ("plain", "send", "later")] == [None, None, None]
        app.queue("mail", weight=3)
        app.include(tasks, more)

    def test_a_library_refuses_it_after_its_inclusion(self, app: Mainspring, other: Mainspring) -> None:
        tasks = Tasks()
        app.include(tasks)
        with pytest.raises(InvalidOption, match="is the queue of another app"):
            tasks.task(name="send", queue=other.queue("mail", weight=3))(_work)

    def test_options_of_a_job_refuse_it(self, app: Mainspring, other: Mainspring) -> None:
        mail, tasks = other.queue("mail", max_depth=1), Tasks()
        task, included = app.task(name="work")(_work), tasks.task(name="send")(_work)
        app.include(tasks)
        for each in (task, included, task.s(1), app.call("unknown", 1)):
            with pytest.raises(
                InvalidOption, match=r"(?s)task '\w+': queue=Queue\('mail'.*another app.*or give its name"
            ):
                each.options(queue=mail)
        app.queue("mail", max_depth=1)
        assert task.options(queue=mail).enqueue(1).info().queue == "mail"

    def test_a_worker_refuses_it(self, app: Mainspring, other: Mainspring) -> None:
        mail: Any = other.queue("mail", weight=3)
        app.task(name="send", queue="mail")(_work)
        refused: list[dict[str, Any]] = [{"queues": [mail]}, {"concurrency": {mail: 2}}]
        for options in refused:
            [name] = options
            with pytest.raises(
                InvalidOption, match=rf"app.worker: {name}=Queue\('mail', weight=3\): is the queue of an"
            ):
                app.worker(**options)
            with pytest.raises(InvalidOption, match=f"app.run: {name}=Queue"):
                app.run(**options)
        own: Any = app.queue("mail", weight=3)
        with app.worker(queues=[own]):
            assert app.call("send", 1).enqueue().result(timeout=patience(LIMIT)) == 1

    def test_a_setting_refuses_any_queue_object(self, store_url: str, other: Mainspring) -> None:
        """The queues of an app are declared after its settings."""
        mail = other.queue("mail", weight=3)
        refused: list[dict[str, Any]] = [{"routes": {"*": mail}}, {"queues": [mail]}, {"concurrency": {mail: 1}}]
        for settings in refused:
            [name] = settings
            with pytest.raises(
                InvalidOption, match=rf"(?s)Mainspring: {name}=Queue.*Give its name, 'mail', and declare"
            ):
                Mainspring(store_url, **settings)


class TestReportsAfterTheEnd:
    def test_each_attempt_warns_once(self, app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
        kept: list[Context] = []

        @app.task(name="keep")
        def keep(ctx: Context) -> None:
            ctx.send("in time")
            kept.append(ctx)

        with app.worker():
            jobs = [keep.enqueue(), keep.enqueue()]
            for job in jobs:
                job.join(timeout=patience(LIMIT))
            for ctx in kept:
                ctx.send("too late")
                ctx.progress(1, 2)
                ctx.log("too late")
        lines = warned(caplog, "has ended")
        assert len(lines) == 2
        assert lines[0].startswith(f"ctx.send(): the body of task 'keep' (job {kept[0].job_id}) has ended")
        assert "the item is not stored. Wait for the threads and asyncio tasks" in lines[0]
        assert [list(job.stream()) for job in jobs] == [["in time"], ["in time"]]

    def test_reports_in_time_do_not_warn(self, app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
        @app.task(name="report")
        def report(ctx: Context) -> None:
            ctx.send(1)
            ctx.progress(1, 1)
            ctx.log("done")

        with app.worker():
            job = report.enqueue()
            job.join(timeout=patience(LIMIT))
        assert warned(caplog, "has ended") == []
        assert [line.text for line in job.logs()] == ["done"]


def _generator(_: Any) -> Iterator[None]:
    yield


async def _async_generator(_: Any) -> AsyncIterator[None]:
    yield


class TestGenerators:
    @pytest.mark.parametrize("fn", [_generator, _async_generator])
    def test_a_hook_is_refused(self, app: Mainspring, fn: Callable[[Any], Any]) -> None:
        with pytest.raises(InvalidOption, match=r"(?s)app.on=.*is a generator function, so its body would not run"):
            app.on("succeeded")(fn)

    @pytest.mark.parametrize("name", ["elected", "lost"])
    def test_a_callback_of_an_election_is_refused(self, app: Mainspring, name: str) -> None:
        callback: dict[str, Any] = {name: _generator}
        with pytest.raises(InvalidOption, match=rf"election 'main': {name}=.*is a generator function"):
            app.election("main", **callback)

    def test_a_dependency_with_contextmanager_is_refused(self, app: Mainspring) -> None:
        @contextmanager
        def guard() -> Iterator[None]:
            yield

        @asynccontextmanager
        async def aguard() -> AsyncIterator[None]:
            yield

        for each in (guard, aguard):

            def body(held: object = Depends(each)) -> None: ...

            with pytest.raises(BadSignature, match=r"(?s)'held' depends on a?guard, .*@contextmanager.*Remove the dec"):
                app.task(name="guarded")(body)


class TestAssignedOptions:
    @pytest.mark.parametrize(
        ("name", "hint"),
        [
            ("retries", r"@app.task\(retries=...\).*task.options\(retries=...\)"),
            ("backoff", r"@app.task\(backoff=...\)"),
            ("name", "where the task is declared"),
            ("rate_limit", r"limit=Rate\(100"),
            ("max_retries", "max_retries= is retries="),
        ],
    )
    def test_a_task_refuses_an_option(self, app: Mainspring, name: str, hint: str) -> None:
        task = app.task(name="work")(_work)
        with pytest.raises(InvalidOption, match=rf"(?s)task 'work': {name}=7: cannot be assigned.*{hint}"):
            setattr(task, name, 7)

    @pytest.mark.parametrize("name", ["url", "namespace", "version", "keep", "conf"])
    def test_an_app_refuses_a_setting(self, app: Mainspring, name: str) -> None:
        with pytest.raises(InvalidOption, match=rf"(?s)Mainspring: {name}='x': cannot be assigned"):
            setattr(app, name, "x")

    def test_the_password_of_a_url_is_hidden(self, app: Mainspring) -> None:
        with pytest.raises(InvalidOption) as refused:
            app.url = "postgresql://shop:hunter22@db/shop"  # type: ignore[attr-defined]
        assert "hunter22" not in str(refused.value)

    def test_other_attributes_belong_to_the_user(self, app: Mainspring) -> None:
        task: Any = app.task(name="work")(_work)
        task.note, task.enqueue = "mine", lambda: "patched"
        assert (task.note, task.enqueue()) == ("mine", "patched")
        anything: Any = app
        anything.database = "mine"
        assert anything.database == "mine"


class TestReplacedCaps:
    def test_a_worker_warns(self, store_url: str, caplog: pytest.LogCaptureFixture) -> None:
        with Mainspring(store_url, concurrency={"mail": 2, "video": 1}) as app:
            app.task(name="send", queue="mail")(_work)
            with app.worker(concurrency=8):
                pass
            [line] = warned(caplog, "replaces concurrency by queue")
            assert line.startswith(
                "concurrency=8 of this worker replaces concurrency by queue (mail=2) of the settings ("
            )
            assert "-c mail=2" in line

    def test_a_setting_of_a_stronger_place_warns(
        self, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        file = tmp_path / "mainspring.toml"
        file.write_text("[concurrency]\nmail = 2\nsms = 4\nvideo = 1\n")
        monkeypatch.setenv("MAINSPRING_CONFIG", str(file))

        def lines(environment: str, run: Any = None, **code: Any) -> list[str]:
            monkeypatch.setenv("MAINSPRING_CONCURRENCY", environment)
            caplog.clear()
            with Mainspring(store_url, **code) as app:
                app.task(name="send", queue="mail")(_work)
                app.task(name="text", queue="sms")(_work)
                with app.worker(**({} if run is None else {"concurrency": run})):
                    pass
            return warned(caplog, "replaces concurrency by queue")

        [line] = lines("3")
        assert line.startswith(
            f"MAINSPRING_CONCURRENCY=3 replaces concurrency by queue (mail=2, sms=4) of the settings ({file}: "
        )
        assert "instead: MAINSPRING_CONCURRENCY=mail=2,sms=4;" in line
        [line] = lines("mail=1")
        assert line.startswith("MAINSPRING_CONCURRENCY=mail=1 replaces concurrency by queue (sms=4) of the settings")
        assert "instead: MAINSPRING_CONCURRENCY=mail=1,sms=4;" in line
        [line] = lines("", concurrency=5)
        assert line.startswith(f"concurrency=5 (concurrency= of Mainspring(...) in {__file__}) replaces")
        [line] = lines("3", run={"sms": 9})
        assert line.startswith("concurrency=sms=9 of this worker replaces concurrency by queue (mail=2)")
        assert "instead: -c sms=9 -c mail=2;" in line
        assert lines("mail=1,sms=1") == lines("") == []

    def test_caps_that_apply_do_not_warn(self, store_url: str, caplog: pytest.LogCaptureFixture) -> None:
        with Mainspring(store_url, concurrency={"mail": 2}) as app:
            app.task(name="send", queue="mail")(_work)
            for options in ({}, {"concurrency": {"mail": 3}}, {"concurrency": 8, "queues": ["default"]}):
                with app.worker(**options):
                    pass
        assert warned(caplog, "replaces concurrency by queue") == []


class TestNamesInBraces:
    def test_a_lock_of_a_function_refuses_an_argument(self, app: Mainspring) -> None:
        with pytest.raises(InvalidOption, match=r"(?s)lock 'user:\{user\}': .*every call would take the same lock"):

            @app.lock("user:{user}")
            def sync(user: int) -> None: ...

        with pytest.raises(InvalidOption, match="same semaphore"):

            @app.semaphore("gpu:{model}", 2)
            async def train(model: str) -> None: ...

    def test_other_braces_are_text(self, app: Mainspring) -> None:
        @app.lock("user:{name}")
        def sync(user: int) -> int:
            return user

        assert sync(7) == 7


class TestDeclaredWhileAWorkerRuns:
    def test_a_bulk_task_is_logged(self, app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
        with app.worker():

            @app.bulk_task(name="later")
            def later(items: list[int]) -> list[int]:
                return items

            [line] = warned(caplog, "task 'later' is declared while a worker")
            assert line.endswith("it is a bulk task, whose jobs that worker does not claim: start the worker after all "
                                 "declarations")  # fmt: skip
            [obstacle] = later.enqueue(1).why().obstacles
            assert obstacle.text.startswith("no live worker of queue 'default' had task 'later' as a bulk task")

    def test_a_task_with_needs_is_logged(self, app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
        with app.worker():
            app.task(name="train", needs={"gpu"})(_work)
            app.task(name="plain")(_work)
        assert len(warned(caplog, "it is a task with needs=")) == 1
        assert warned(caplog, "'plain'") == []


class TestMessages:
    def test_an_item_that_cannot_be_stored_is_named(self) -> None:
        ctx = Context.local("work")
        with pytest.raises(InvalidOption, match=r"cannot be stored: send\['a'\]\[0\] has the type object"):
            ctx.send({"a": [object()]})

    def test_a_delay_beside_a_key_is_shown_as_text(self, app: Mainspring) -> None:
        task = app.task(name="work", key=Key("k", mode="throttle", window="1m"))(_work)
        with pytest.raises(InvalidOption, match="delay='5s': cannot be given with a key of mode='throttle'"):
            task.options(delay="5s").enqueue(1)

    def test_one_occurrence_is_singular(self) -> None:
        assert describe_news(ScheduleNews("skipped", "busy", 1)) == "1 occurrence was not run: busy"
        assert describe_news(ScheduleNews("missed", "skip", 2)) == "2 occurrences were missed (misfire='skip')"
