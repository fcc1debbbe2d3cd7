"""O2 to O4: what holds for the runs of a schedule holds for jobs of its task that were enqueued by name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mainspring import Mainspring
from mainspring.jobs.outcomes import Outcome
from mainspring.states import State
from tests.rows.crew import LIMIT, until
from tests.timing import short_settings


@pytest.fixture
def publisher(store_url: str) -> Iterator[Mainspring]:
    """A program that has none of the tasks."""
    app = Mainspring(store_url, **short_settings())
    yield app
    app.close()


class Pipeline:
    """``process`` waits for ``fetch``; both note what they did."""

    def __init__(self, app: Mainspring) -> None:
        self.ran: list[str] = []
        self.failing = 0

        @app.schedule("fetch", mode="triggered")
        @app.task(name="etl.fetch")
        def fetch(n: int = 0) -> None:
            self.ran.append(f"fetch {n}")

        @app.schedule("process", mode="triggered", depends_on="fetch")
        @app.task(name="etl.process", retries=3, backoff="10ms")
        def process(n: int = 0) -> None:
            if self.failing:
                self.failing -= 1
                raise ConnectionError("not yet")
            self.ran.append(f"process {n}")


@pytest.mark.row("O2")
class TestByName:
    def test_a_job_by_name_waits_until_the_dependency_has_succeeded(
        self, app: Mainspring, publisher: Mainspring
    ) -> None:
        """Both jobs are enqueued by name. Each success starts one job, and waiting uses no attempt."""
        pipeline = Pipeline(app)
        jobs = [publisher.call("etl.process", n).enqueue() for n in range(2)]
        with app.worker():
            until(lambda: {job.info().state for job in jobs} == {State.BLOCKED})
            [obstacle] = [each for each in jobs[0].why().obstacles if each.kind == "dependency"]
            assert "schedule 'process' waits for 'fetch' to succeed" in obstacle.text
            assert app.schedules.get("process").waiting_for == ("fetch",)
            publisher.call("etl.fetch", 1).enqueue().result(timeout=LIMIT)
            jobs[0].result(timeout=LIMIT)
            assert jobs[1].info().state is State.BLOCKED
            publisher.call("etl.fetch", 2).enqueue().result(timeout=LIMIT)
            jobs[1].result(timeout=LIMIT)
        assert pipeline.ran == ["fetch 1", "process 0", "fetch 2", "process 1"]
        infos = [job.info() for job in jobs]
        assert {(info.attempt, info.crashes) for info in infos} == {(1, 0)}
        assert [each.outcome for info in infos for each in info.attempts] == [Outcome.INTERRUPTED] * 2

    def test_a_job_by_name_starts_when_the_dependency_succeeded_before(
        self, app: Mainspring, publisher: Mainspring
    ) -> None:
        pipeline = Pipeline(app)
        with app.worker():
            publisher.call("etl.fetch").enqueue().result(timeout=LIMIT)
            publisher.call("etl.process").enqueue().result(timeout=LIMIT)
        assert pipeline.ran == ["fetch 0", "process 0"]

    def test_retries_of_a_job_by_name_do_not_wait_again(self, app: Mainspring, publisher: Mainspring) -> None:
        pipeline = Pipeline(app)
        pipeline.failing = 2
        with app.worker():
            publisher.call("etl.fetch").enqueue().result(timeout=LIMIT)
            job = publisher.call("etl.process").enqueue()
            job.result(timeout=LIMIT)
            assert job.info().attempt == 3
            again = publisher.call("etl.process").enqueue()
            until(lambda: again.info().state is State.BLOCKED)
        assert pipeline.ran == ["fetch 0", "process 0"]

    def test_a_job_that_started_before_the_schedule_was_declared_does_not_wait(
        self, app: Mainspring, publisher: Mainspring
    ) -> None:
        @publisher.task(name="etl.process", retries=3, backoff="10ms")
        def process(n: int) -> None:
            raise ConnectionError("the old code")

        with publisher.worker():
            job = process.enqueue(7)
            until(lambda: job.info().attempt >= 1 and job.info().attempts)
        pipeline = Pipeline(app)
        if job.info().state is State.DEAD:
            job.retry()
        with app.worker():
            job.result(timeout=LIMIT)
        assert pipeline.ran == ["process 7"]


@pytest.mark.row("O3", "O4")
def test_blocks_and_groups_apply_to_jobs_by_name(app: Mainspring, publisher: Mainspring) -> None:
    """Each job is handed back once."""
    app.schedules.group("etl", max_concurrent=1)
    app.schedule("a", mode="triggered", group="etl", blocks="b")(app.task(name="etl.a")(lambda: None))
    app.schedule("b", mode="triggered", group="etl", depends_on="a")(app.task(name="etl.b")(lambda: None))
    second, first = publisher.call("etl.b").enqueue(), publisher.call("etl.a").enqueue()
    with app.worker():
        for job in (first, second):
            job.result(timeout=LIMIT)
    for job in (first, second):
        assert [each.outcome for each in job.info().attempts] == [Outcome.INTERRUPTED]
