"""R7 and the verbs of a job: retry, run now, delete."""

from __future__ import annotations

import threading

import pytest

from mainspring import AsyncContext, Mainspring
from mainspring.errors import JobNotFound, KeyTaken, WrongState
from mainspring.states import State
from tests.rows.crew import LIMIT, until


class TestRetry:
    @pytest.mark.row("R7")
    def test_retry_runs_an_ended_job_again_in_a_new_epoch_with_its_lineage(self, app: Mainspring) -> None:
        broken = True

        @app.task(name="mend", retries=1, backoff="10ms")
        async def mend(order: int) -> int:
            if broken:
                raise ValueError("broken")
            return order

        with app.worker():
            job = mend.options(priority="high").enqueue(7)
            first = job.join(timeout=LIMIT)
            assert (first.state, first.epoch) == (State.DEAD, 1)
            broken = False
            job.retry()
            assert job.result(timeout=LIMIT) == 7
        again = job.info()
        assert (again.epoch, again.attempt, again.priority) == (2, 1, 50)
        assert again.args == first.args
        assert [(each.epoch, each.number) for each in again.attempts] == [(1, 1), (1, 2)]
        assert again.token > first.token

    def test_retry_runs_cancelled_and_succeeded_jobs_too(self, app: Mainspring) -> None:
        @app.task(name="work")
        async def work() -> None: ...

        cancelled = work.enqueue()
        cancelled.cancel()
        with app.worker():
            succeeded = work.enqueue()
            succeeded.join(timeout=LIMIT)
        for job in (cancelled, succeeded):
            job.retry()
            info = job.info()
            assert (info.state, info.epoch) == (State.READY, 2)

    def test_retry_of_a_live_job_is_refused(self, app: Mainspring) -> None:
        job = app.call("work").enqueue()
        with pytest.raises(WrongState, match="is ready: retry is not possible"):
            job.retry()

    def test_retry_is_refused_while_another_job_holds_the_key(self, app: Mainspring) -> None:
        first = app.call("work").options(key="order-1").enqueue()
        first.cancel()
        second = app.call("work").options(key="order-1").enqueue()
        assert second.created
        with pytest.raises(KeyTaken) as taken:
            first.retry()
        assert taken.value.holder == second.id
        assert first.info().state is State.CANCELLED

    async def test_aretry_runs_the_job_again(self, app: Mainspring) -> None:
        job = await app.call("work").aenqueue()
        await job.acancel()
        await job.aretry()
        assert (await job.ainfo()).epoch == 2


class TestRunNow:
    def test_run_now_starts_a_delayed_job(self, app: Mainspring) -> None:
        @app.task(name="later")
        async def later() -> int:
            return 1

        job = later.options(delay="1h").enqueue()
        assert job.run_now()
        assert not job.run_now(), "it is ready already"
        with app.worker():
            assert job.result(timeout=LIMIT) == 1

    def test_run_now_starts_a_retrying_job(self, app: Mainspring) -> None:
        @app.task(name="again", retries=1, backoff="1h")
        async def again(ctx: AsyncContext) -> int:
            if ctx.attempt == 1:
                raise ValueError
            return ctx.attempt

        with app.worker():
            job = again.enqueue()
            until(lambda: job.info().state is State.RETRYING, "it waits for its next attempt")
            assert job.run_now()
            assert job.result(timeout=LIMIT) == 2

    async def test_arun_now_starts_the_job(self, app: Mainspring) -> None:
        job = await app.call("later").options(delay="1h").aenqueue()
        assert await job.arun_now()


class TestDelete:
    def test_delete_removes_the_job_and_all_its_data(self, app: Mainspring) -> None:
        waiting = app.call("work").enqueue()
        ended = app.call("work").enqueue()
        ended.cancel()
        for job in (waiting, ended):
            job.delete()
            with pytest.raises(JobNotFound):
                job.info()
            with pytest.raises(JobNotFound):
                job.delete()
        assert app.jobs.count().total == 0

    def test_delete_of_a_running_job_is_refused(self, app: Mainspring) -> None:
        begun, release = threading.Event(), threading.Event()

        @app.task(name="hold")
        def hold() -> None:
            begun.set()
            release.wait(LIMIT)

        with app.worker():
            job = hold.enqueue()
            assert begun.wait(LIMIT)
            with pytest.raises(WrongState, match="is running: delete is not possible"):
                job.delete()
            release.set()
            assert job.join(timeout=LIMIT).state is State.SUCCEEDED

    async def test_adelete_removes_the_job(self, app: Mainspring) -> None:
        job = await app.call("work").aenqueue()
        await job.adelete()
        with pytest.raises(JobNotFound):
            await job.ainfo()
