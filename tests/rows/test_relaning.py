"""R9, R11: limits hold for jobs whose producer did not know them, and for jobs that waited when a limit was
declared.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mainspring import Concurrency, Job, Mainspring, Rate
from mainspring.errors import InvalidOption, JobDead
from mainspring.jobs.outcomes import Outcome
from mainspring.states import Reason, State
from tests.rows.crew import LIMIT, until
from tests.rows.test_limits import Gauge
from tests.timing import short_settings


@pytest.fixture
def producer(store_url: str) -> Iterator[Mainspring]:
    """A program that has none of the tasks."""
    app = Mainspring(store_url, **short_settings())
    yield app
    app.close()


def handed_back(job: Job[Any]) -> int:
    """How often a job was handed back; each of its attempts was one."""
    outcomes = [attempt.outcome for attempt in job.info().attempts]
    assert set(outcomes) <= {Outcome.INTERRUPTED}
    return len(outcomes)


def sent(producer: Mainspring, task: str, n: int, *args: object) -> list[Job[Any]]:
    return producer.enqueue_many(producer.call(task, *args, i) for i in range(n))


def thread(app: Mainspring, gauge: Gauge) -> None:
    @app.task(name="by_name.work", limit=Concurrency(2))
    def work(n: int) -> int:
        gauge("all")
        return n


def coroutine(app: Mainspring, gauge: Gauge) -> None:
    @app.task(name="by_name.work", limit=Concurrency(2))
    async def work(n: int) -> int:
        await asyncio.to_thread(gauge, "all")
        return n


def bulk(app: Mainspring, gauge: Gauge) -> None:
    @app.bulk_task(name="by_name.work", limit=Concurrency(2), size=10, wait="10ms")
    def work(items: list[int]) -> list[int | Exception]:
        gauge("all", 0.02 * len(items))
        assert len(items) <= 2
        return [*items]


@pytest.mark.row("R11")
class TestByName:
    @pytest.mark.parametrize("declare", [thread, coroutine, bulk])
    def test_a_limit_holds_for_jobs_by_name(
        self, app: Mainspring, producer: Mainspring, declare: Callable[[Mainspring, Gauge], None]
    ) -> None:
        """Two workers with many slots: never more than two jobs run at once, all run, and waiting uses no attempt."""
        gauge = Gauge()
        declare(app, gauge)
        jobs = sent(producer, "by_name.work", 50)
        with app.worker(), app.worker():
            assert [job.result(timeout=LIMIT) for job in jobs] == list(range(50))
        assert gauge.most["all"] <= 2
        infos = [job.info() for job in jobs]
        assert {info.attempt for info in infos} == {1}
        assert {(info.crashes, info.state) for info in infos} == {(0, State.SUCCEEDED)}
        assert {handed_back(job) for job in jobs} == {1}

    def test_each_key_has_its_own_limit_although_the_argument_was_positional(
        self, app: Mainspring, producer: Mainspring
    ) -> None:
        gauge = Gauge()

        @app.task(name="by_name.keyed", limit=[Concurrency(1, by="tenant"), Rate(1000, per="1s", cost="n")])
        def work(tenant: str, n: int = 3) -> None:
            gauge(tenant)

        jobs = [job for tenant in "abc" for job in producer.enqueue_many(
            producer.call("by_name.keyed", tenant) for _ in range(5)
        )]  # fmt: skip
        with app.worker():
            for job in jobs:
                job.result(timeout=LIMIT)
        assert (set(gauge.most.values()), gauge.total) == ({1}, 15)
        assert {job.info().attempt for job in jobs} == {1}

    def test_jobs_of_producers_that_know_the_limit_are_not_handed_back(self, app: Mainspring) -> None:
        @app.task(name="by_name.known", limit=[Concurrency(1, by="n"), Rate(1000, per="1s")])
        def work(n: int) -> None: ...

        @app.task(name="by_name.free")
        def free(n: int) -> None: ...

        jobs = app.enqueue_many([*(work.s(n % 3) for n in range(9)), *(free.s(n) for n in range(9))])
        with app.worker():
            for job in jobs:
                job.result(timeout=LIMIT)
        assert {handed_back(job) for job in jobs} == {0}

    def test_why_names_the_limit_of_a_job_by_name(self, app: Mainspring, producer: Mainspring) -> None:
        go_on = threading.Event()

        @app.task(name="by_name.waits", limit=Concurrency(1))
        def work(n: int) -> None:
            go_on.wait(LIMIT)

        jobs = sent(producer, "by_name.waits", 2)
        with app.worker():
            found = until(lambda: [why for job in jobs if (why := job.why()).obstacles and why.state is State.READY])
            assert [(each.kind, each.name) for each in found[0].obstacles] == [("limit", "by_name.waits:at-once")]
            go_on.set()
            for job in jobs:
                job.result(timeout=LIMIT)

    def test_a_key_that_cannot_be_read_makes_a_job_by_name_dead(self, app: Mainspring, producer: Mainspring) -> None:
        def region(**arguments: object) -> str:
            raise LookupError("no such tenant")

        @app.task(name="by_name.wrong", retries=1, backoff="10ms", limit=Concurrency(1, by=region))
        def work(n: int) -> None: ...

        with pytest.raises(InvalidOption) as said:
            work.enqueue(1)
        (job,) = sent(producer, "by_name.wrong", 1)
        events = []
        app.on("failed", "dead")(lambda event: events.append(event.name))
        with app.worker(), pytest.raises(JobDead):
            job.result(timeout=LIMIT)
        info = job.info()
        assert (info.state, info.reason, info.attempt) == (State.DEAD, Reason.NOT_RETRYABLE, 1)
        assert info.error is not None
        assert info.error.type.endswith("InvalidOption")
        assert info.error.message.startswith(str(said.value).splitlines()[0])
        assert sorted(events) == ["dead", "failed"]

    def test_arguments_that_do_not_fit_make_a_job_by_name_dead(self, app: Mainspring, producer: Mainspring) -> None:
        @app.task(name="by_name.unfit", limit=Concurrency(1, by="n"))
        def work(n: int) -> None: ...

        job = producer.call("by_name.unfit", "seven").enqueue()
        with app.worker(), pytest.raises(JobDead):
            job.result(timeout=LIMIT)
        assert job.info().reason is Reason.UNDECODABLE

    def test_a_breaker_counts_failures_of_jobs_by_name(self, app: Mainspring, producer: Mainspring) -> None:
        ran = []

        @app.task(name="by_name.guarded", retries=0, breaker={"failures": 2, "open_for": "1h"}, limit=Concurrency(1))
        def work(n: int) -> None:
            ran.append(n)
            raise ConnectionError("down")

        jobs = sent(producer, "by_name.guarded", 6)
        with app.worker():
            until(lambda: [each for each in app.breakers.list() if each.state == "open"])
            until(lambda: sorted(job.info().state for job in jobs) == [*[State.DEAD] * 2, *[State.READY] * 4])
        assert len(ran) == 2

    def test_a_limit_of_a_task_declared_after_the_worker_started(self, app: Mainspring, producer: Mainspring) -> None:
        gauge = Gauge()

        @app.task(name="by_name.first")
        def first(n: int) -> None: ...

        with app.worker():
            thread(app, gauge)
            jobs = sent(producer, "by_name.work", 20)
            assert [job.result(timeout=LIMIT) for job in jobs] == list(range(20))
        assert gauge.most["all"] <= 2


@pytest.mark.row("R11")
class TestOtherCode:
    @pytest.mark.parametrize("before", [None, Rate(1000, per="1s")], ids=["added", "changed"])
    def test_waiting_jobs_obey_a_limit_that_is_declared_later(
        self, app: Mainspring, producer: Mainspring, before: Rate | None
    ) -> None:
        gauge = Gauge()

        @producer.task(name="other.work", limit=before)
        def work(tenant: str, n: int) -> None:
            raise AssertionError("the old code")

        jobs = producer.enqueue_many(work.s(tenant, n) for n in range(6) for tenant in ("a", "b"))

        @app.task(name="other.work", limit=Concurrency(1, by="tenant"))
        def new(tenant: str, n: int) -> None:
            gauge(tenant)

        with app.worker():
            for job in jobs:
                job.result(timeout=LIMIT)
        assert gauge.most == {"a": 1, "b": 1}
        assert {job.info().attempt for job in jobs} == {1}

    def test_workers_with_different_limits_hand_a_job_back_once_for_each_limit(
        self, app: Mainspring, producer: Mainspring, store_url: str
    ) -> None:
        """Afterwards all limits hold and no worker hands the job back again."""
        gauge = Gauge()
        other = Mainspring(store_url, **short_settings())

        @app.task(name="other.both", limit=Concurrency(2))
        def work(n: int) -> None:
            gauge("all")

        @other.task(name="other.both", limit=[Concurrency(1, by="n"), Rate(1000, per="1s")])
        def twin(n: int) -> None:
            gauge("all")

        jobs = sent(producer, "other.both", 40)
        with app.worker(), other.worker():
            for job in jobs:
                job.result(timeout=LIMIT)
        other.close()
        assert {job.info().attempt for job in jobs} == {1}
        assert {handed_back(job) for job in jobs} <= {1, 2}
        assert gauge.total == 40
