"""F5, F6: what users may do to one job of a flow, and to a flow that has not ended."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from mainspring import AsyncContext, Context, JobCancelled, JobDead, Mainspring, group
from mainspring.errors import NotFound, ResultTimeout, WrongState
from mainspring.jobs.query import Query
from mainspring.states import State
from tests.rows.crew import LIMIT, until

AMPLE = "5s"
"""A time limit of a flow whose first jobs have to start before it is over."""


class Work:
    """Some tasks, and what they did."""

    def __init__(self, app: Mainspring) -> None:
        self.ran: list[Any] = []
        self.is_good = False
        ran = self.ran

        @app.task
        def load(n: int) -> int:
            ran.append(("load", n))
            return n

        @app.task(retries=0)
        def check(n: int) -> int:
            ran.append(("check", n))
            if not self.is_good:
                raise ValueError("not good")
            return n

        @app.task
        def report(n: int | None) -> str:
            ran.append(("report", n))
            return f"report of {n}"

        @app.task
        def unload(n: int) -> None:
            ran.append(("unload", n))

        self.load, self.check, self.report, self.unload = load, check, report, unload

    def times(self, name: str) -> int:
        return sum(1 for each in self.ran if each[0] == name)


@pytest.fixture
def work(app: Mainspring) -> Work:
    return Work(app)


def failed_flow(app: Mainspring, work: Work) -> Any:
    """A chain whose second part is dead: the handle of its last job."""
    job = (work.load.s(1) | work.check | work.report).enqueue()
    with app.worker():
        assert app.flows.join(job.id, timeout=LIMIT).state == "failed"
    return job


@pytest.mark.row("F5")
class TestRetryOfOneJob:
    def test_a_job_that_never_started_is_not_retried_without_its_parents(self, app: Mainspring, work: Work) -> None:
        job = failed_flow(app, work)
        flow = app.flows.get(job.id).id
        for retry in (job.retry, lambda: app.jobs.retry(job), lambda: app.jobs.retry(job.id)):
            with pytest.raises(WrongState, match=rf"(?s)retry is not possible, because .*app.flows.retry\('{flow}'\)"):
                retry()
        assert job.info().state == State.CANCELLED
        work.is_good = True
        assert app.flows.retry(job.id) == 3
        with app.worker():
            assert job.result(timeout=LIMIT) == "report of 1"
        assert work.ran[-1] == ("report", 1)

    def test_a_dead_job_of_an_ended_flow_is_not_retried_alone(
        self, app: Mainspring, work: Work, caplog: pytest.LogCaptureFixture
    ) -> None:
        job = failed_flow(app, work)
        alone = work.check.enqueue(7)
        with app.worker():
            alone.join(timeout=LIMIT)
        (dead,) = app.dead.list(flow=job.id)
        with pytest.raises(WrongState, match=r"app\.flows\.retry"):
            app.dead.retry(dead.id)
        with pytest.raises(WrongState, match=r"app\.flows\.retry"):
            app.jobs.get(dead.id).retry()
        work.is_good = True
        with caplog.at_level(logging.WARNING, "mainspring.jobs"):
            assert app.dead.retry(Query.everything()) == 1  # the job that is in no flow
        assert f"retry left out 1 job of flows. The first: job {dead.id} is dead" in caplog.text
        assert app.jobs.get(dead.id).info().state == State.DEAD
        with app.worker():
            assert alone.result(timeout=LIMIT) == 7

    def test_a_job_of_a_flow_that_succeeded(self, app: Mainspring, work: Work) -> None:
        job = (work.load.s(1) | work.report).enqueue()
        with app.worker():
            app.flows.join(job.id, timeout=LIMIT)
        with pytest.raises(WrongState, match="Enqueue the flow anew"):
            job.retry()

    def test_nothing_runs_after_its_compensation(self, app: Mainspring, work: Work) -> None:
        job = (work.load.s(1).undo(work.unload) | work.check).enqueue()
        with app.worker():
            assert app.flows.join(job.id, timeout=LIMIT).state == "failed"
        assert work.times("unload") == 1
        with pytest.raises(WrongState, match="has ended"):
            job.retry()
        with pytest.raises(WrongState, match=r"(?s)because its compensations have run.*Enqueue the flow anew"):
            app.flows.retry(job.id)

    def test_nothing_runs_while_the_flow_is_compensated(self, app: Mainspring, work: Work) -> None:
        started, go_on = threading.Event(), threading.Event()

        @app.task
        def slow_unload(n: int) -> None:
            started.set()
            go_on.wait(LIMIT)

        job = (work.load.s(1).undo(slow_unload) | work.check).enqueue()
        with app.worker():
            assert started.wait(LIMIT)
            with pytest.raises(WrongState, match=r"the compensations of its flow .* have begun"):
                job.retry()
            go_on.set()
            app.flows.join(job.id, timeout=LIMIT)

    def test_a_dead_member_of_an_ended_batch(self, app: Mainspring, work: Work) -> None:
        with app.flows.batch("x", on_success=work.unload.s(0)) as batch:
            member = batch.add(work.check.s(1))
        with app.worker():
            batch.join(timeout=LIMIT)
            with pytest.raises(WrongState, match=r"app\.flows\.retry"):
                member.retry()
            work.is_good = True
            app.flows.retry(batch.id)
            assert member.result(timeout=LIMIT) == 1
            until(lambda: work.times("unload") == 1, "on_success runs")

    def test_a_dead_job_that_the_flow_waits_for_is_retried_alone(self, app: Mainspring, work: Work) -> None:
        job = (work.check.s(1) | work.report).when("wait").enqueue()
        with app.worker():
            until(app.dead.list, "it is dead")
            work.is_good = True
            assert app.dead.retry(flow=job.id) == 1
            assert job.result(timeout=LIMIT) == "report of 1"


@pytest.mark.row("F6")
class TestDelete:
    def test_results_that_a_running_flow_needs_are_kept(
        self, app: Mainspring, work: Work, caplog: pytest.LogCaptureFixture
    ) -> None:
        alone = work.load.enqueue(7)
        with app.worker():
            alone.result(timeout=LIMIT)
            job = (work.load.s(1) | work.report.options(delay="1h")).enqueue()
            until(lambda: job.info().state == State.SCHEDULED)
        (first,) = app.jobs.list(task=work.load, flow=job.id)
        with caplog.at_level(logging.WARNING, "mainspring.jobs"):
            assert app.jobs.delete(state="succeeded") == 1  # the job that is in no flow
        assert "delete left out 1 job of flows" in caplog.text
        for one in (app.jobs.get(first.id), job):
            with pytest.raises(WrongState, match=r"(?s)its flow .* is running.*app.flows.cancel"):
                one.delete()
        app.jobs.run_now(job)
        with app.worker():
            assert job.result(timeout=LIMIT) == "report of 1"
            app.flows.join(job.id, timeout=LIMIT)
        assert app.jobs.delete(state="succeeded", task=work.load) == 1

    def test_a_running_flow_is_not_deleted(self, app: Mainspring, work: Work) -> None:
        job = (work.load.s(1) | work.report).enqueue()
        with pytest.raises(WrongState, match=r"(?s)flow .* is running: delete is not possible.*cancel"):
            app.flows.delete(job.id)
        app.flows.cancel(job.id)
        app.flows.delete(job.id)
        with pytest.raises(NotFound):
            app.flows.get(job.id)


@pytest.mark.row("F6")
class TestRetryOfAFlow:
    def test_a_running_flow_is_named_as_such(self, app: Mainspring, work: Work) -> None:
        job = (work.load.s(1) | work.report).enqueue()
        flow = app.flows.get(job.id).id
        with pytest.raises(WrongState, match=f"(?s)flow {flow} is running: retry is not possible.*app.flows.cancel"):
            app.flows.retry(job.id)

    def test_not_while_a_cancelled_job_still_runs(self, app: Mainspring, work: Work) -> None:
        started, go_on = threading.Event(), threading.Event()

        @app.task
        def deaf() -> int:
            started.set()
            go_on.wait(LIMIT)
            return 3

        job = (deaf.s() | work.report).enqueue()
        with app.worker():
            assert started.wait(LIMIT)
            app.flows.cancel(job.id)
            with pytest.raises(WrongState, match="has not ended yet: it is running"):
                app.flows.retry(job.id)
            go_on.set()
            until(lambda: not app.jobs.count(flow=job.id).live)
            app.flows.retry(job.id)
            assert job.result(timeout=LIMIT) == "report of 3"


@pytest.mark.row("F6")
class TestJobsOfAFlow:
    def test_the_id_of_a_job_of_the_flow_finds_all_jobs(self, app: Mainspring, work: Work) -> None:
        job = (work.load.s(1) | work.report).enqueue()
        flow = app.flows.get(job.id).id
        for query in ({"flow": job.id}, {"flow": flow}, {"flow": str(job.id), "state": ["ready", "blocked"]}):
            assert len(app.jobs.list(**query)) == 2
            assert app.jobs.count(Query.where(**query)).total == 2
        with pytest.raises(NotFound, match="no part of a flow"):
            app.jobs.list(flow=work.load.enqueue(1).id)


@pytest.mark.row("F5")
class TestCauses:
    """What ``result()`` of the last job says."""

    def cause_of(self, job: Any) -> str:
        with pytest.raises(JobCancelled) as error:
            job.result(timeout=LIMIT)
        return error.value.reason

    def test_a_job_before_it_was_cancelled(self, app: Mainspring, work: Work) -> None:
        job = (work.load.s(1).options(delay="1h") | work.load | work.report).enqueue()
        (first,) = app.jobs.list(flow=job.id, state="scheduled")
        app.jobs.get(first.id).cancel("not today")
        assert self.cause_of(job) == f"job {first.id} of task {first.task!r} in its flow was cancelled: not today"

    def test_a_job_before_it_was_purged(self, app: Mainspring, work: Work) -> None:
        job = (work.load.s(1).options(queue="slow") | work.load | work.report).enqueue()
        (first,) = app.jobs.list(flow=job.id, state="ready")
        assert app.queues.purge("slow") == 1
        assert self.cause_of(job) == f"job {first.id}, which it waited for, was deleted"

    def test_a_job_before_it_expired(self, app: Mainspring, work: Work) -> None:
        job = (work.load.s(1).options(queue="slow", expires="10ms") | work.report).enqueue()
        (first,) = app.jobs.list(flow=job.id, task=work.load)
        with app.worker():
            assert self.cause_of(job) == f"job {first.id} of task {first.task!r} in its flow expired before it started"

    def test_the_flow_was_cancelled(self, app: Mainspring, work: Work) -> None:
        job = (work.load.s(1) | work.report).enqueue()
        flow = app.flows.get(job.id).id
        app.flows.cancel(job.id, "a mistake")
        assert self.cause_of(job) == f"its flow {flow} was cancelled: a mistake"

    def test_a_member_of_a_group_was_cancelled(self, app: Mainspring, work: Work) -> None:
        job = (group(work.load.s(1).options(delay="1h"), work.load.s(2)) | work.report.s(1)).enqueue()
        (first,) = app.jobs.list(flow=job.id, state="scheduled")
        app.jobs.get(first.id).cancel("not today")
        with app.worker():
            assert self.cause_of(job) == f"job {first.id} of task {first.task!r} in its flow was cancelled: not today"

    def test_a_part_that_was_left_out(self, app: Mainspring, work: Work) -> None:
        job = (work.check.s(1) | work.report).when("skip").enqueue()
        with app.worker():
            said = self.cause_of(job)
            assert said.startswith("it was left out: job ")
            assert said.endswith("in its flow is dead: ValueError: not good")
            assert app.flows.join(job.id, timeout=LIMIT).state == "succeeded"

    def test_a_dead_job_names_its_error(self, app: Mainspring, work: Work) -> None:
        job = failed_flow(app, work)
        assert self.cause_of(job).endswith("in its flow is dead: ValueError: not good")


@pytest.mark.row("F6")
class TestTimeLimit:
    def test_it_is_named(self, app: Mainspring, work: Work) -> None:
        started = threading.Event()

        @app.task
        def slow(ctx: Context) -> int:
            started.set()
            while True:
                ctx.check()
                started.wait(0.01)

        job = (slow.s() | work.report).flow(time_limit="300ms").enqueue()
        with app.worker():
            flow = app.flows.join(job.id, timeout=LIMIT)
            for one in (job, app.jobs.get(app.jobs.list(flow=job.id, task=slow)[0].id)):
                with pytest.raises(JobCancelled, match=f"the time limit of its flow {flow.id} was over"):
                    one.result(timeout=LIMIT)
        assert app.flows.get(job.id).state == "expired"
        assert [each.id for each in app.flows.list(state="expired")] == [flow.id]

    def test_a_flow_that_takes_too_long_is_compensated(self, app: Mainspring, work: Work) -> None:
        @app.task
        def slow(ctx: Context, n: int) -> int:
            ctx.flow.add(work.load.s(9).options(delay="1h"))  # ends with the flow too
            while True:
                ctx.check()
                threading.Event().wait(0.01)

        flow = work.load.s(1).undo(work.unload) | slow.s(2).undo(work.unload) | work.report
        job = flow.flow(time_limit=AMPLE).enqueue()
        with app.worker():
            found = app.flows.join(job.id, timeout=LIMIT)
            assert found.state == "failed"
            assert found.expires is not None
            with pytest.raises(JobCancelled, match=f"the time limit of its flow {found.id} was over"):
                job.result(timeout=LIMIT)
        assert [each for each in work.ran if each[0] != "load"] == [("unload", 1)]
        assert app.jobs.count(flow=job.id).live == 0

    def test_a_job_that_ends_in_spite_of_its_order_is_awaited(self, app: Mainspring, work: Work) -> None:
        started, go_on = threading.Event(), threading.Event()

        @app.task
        def deaf(n: int) -> int:
            started.set()
            try:
                go_on.wait(LIMIT)
            finally:  # the order may arrive at any moment
                work.ran.append(("deaf", n))
            return n

        flow = work.load.s(1).undo(work.unload) | deaf.s(2).undo(work.unload)
        job = flow.flow(time_limit=AMPLE).enqueue()
        with app.worker():
            assert started.wait(LIMIT)
            until(lambda: job.info().cancelling, "it has the order to end")
            go_on.set()
            assert app.flows.join(job.id, timeout=LIMIT).state == "failed"
        assert work.ran == [("load", 1), ("deaf", 2), ("unload", 1)]


@pytest.mark.row("F6")
class TestShown:
    def test_a_batch_ends_as_its_flow(self, app: Mainspring, work: Work) -> None:
        with app.flows.batch("x", on_finished=work.unload.s(0)) as batch:
            batch.add_many(work.check.s(n) for n in range(3))
        with app.worker():
            found = batch.join(timeout=LIMIT)
        assert (found.state, found.id, found.jobs) == ("failed", batch.id, 4)
        assert [flow.jobs for flow in app.flows.list()] == [4]

    def test_jobs_that_were_added_are_counted(self, app: Mainspring, work: Work) -> None:
        @app.task
        def numbers() -> list[int]:
            return [1, 2, 3]

        job = numbers.s().each(work.load).enqueue()
        with app.worker():
            assert app.flows.join(job.id, timeout=LIMIT).jobs == 4
        assert [flow.jobs for flow in app.flows.list()] == [4]

    def test_a_result_that_does_not_fit_is_named(self, app: Mainspring, work: Work) -> None:
        @app.task
        def untyped():  # type: ignore[no-untyped-def]  # the trap
            return "x"

        job = (untyped.s() | work.load).enqueue()
        with app.worker(), pytest.raises(JobDead) as error:
            job.result(timeout=LIMIT)
        (first,) = app.jobs.list(flow=job.id, task=untyped)
        assert f"argument 'n' is the result of job {first.id} of task {untyped.name!r}" in str(error.value)
        assert "use @task.upgrade" not in str(job.info().error)

    def test_why_follows_the_chain_to_its_first_job(self, app: Mainspring, work: Work) -> None:
        job = (
            work.load.s(1).options(queue="emial") | work.load | group(work.load, work.load) | work.unload.s(1)
        ).enqueue()
        (first,) = app.jobs.list(flow=job.id, state="ready")
        with app.worker(queues=["default"]):
            said = f"it waits for {first.task} {first.id} (ready): no live worker serves queue 'emial'"
            until(lambda: said in job.why().text)
            with pytest.raises(ResultTimeout, match="no live worker serves queue 'emial'"):
                job.result(timeout="100ms")


@pytest.mark.row("F4")
@pytest.mark.filterwarnings("ignore:coroutine.*never awaited:RuntimeWarning")
def test_an_addition_without_await_is_reported(app: Mainspring, work: Work, caplog: pytest.LogCaptureFixture) -> None:
    @app.task
    async def forgets(ctx: AsyncContext) -> None:
        ctx.flow.add(work.load.s(1))  # type: ignore[unused-coroutine]  # the trap
        ctx.spawn(work.load.s(2))  # type: ignore[unused-coroutine]  # the trap
        await ctx.spawn(work.load.s(3))

    job = (forgets.s() | work.report.s(0)).enqueue()
    with app.worker():
        job.result(timeout=LIMIT)
        until(lambda: work.times("load"))
    (first,) = app.jobs.list(task=forgets)
    for verb in ("ctx.flow.add", "ctx.spawn"):
        said = f"job {first.id} of task {forgets.name!r} called {verb}(...) without await: it enqueued nothing"
        assert caplog.text.count(said) == 1
    assert [each for each in work.ran if each[0] == "load"] == [("load", 3)]
