"""Mistakes that were accepted without a word: a past moment, a misspelt queue, route, task or URL parameter."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring, Query, RateLimited, Snooze
from mainspring.errors import BadUrl, InvalidOption, NotFound, UnknownTask
from mainspring.states import State
from mainspring.testing.app import TestApp
from tests.rows.scheduling import MONDAY, staged, whats

LIMIT = 60


@pytest.fixture
def t(store_url: str) -> Iterator[TestApp]:
    with staged(store_url) as t:
        yield t


def recording(t: TestApp, ran: list[str]) -> Any:
    """A task that appends to the list when it runs."""
    return t.app.task(name="shop.record")(lambda: ran.append("ran"))


@contextmanager
def warnings_of(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """The warnings of the block."""
    found: list[str] = []
    with caplog.at_level(logging.WARNING, "mainspring"):
        caplog.clear()
        yield found
        found += [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


@pytest.mark.row("S6")
class TestMomentsOfThePast:
    def test_a_moment_that_passed_long_ago_is_missed_with_a_warning(
        self, t: TestApp, caplog: pytest.LogCaptureFixture
    ) -> None:
        ran: list[str] = []
        t.app.schedule("launch", at=MONDAY - timedelta(hours=1))(recording(t, ran))
        with warnings_of(caplog) as said:
            t.advance("10m")
        assert ran == []
        [warning] = said
        assert warning.startswith(
            "schedule 'launch' will not run: its time, 2030-01-07 11:00:00+00:00, had passed when"
        )
        assert warning.endswith("; app.schedules.trigger('launch') runs it now")
        [missed] = t.schedules.history("launch")
        assert (missed.what, missed.at, missed.job) == ("missed", MONDAY - timedelta(hours=1), None)
        assert missed.note == "its time had passed when the schedule was stored"
        t.schedules.trigger("launch")
        t.drain()
        assert ran == ["ran"]

    def test_it_is_stored_and_warned_of_once(self, t: TestApp, caplog: pytest.LogCaptureFixture) -> None:
        t.app.schedule("launch", at=MONDAY - timedelta(hours=1))(recording(t, []))
        assert t.schedules.declare().over == ("launch",)
        with warnings_of(caplog) as said:
            assert t.schedules.declare() == ((), (), (), (), ())
        assert said == []
        assert whats(t, "launch") == ["missed"]

    @pytest.mark.parametrize("misfire", ["once", "skip", "all"])
    def test_a_moment_that_passed_just_now_runs(self, t: TestApp, misfire: Any) -> None:
        """A program takes a while from its first line to its worker."""
        ran: list[str] = []
        t.app.schedule("soon", at=MONDAY - timedelta(seconds=20), misfire=misfire)(recording(t, ran))
        t.drain()
        assert ran == ["ran"]
        assert whats(t, "soon") == ["fired"]
        t.advance("10m")
        assert ran == ["ran"]

    def test_put_has_the_same_rule_and_refuses_what_would_not_run(self, t: TestApp) -> None:
        ran: list[int] = []
        note = t.app.task(name="shop.note")(lambda n: ran.append(n + 0))
        t.schedules.put("soon", note.s(1), at=MONDAY - timedelta(seconds=20))
        t.drain()
        assert ran == [1]
        with pytest.raises(InvalidOption, match=r"(?s)schedule 'late': at='2030-01-07 11:59:29.*is in the past"):
            t.schedules.put("late", note.s(2), at=MONDAY - timedelta(seconds=31))
        with pytest.raises(InvalidOption, match=r"schedule 'over': end='2030-01-07 11:.*no occurrence in the future"):
            t.schedules.put("over", note.s(3), cron="0 3 * * *", end=MONDAY - timedelta(hours=1))
        with pytest.raises(InvalidOption, match=r"schedule 'soon': at=.*is in the past"):
            t.schedules.put("soon", note.s(1), at=MONDAY - timedelta(hours=1))
        assert [info.name for info in t.schedules.list()] == ["soon"]

    def test_a_window_that_has_ended_is_a_warning(self, t: TestApp, caplog: pytest.LogCaptureFixture) -> None:
        t.app.schedule("old", cron="0 3 * * *", end=MONDAY - timedelta(days=1))(recording(t, []))
        with warnings_of(caplog) as said:
            assert t.schedules.declare().over == ("old",)
        assert [text.partition(";")[0] for text in said] == [
            "schedule 'old' will not run: its end= had passed when it was stored"
        ]
        assert t.schedules.history("old") == []

    def test_a_moment_that_had_its_run_is_no_warning(self, t: TestApp, caplog: pytest.LogCaptureFixture) -> None:
        """The rule changes from the moment to another rule, and back."""
        moment, ran = MONDAY + timedelta(minutes=1), list[str]()

        def declare(**rule: Any) -> None:
            t.app.tasks.scheduled.pop("launch", None)
            t.app.schedule("launch", **rule)(task)

        task = recording(t, ran)
        declare(at=moment)
        t.advance("2m")
        declare(every="1h")
        t.schedules.declare()
        declare(at=moment)
        with warnings_of(caplog) as said:
            assert t.schedules.declare().over == ()
        assert (said, ran, whats(t, "launch")) == ([], ["ran"], ["fired"])


class TestQueuesOfAWorker:
    @pytest.fixture
    def mail(self, app: Mainspring) -> Mainspring:
        app.task(name="send", queue="email")(lambda: None)
        return app

    @pytest.mark.option("worker.concurrency")
    def test_concurrency_for_a_queue_that_the_worker_does_not_serve_is_refused(self, mail: Mainspring) -> None:
        with pytest.raises(
            InvalidOption, match=r"(?s)does not serve the queue 'emali'; did you mean 'email'.*serves: d"
        ):
            mail.worker(concurrency={"emali": 5}).start()
        with pytest.raises(InvalidOption, match="does not serve the queue 'email'"):
            mail.worker(queues=["default"], concurrency={"email": 5}).start()

    @pytest.mark.option("app.concurrency")
    def test_concurrency_of_the_app_may_name_queues_of_its_other_workers(
        self, store_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        with Mainspring(store_url, concurrency={"email": 5, "emali": 5, "used": 1}) as app:
            app.task(name="send", queue="email")(lambda: None)
            app.call("elsewhere").options(queue="used").enqueue()
            with warnings_of(caplog) as said, app.worker(queues=["default"]):
                pass
        assert [text for text in said if "concurrency" in text] == [
            "concurrency: no task, no app.queue(...) and no stored job uses the queue 'emali'; did you mean 'email'?"
        ]

    @pytest.mark.parametrize("given", [{"queues": ["email"]}, {"concurrency": {"email": 1}}, {"thread_slots": 3}])
    def test_a_scheduler_refuses_options_about_jobs(self, mail: Mainspring, given: Any) -> None:
        with pytest.raises(InvalidOption, match="needs the role 'worker'"):
            mail.worker(roles="scheduler", **given).start()

    @pytest.mark.option("app.routes")
    def test_a_route_that_matches_no_task_is_a_warning(self, store_url: str, caplog: pytest.LogCaptureFixture) -> None:
        routes = {"shop.mial": "mail", "shop.*": "shop", "pay.*": "pay", "bank.transfer": "bank"}
        with (
            Mainspring(store_url, name="bank") as bank,
            Mainspring(store_url, name="shop", routes=routes) as shop,
        ):
            bank.task(name="bank.transfer")(lambda: None)
            shop.task(name="shop.mail")(lambda: None)
            with bank.worker():
                pass
            with warnings_of(caplog) as said, shop.worker():
                pass
        assert sorted(text for text in said if text.startswith("the route")) == [
            "the route 'pay.*' to queue 'pay' matches no task",
            "the route 'shop.mial' to queue 'mail' matches no task; did you mean 'shop.mail'?",
        ]


class TestUnknownNames:
    @pytest.fixture
    def shop(self, app: Mainspring) -> Mainspring:
        app.task(name="shop.send", queue="email")(lambda: None).options(delay="1h").enqueue()
        return app

    @pytest.mark.parametrize("verb", ["cancel", "retry", "run_now", "delete", "reprioritise"])
    def test_an_action_on_an_unknown_task_or_queue_is_an_error(self, shop: Mainspring, verb: str) -> None:
        given: dict[str, Any] = {"priority": 5} if verb == "reprioritise" else {}
        act: Callable[..., int] = getattr(shop.jobs, verb)
        with pytest.raises(UnknownTask, match=r"task 'shop.snd' is not known; did you mean 'shop.send'"):
            act(Query.where(task="shop.snd"), **given)
        with pytest.raises(NotFound, match=r"(?s)queue 'emali' is not in the store; did you mean 'email'.*queues.list"):
            act(queue=["email", "emali"], **given)
        assert shop.jobs.count()["scheduled"] == 1

    def test_dead_jobs_have_the_same_rule(self, shop: Mainspring) -> None:
        with pytest.raises(UnknownTask, match=r"did you mean 'shop.send'"):
            shop.dead.retry(task="shop.snd")
        with pytest.raises(NotFound, match="did you mean 'email'"):
            shop.dead.delete(queue="emali")
        assert shop.dead.retry(task="shop.send") == shop.dead.delete(queue="email") == 0

    def test_a_known_name_without_jobs_is_zero(self, shop: Mainspring, other: Mainspring) -> None:
        shop.task(name="shop.pay", queue="cash", aliases=["pay"])(lambda: None)
        assert shop.jobs.cancel(task=["shop.pay", "pay"], queue="cash") == 0
        assert shop.jobs.cancel(task="shop.send", queue="cash") == 0
        assert shop.jobs.cancel(tag="customer:42") == 0, "a tag is right before its first job"
        other.call("mail.send").options(queue="far").enqueue().cancel()
        assert shop.jobs.cancel(task="mail.send", queue="far") == 0, "an ended job of another program has the names"
        assert shop.jobs.list(task="nosuch").jobs == (), "reading is harmless"

    def test_tasks_and_queues_of_live_workers_and_of_other_programs_are_known(self, store_url: str) -> None:
        with Mainspring(store_url, name="bank") as bank, Mainspring(store_url) as operator:
            bank.task(name="bank.transfer", queue="bank")(lambda: None)
            with bank.worker():
                assert operator.jobs.cancel(task="bank.transfer", queue="bank") == 0
            assert operator.jobs.cancel(task="bank.transfer") == 0
            with pytest.raises(UnknownTask, match=r"did you mean 'bank.transfer'"):
                operator.jobs.cancel(task="bank.transfers")

    def test_checks_of_a_test_refuse_an_unknown_task(self, t: TestApp) -> None:
        send = t.app.task(name="shop.send")(lambda: None)
        with pytest.raises(
            AssertionError, match=r"shop.snd\(\) was not enqueued, and the app has no such task; did you mean"
        ):
            t.assert_enqueued("shop.snd")
        for check in (t.assert_not_enqueued, t.enqueued):
            with pytest.raises(UnknownTask, match=r"'shop.snd' is not known; did you mean 'shop.send'"):
                check("shop.snd")
        t.assert_not_enqueued("shop.send")
        assert t.enqueued("shop.send") == []
        t.app.call("bank.transfer").enqueue()
        assert len(t.enqueued("bank.transfer")) == 1, "a job of another program"
        send.enqueue()
        t.assert_enqueued("shop.send")


@pytest.mark.stores("any")
class TestUrls:
    @pytest.mark.parametrize(
        ("url", "says"),
        [
            (
                "sqlite:///jobs.db?timeout=30",
                r"unknown parameter 'timeout': a SQLite URL has no.*\n.*sqlite:///jobs.db\.",
            ),
            ("sqlite:///:memory:?cache=shared", "unknown parameter 'cache'"),
            ("sqlite:/jobs.db", "does not name a file.*\n.*three or four slashes"),
            ("sqlite://jobs.db", "does not name a file"),
            ("sqlite:jobs.db", "does not name a file"),
            ("sqlite:///", "does not name a file"),
            ("sqlite:", "does not name a file.*\n.*sqlite:// is a store in memory"),
            ("postgresql:/db/shop", "does not begin with postgresql://"),
            ("postgresql://db/shop?sslmode=a&sslmode=b", "has the parameter 'sslmode' twice"),
            (
                "postgresql://db/shop?sslmod=require",
                r"unknown parameter 'sslmod'; did you mean 'sslmode'.*\n.*Known.*host",
            ),
            ("redis:/0", "does not begin with redis://"),
            ("redis://cache/1?db=2", "names two databases: /1 and db=2"),
            ("redis://cache/0?timeout=3", r"unknown parameter 'timeout'.*\n.*Known parameters of redis://: db\."),
            ("redis://cache/0?db=0&db=1", "has the parameter 'db' twice"),
            ("redis://cache/0#1", "has the fragment '1'"),
            ("rediss://cache/0?ssl_cert_req=none", "did you mean 'ssl_cert_reqs'"),
            ("unix://tmp/redis.sock", "names no socket.*\n.*three slashes"),
        ],
    )
    def test_a_malformed_url_or_an_unknown_parameter_is_refused(
        self, url: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(BadUrl, match=says):
            Mainspring(url).open()
        assert [*tmp_path.iterdir()] == []


@pytest.mark.option("task.ack", "task.crashes")
class TestAckEarly:
    def test_a_number_of_crashes_is_refused(self, app: Mainspring) -> None:
        for crashes in (1, 2, 3):
            with pytest.raises(
                InvalidOption, match=rf"(?s)crashes={crashes}: .*ack=\"early\".*first crash.*Leave crashes"
            ):
                app.task(name="pay", ack="early", crashes=crashes)(lambda: None)
        app.task(name="pay", ack="early")(lambda: None)

    @pytest.mark.parametrize("again", [Snooze(for_="1ms"), RateLimited("1ms")])
    def test_a_body_that_snoozes_runs_again(self, app: Mainspring, again: Exception) -> None:
        runs: list[datetime] = []

        @app.task(name="pay", ack="early", retries=0)
        def pay() -> int:
            runs.append(datetime.now(UTC))
            if len(runs) == 1:
                raise again
            return len(runs)

        with app.worker():
            assert pay.enqueue().join(timeout=LIMIT).state is State.SUCCEEDED
        assert len(runs) == 2
