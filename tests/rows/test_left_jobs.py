"""``burst`` and ``until_empty``: what a run waits for, and what it says about the jobs that are left."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mainspring import AsyncContext, Concurrency, Mainspring
from mainspring.errors import InvalidOption
from mainspring.options.typed import WorkerOptions
from tests.rows.crew import until
from tests.rows.project import Project

LIMIT = 60
ENDS: tuple[WorkerOptions, ...] = ({"burst": True}, {"until_empty": True})


@pytest.fixture
def plain(app: Mainspring) -> Mainspring:
    @app.task(name="plain")
    async def plain() -> None: ...

    app.call("plain").enqueue()
    return app


def work(app: Mainspring, caplog: pytest.LogCaptureFixture, **options: object) -> tuple[int | None, str]:
    """Run a worker until it ends by itself: its exit code, and what it says at its end."""
    with caplog.at_level(logging.DEBUG, "mainspring.worker"):
        worker = app.worker(**options)  # type: ignore[arg-type]  # the tests pass options by name
        worker.start()
        until(lambda: worker.exit_code is not None, "the end of the worker")
        worker.stop()
    *_, said = [r.getMessage() for r in caplog.records if " stopped: " in r.getMessage()]
    return worker.exit_code, said.partition(" stopped: ")[2]


def counts(app: Mainspring) -> dict[str, int]:
    return {str(state): count for state, count in app.jobs.count().items() if count}


@pytest.mark.parametrize("options", ENDS, ids=str)
def test_a_run_that_leaves_nothing_ends_with_zero(
    plain: Mainspring, caplog: pytest.LogCaptureFixture, options: WorkerOptions
) -> None:
    assert work(plain, caplog, **options) == (0, "all jobs finished")
    assert counts(plain) == {"succeeded": 1}


@pytest.mark.option("worker.burst")
def test_burst_does_not_wait_for_retrying_and_scheduled_jobs(
    plain: Mainspring, caplog: pytest.LogCaptureFixture
) -> None:
    @plain.task(name="flaky", backoff="1h")
    async def flaky() -> None:
        raise ConnectionError

    retries = [flaky.enqueue() for _ in range(2)]
    later = plain.call("plain").options(delay="1h").enqueue()
    code, said = work(plain, caplog, burst=True)
    next_retry = min(job.info().due or datetime.max.replace(tzinfo=UTC) for job in retries)
    assert code == 0
    assert said == (
        f"2 jobs wait for a retry, the next at {next_retry.isoformat(' ', 'seconds')}; "
        f"1 is scheduled, at {(later.info().due or next_retry).isoformat(' ', 'seconds')}"
    )
    assert counts(plain) == {"succeeded": 1, "retrying": 2, "scheduled": 1}


def test_burst_names_the_waiting_jobs_after_the_jobs_that_no_worker_can_run(
    plain: Mainspring, caplog: pytest.LogCaptureFixture
) -> None:
    plain.call("gone").enqueue()
    plain.call("plain").options(delay="1h").enqueue()
    code, said = work(plain, caplog, burst=True)
    assert code == 6
    assert "knows task 'gone'; 1 job is scheduled, at " in said


def test_a_drained_worker_does_not_say_that_all_jobs_are_finished(
    plain: Mainspring, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "mainspring.worker"), plain.worker():
        plain.call("plain").options(delay="1h").enqueue()
    *_, said = [r.getMessage() for r in caplog.records if " stopped: " in r.getMessage()]
    assert said.endswith(" stopped: the jobs that it had started are finished")


@pytest.mark.option("worker.until_empty")
def test_until_empty_waits_for_retrying_jobs(plain: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
    @plain.task(name="flaky", backoff="300ms")
    async def flaky(ctx: AsyncContext) -> None:
        if ctx.attempt == 1:
            raise ConnectionError

    flaky.enqueue()
    plain.call("plain").options(delay="400ms").enqueue()
    assert work(plain, caplog, until_empty=True) == (0, "all jobs finished")
    assert counts(plain) == {"succeeded": 3}


@pytest.mark.parametrize("options", ENDS, ids=str)
class TestLeft:
    def test_jobs_of_an_unknown_task_are_named(
        self, plain: Mainspring, caplog: pytest.LogCaptureFixture, options: WorkerOptions
    ) -> None:
        plain.call("gone").enqueue()
        code, said = work(plain, caplog, **options)
        assert code == 6
        assert said == (
            "1 job is left that no live worker can run: "
            "1 because no live worker of queue 'default' knows task 'gone'"
        )  # fmt: skip

    def test_jobs_of_paused_disabled_and_unserved_queues_are_counted(
        self, plain: Mainspring, caplog: pytest.LogCaptureFixture, options: WorkerOptions
    ) -> None:
        for queue in ("held", "off"):
            plain.queue(queue)
            plain.call("plain").options(queue=queue).enqueue()
        plain.call("plain").options(queue="defualt").enqueue()
        plain.queues.pause("held")
        plain.queues.disable("off")
        code, said = work(plain, caplog, **options)
        assert code == 6
        assert "3 jobs are left that no live worker can run: " in said
        assert "1 because queue 'held' is paused" in said
        assert "1 because queue 'off' was disabled" in said
        assert "1 because no live worker serves queue 'defualt'; did you mean 'default'?" in said

    def test_jobs_behind_a_breaker_that_stays_open_are_counted(
        self, plain: Mainspring, caplog: pytest.LogCaptureFixture, options: WorkerOptions
    ) -> None:
        breaker = plain.breaker("api")

        @plain.task(name="guarded", breaker=breaker)
        async def guarded() -> None: ...

        guarded.enqueue()
        plain.breakers.trip("api")
        code, said = work(plain, caplog, **options)
        assert code == 6
        assert "1 because breaker 'api' is open until an operator resets it" in said

    def test_jobs_behind_a_limit_of_size_zero_are_counted(
        self, plain: Mainspring, caplog: pytest.LogCaptureFixture, options: WorkerOptions
    ) -> None:
        @plain.task(name="limited", limit=plain.limiter("few", Concurrency(3)))
        async def limited() -> None: ...

        limited.enqueue()
        plain.limits.set("limiter/few:at-once", 0)
        code, said = work(plain, caplog, **options)
        assert code == 6
        assert "limit 'limiter/few:at-once' has reached its size (0/0)" in said

    def test_queues_that_were_not_asked_for_do_not_count(
        self, plain: Mainspring, caplog: pytest.LogCaptureFixture, options: WorkerOptions
    ) -> None:
        plain.call("plain").options(queue="other").enqueue()
        assert work(plain, caplog, queues=["default"], **options) == (0, "all jobs finished")

    def test_jobs_that_another_live_worker_can_run_do_not_count(
        self, plain: Mainspring, other: Mainspring, caplog: pytest.LogCaptureFixture, options: WorkerOptions
    ) -> None:
        go_on = threading.Event()

        @other.task(name="elsewhere", queue="other")
        def elsewhere() -> None:
            go_on.wait(LIMIT)

        with other.worker(thread_slots=1):
            for _ in range(3):
                elsewhere.enqueue()
            assert work(plain, caplog, **options) == (0, "all jobs finished")
            go_on.set()


def test_burst_does_not_wait_for_an_open_breaker(plain: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
    breaker = plain.breaker("api", open_for="1h")

    @plain.task(name="guarded", breaker=breaker)
    async def guarded() -> None: ...

    guarded.enqueue()
    plain.breakers.trip("api", for_="1h")
    code, said = work(plain, caplog, burst=True)
    assert code == 6
    assert "1 because breaker 'api' is open until " in said


def test_burst_and_until_empty_exclude_each_other(app: Mainspring) -> None:
    with pytest.raises(InvalidOption, match="burst=True: cannot be given together with until_empty"):
        app.worker(burst=True, until_empty=True)


@pytest.fixture
def project(tmp_path: Path, store_url: str) -> Project:
    return Project(tmp_path, store_url)


class TestProcesses:
    CODE = """
        import os, sys
        from mainspring import Mainspring

        app = Mainspring(os.environ["SHOP_STORE"])

        @app.task
        def send(to: str) -> None: ...

        if __name__ == "__main__":
            send.enqueue("ann")
            if "lost" in sys.argv:
                app.call("gone").enqueue()
            sys.exit(app.run(**{sys.argv[1]: True}))
        """

    @pytest.mark.parametrize("option", ["burst", "until_empty"])
    def test_run_returns_six_if_jobs_are_left(self, project: Project, option: str) -> None:
        project.write(self.CODE)
        done = project.run("shop.py", option)
        assert (done.returncode, "all jobs finished" in done.stderr) == (0, True), done.stderr
        done = project.run("shop.py", option, "lost")
        assert (done.returncode, "all jobs finished" in done.stderr) == (6, False), done.stderr
        assert "1 because no live worker of queue 'default' knows task 'gone'" in done.stderr

    @pytest.mark.option("cli.worker.burst", "cli.worker.until_empty")
    @pytest.mark.parametrize("flag", ["--burst", "--until-empty"])
    def test_the_command_ends_with_six_if_jobs_are_left(self, project: Project, flag: str) -> None:
        project.write(self.CODE)
        project.python("from shop import app; app.call('gone').enqueue()")
        done = project.run("-m", "mainspring", "worker", "shop:app", flag, "-p", "2")
        assert done.returncode == 6, done.stderr
        assert "knows task 'gone'" in done.stderr


class TestUnknownQueue:
    @contextmanager
    def started(self, app: Mainspring, caplog: pytest.LogCaptureFixture, *queues: str) -> Iterator[list[str]]:
        with caplog.at_level(logging.WARNING, "mainspring.worker"), app.worker(queues=list(queues)):
            yield [r.getMessage() for r in caplog.records if "no stored job uses" in r.getMessage()]

    def test_a_misspelt_queue_of_a_worker_is_a_warning(self, app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
        @app.task(name="send", queue="email")
        async def send() -> None: ...

        with self.started(app, caplog, "emali") as said:
            assert said == [
                "no task, no app.queue(...) and no stored job uses the queue 'emali'; did you mean 'email'?"
            ]

    def test_known_queues_and_queues_with_jobs_are_no_warning(
        self, app: Mainspring, other: Mainspring, caplog: pytest.LogCaptureFixture
    ) -> None:
        app.queue("declared")
        other.call("elsewhere").options(queue="stored").enqueue()
        with self.started(app, caplog, "declared", "stored", "default") as said:
            assert said == []
