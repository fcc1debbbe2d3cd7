"""Q8: ended jobs are deleted by age and by count, by default, and never while they are needed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from mainspring import Key, Mainspring, Query
from mainspring.common.ids import new_id
from mainspring.errors import JobNotFound
from mainspring.jobs.job import Job
from mainspring.jobs.records import Edge, JobBatch, NewJob
from mainspring.states import LIVE, State
from mainspring.testing.app import TestApp
from tests.rows.crew import until

LIMIT = 60
START = datetime(2030, 1, 1, tzinfo=UTC)

pytestmark = pytest.mark.row("Q8")


@pytest.fixture
def t(app: Mainspring, store_url: str) -> Iterator[TestApp]:
    """The app with a clock; each drain prunes as a worker does every minute."""
    with app.test(url=store_url, start=START) as t:
        yield t


def gone(job: Job[object]) -> bool:
    try:
        job.info()
    except JobNotFound:
        return True
    return False


class TestByAge:
    def test_succeeded_jobs_are_kept_a_week_and_dead_jobs_thirty_days_by_default(
        self, app: Mainspring, t: TestApp
    ) -> None:
        @app.task(name="well")
        async def well() -> None: ...

        @app.task(name="badly", retries=0)
        async def badly() -> None:
            raise ValueError

        done, cancelled, dead = well.enqueue(), well.enqueue(), badly.enqueue()
        cancelled.cancel()
        t.drain()
        t.clock.advance("6d 23h")
        assert t.drain().pruned == 0
        t.clock.advance("2h")
        assert t.drain().pruned == 2
        assert [gone(job) for job in (done, cancelled, dead)] == [True, True, False]
        t.clock.advance("22d 22h")
        assert t.drain().pruned == 0
        t.clock.advance("2h")
        assert t.drain().pruned == 1
        assert gone(dead)

    def test_a_task_can_keep_its_jobs_for_another_time(self, app: Mainspring, t: TestApp) -> None:
        @app.task(name="short", retention="1h")
        async def short() -> None: ...

        @app.task(name="long", retention="30d")
        async def long() -> None: ...

        @app.task(name="other")
        async def other() -> None: ...

        jobs = [task.enqueue() for task in (short, long, other)]
        t.drain()
        t.clock.advance("61m")
        t.drain()
        assert [gone(job) for job in jobs] == [True, False, False]
        t.clock.advance("8d")
        t.drain()
        assert [gone(job) for job in jobs] == [True, False, True]
        t.clock.advance("22d")
        t.drain()
        assert gone(jobs[1])

    def test_a_live_job_is_never_deleted(self, app: Mainspring, t: TestApp) -> None:
        @app.task(name="later")
        async def later() -> None: ...

        job = later.options(delay="400d").enqueue()
        t.clock.advance("399d")
        t.drain()
        assert job.info().state is State.SCHEDULED


class TestByCount:
    @pytest.mark.parametrize("fail", [False, True], ids=["done", "dead"])
    def test_the_oldest_jobs_beyond_the_count_are_deleted_but_none_of_the_last_hour(
        self, store_url: str, fail: bool
    ) -> None:
        app = Mainspring(store_url, keep_count=3, keep_dead_count=2)

        @app.task(name="work", retries=0)
        async def work(n: int) -> None:
            if fail:
                raise ValueError

        with app.test(url=store_url, start=START) as t:
            jobs = []
            for n in range(6):
                jobs.append(work.enqueue(n))
                t.drain()
                t.clock.advance("1m")
            assert not any(gone(job) for job in jobs), "too young"
            t.clock.advance("2h")
            t.drain()
            kept = 2 if fail else 3
            assert [gone(job) for job in jobs] == [True] * (6 - kept) + [False] * kept

    def test_jobs_with_their_own_retention_are_not_counted(self, store_url: str) -> None:
        app = Mainspring(store_url, keep_count=1)

        @app.task(name="own", retention="30d")
        async def own() -> None: ...

        @app.task(name="plain")
        async def plain() -> None: ...

        with app.test(url=store_url, start=START) as t:
            jobs = [plain.enqueue(), own.enqueue(), own.enqueue()]
            t.drain()
            t.clock.advance("2h")
            t.drain()
            assert not any(gone(job) for job in jobs)


class TestStillNeeded:
    def test_a_job_with_an_open_unique_window_is_kept(self, app: Mainspring, t: TestApp) -> None:
        @app.task(name="once", retention="1h")
        async def once() -> None: ...

        monthly = once.options(key=Key("monthly", window="20d"))
        job = monthly.enqueue()
        t.drain()
        t.clock.advance("19d")
        t.drain()
        assert not gone(job)
        assert monthly.enqueue().id == job.id, "it still answers for its key"
        t.clock.advance("2d")
        t.drain()
        assert gone(job)
        assert monthly.enqueue().id != job.id

    async def test_a_job_runs_although_one_of_its_dependencies_was_deleted(
        self, app: Mainspring, store_url: str
    ) -> None:
        @app.task(name="parent")
        async def parent() -> None: ...

        @app.task(name="child")
        async def child() -> None: ...

        async with app.test(url=store_url, start=START) as t:
            early, late = await parent.aenqueue(), await parent.options(delay="20d").aenqueue()
            waiting = NewJob(
                id=new_id().bytes, task="child", queue="default", kind="async",
                after=(Edge(early.id.bytes), Edge(late.id.bytes)),
            )  # fmt: skip
            store = await app.client.store()
            await store.enqueue(JobBatch(id=os.urandom(16), jobs=(waiting,)))
            await t.adrain()
            t.clock.advance("10d")
            assert (await t.adrain()).pruned == 1
            [held] = (await app.jobs.alist(Query.where(tasks=["child"]))).jobs
            assert held.state is State.BLOCKED
            t.clock.advance("10d")
            await t.adrain()
            [ran] = (await app.jobs.alist(Query.where(tasks=["child"]))).jobs
            assert ran.state is State.SUCCEEDED


def test_a_worker_prunes_with_the_retention_of_its_app(store_url: str) -> None:
    app = Mainspring(store_url, keep="1ms")

    @app.task(name="work")
    async def work() -> None: ...

    with app.worker():
        job = work.enqueue()
        until(lambda: not app.jobs.list(state=list(LIVE)).jobs, "it has run")
    with app.worker():  # prunes when it starts
        until(lambda: gone(job), "it is deleted")
    with pytest.raises(JobNotFound):
        job.info()
    app.close()
