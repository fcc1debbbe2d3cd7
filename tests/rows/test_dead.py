"""R6, R7: the dead letters keep everything, and can be found, counted, retried and deleted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from mainspring import Context, Discard, Job, JobInfo, Mainspring, Query
from mainspring.errors import InvalidOption, JobNotFound, WrongState
from mainspring.jobs.outcomes import Outcome
from mainspring.states import Reason, State
from tests.rows.crew import LIMIT, Crew, Tasks, until
from tests.timing import short_settings


class Broken(Exception):
    """Of this test."""


@pytest.fixture
def versioned(store_url: str) -> Any:
    app = Mainspring(store_url, version="2030.1", **short_settings())
    yield app
    app.close()


def retried(app: Mainspring) -> Job[Any]:
    @app.task(name="fail", retries=2, backoff="5ms")
    def fail(ctx: Context, order: int) -> None:
        raise Broken(f"number {ctx.attempt}")

    return fail.options(priority=20).enqueue(7)


def forbidden(app: Mainspring) -> Job[Any]:
    @app.task(name="fail", never_retry_on=(Broken,))
    def fail(order: int) -> None:
        raise Broken("once is enough")

    return fail.options(priority=20).enqueue(7)


def discarded(app: Mainspring) -> Job[Any]:
    @app.task(name="fail")
    def fail(order: int) -> None:
        raise Discard("worthless")

    return fail.options(priority=20).enqueue(7)


def timed_out(app: Mainspring) -> Job[Any]:
    @app.task(name="fail", retries=0)
    async def fail(order: int) -> None:
        import asyncio

        await asyncio.sleep(LIMIT)

    return fail.options(priority=20, timeout="50ms").enqueue(7)


def undecodable(app: Mainspring) -> Job[Any]:
    @app.task(name="fail")
    def fail(order: int, customer: str) -> None: ...

    publisher = Mainspring(app.settings.url, version="2030.1")  # does not know the task
    return publisher.call("fail", order=7, client=1).options(priority=20).enqueue()


CAUSES: list[tuple[Callable[[Mainspring], Job[Any]], Reason, list[Outcome], str]] = [
    (retried, Reason.RETRIES_EXHAUSTED, [Outcome.FAILED] * 3, "tests.rows.test_dead.Broken"),
    (forbidden, Reason.NOT_RETRYABLE, [Outcome.FAILED], "tests.rows.test_dead.Broken"),
    (discarded, Reason.NOT_RETRYABLE, [Outcome.FAILED], "mainspring.errors.Discard"),
    (timed_out, Reason.TIMED_OUT, [Outcome.TIMED_OUT], "mainspring.errors.HardTimeout"),
    (undecodable, Reason.UNDECODABLE, [Outcome.FAILED], "mainspring.errors.Undecodable"),
]


@pytest.mark.row("R6")
class TestLetter:
    @pytest.mark.parametrize(("make", "reason", "outcomes", "error"), CAUSES, ids=[each[0].__name__ for each in CAUSES])
    def test_a_dead_job_keeps_payload_options_every_error_times_and_version(
        self,
        versioned: Mainspring,
        make: Callable[[Mainspring], Job[Any]],
        reason: Reason,
        outcomes: list[Outcome],
        error: str,
    ) -> None:
        app = versioned
        job = make(app)
        with app.worker():
            job.join(timeout=LIMIT)
        letter = app.dead.get(job.id)
        assert (letter.task, letter.state, letter.reason) == ("fail", State.DEAD, reason)
        assert letter.args["order"] == 7
        assert (letter.priority, letter.options["crashes"]) == (20, 3)
        if make is timed_out:
            assert letter.options["timeout"] == "50ms"
        assert letter.code == "2030.1"
        assert letter.finished is not None
        assert letter.worker is not None
        assert [each.outcome for each in letter.attempts] == outcomes
        for each in letter.attempts:
            assert each.error is not None
            assert each.error.type == error
            assert each.error.traceback
            assert each.error.code == "2030.1", "the version that ran it"
        assert letter.attempts[0].started <= letter.attempts[-1].ended <= letter.finished
        assert letter.error == letter.attempts[-1].error
        [group] = app.dead.stats()
        assert (group.value, group.count) == (error, 1)

    def test_the_dead_letter_of_a_job_that_killed_its_worker(self, tasks: Tasks, crew: Crew) -> None:
        app = tasks.app
        crew.start()
        job = tasks.crash.enqueue(7)
        job.join(timeout=LIMIT)
        letter = app.dead.get(job.id)
        assert (letter.reason, letter.args) == (Reason.CRASHED, {"order": 7})
        assert [each.outcome for each in letter.attempts] == [Outcome.CRASHED]
        assert letter.options["crashes"] == 1
        [group] = app.dead.stats()
        assert (group.value, group.count) == ("crashed", 1)


def dead(app: Mainspring, calls: list[tuple[str, str]], **options: Any) -> list[Job[Any]]:
    """Jobs that died of an error: pairs of queue and kind of error."""
    fail = app.tasks.find("die")
    if fail is None:

        @app.task(name="die", retries=0)
        async def die(kind: str) -> None:
            raise {"value": ValueError, "key": KeyError, "broken": Broken}[kind](kind)

        fail = die
    jobs = app.enqueue_many(fail.s(kind).options(queue=queue, **options) for queue, kind in calls)
    with app.worker(queues=sorted({queue for queue, _ in calls})):
        for job in jobs:
            assert job.join(timeout=LIMIT).state is State.DEAD
    return jobs


def ids(jobs: Any) -> set[Any]:
    return {job.id for job in jobs}


@pytest.mark.row("R7")
class TestFind:
    def test_list_filters_by_error_and_pages(self, app: Mainspring) -> None:
        jobs = dead(app, [("a", "value")] * 3 + [("a", "key")] * 2)
        app.call("alive").enqueue()
        assert ids(app.dead.list().jobs) == ids(jobs)
        assert ids(app.dead.list(Query.where(errors=["KeyError"])).jobs) == ids(jobs[3:])
        assert ids(app.dead.list(jobs[0]).jobs) == {jobs[0].id}
        assert app.dead.list(Query()).jobs == ()
        first = app.dead.list(limit=4)
        second = app.dead.list(limit=4, cursor=first.cursor)
        assert (len(first.jobs), len(second.jobs)) == (4, 1)
        assert ids(first.jobs + second.jobs) == ids(jobs)

    def test_a_query_for_other_states_is_refused(self, app: Mainspring) -> None:
        with pytest.raises(InvalidOption, match="does not include the state dead"):
            app.dead.list(Query.where(states=["succeeded"]))

    def test_get_refuses_jobs_that_are_not_dead(self, app: Mainspring) -> None:
        alive = app.call("alive").enqueue()
        with pytest.raises(WrongState, match="is ready"):
            app.dead.get(alive.id)
        alive.delete()
        with pytest.raises(JobNotFound):
            app.dead.get(alive.id)

    def test_stats_by_error_task_and_queue(self, app: Mainspring) -> None:
        jobs = dead(app, [("a", "value")] * 3 + [("b", "key")])
        finished = [job.info().finished for job in jobs]
        by_error = app.dead.stats()
        assert [(group.value, group.count) for group in by_error] == [("ValueError", 3), ("KeyError", 1)]
        assert (by_error[0].first, by_error[0].last) == (min(finished[:3], key=str), max(finished[:3], key=str))
        assert [(group.value, group.count) for group in app.dead.stats(by="task")] == [("die", 4)]
        assert [(group.value, group.count) for group in app.dead.stats(by="queue")] == [("a", 3), ("b", 1)]
        with pytest.raises(InvalidOption, match="by"):
            app.dead.stats(by="colour")  # type: ignore[arg-type]

    async def test_the_async_methods_find_dead_jobs(self, app: Mainspring) -> None:
        assert (await app.dead.alist()).jobs == ()
        assert await app.dead.astats(by="task") == []
        with pytest.raises(JobNotFound):
            await app.dead.aget((await app.call("a").aenqueue()).id.hex.replace("7", "8", 1))


@pytest.mark.row("R7")
class TestRetry:
    def test_retry_of_one_job_or_by_error_keeps_lineage_and_sets_priority(self, app: Mainspring) -> None:
        jobs = dead(app, [("a", "value")] * 2 + [("a", "key")] * 2, priority="high")
        before = {job.id: job.info() for job in jobs}
        assert app.dead.retry(jobs[0]) == 1
        assert app.dead.retry(Query.where(errors=["KeyError"])) == 2
        assert ids(app.dead.list().jobs) == {jobs[1].id}
        for job in (jobs[0], jobs[2], jobs[3]):
            again = job.info()
            assert (again.state, again.epoch, again.priority) == (State.READY, 2, 50)
            assert (again.args, again.attempts) == (before[job.id].args, before[job.id].attempts)

    def test_retry_of_all_reads_pages_and_obeys_its_rate(self, app: Mainspring) -> None:
        dead(app, [("a", "value")] * 30)
        begun = time.monotonic()
        assert app.dead.retry(Query.everything(), rate=20) == 30
        assert time.monotonic() - begun >= 1.3, "30 jobs at 20 a second, two at a time"
        assert app.jobs.count()["ready"] == 30

    def test_retry_of_all_retries_each_job_once_even_if_it_dies_again(self, app: Mainspring) -> None:
        jobs = dead(app, [("a", "value")] * 150)
        with app.worker(queues=["a"]):
            assert app.dead.retry(Query.everything(), rate=None) == 150
            until(lambda: app.jobs.count()["dead"] == 150)
        assert {job.info().epoch for job in jobs} == {2}

    def test_retry_leaves_jobs_that_are_not_dead(self, app: Mainspring) -> None:
        [cancelled] = app.enqueue_many([app.call("a")])
        cancelled.cancel()
        dead(app, [("a", "value")])
        assert app.dead.retry(Query.everything()) == 1
        assert cancelled.info().state is State.CANCELLED
        for empty in (Query(), Query.where()):
            with pytest.raises(InvalidOption, match=r"pass Query\.everything\(\)"):
                app.dead.retry(empty)

    async def test_the_async_method_retries(self, app: Mainspring) -> None:
        job = await app.call("a").aenqueue()
        assert await app.dead.aretry(job, rate=None) == 0


@pytest.mark.row("R7")
class TestDelete:
    def test_delete_by_query_by_age_and_by_both(self, app: Mainspring) -> None:
        died = max(died_at(job.info()) for job in dead(app, [("a", "value")] * 2))
        until(lambda: time.time() > died + 2)
        dead(app, [("a", "value"), ("a", "key"), ("b", "key")])
        alive = app.call("alive").enqueue()

        def age_of_the_first_two() -> float:
            return time.time() - died - 0.001

        assert app.dead.delete(older_than="1h") == 0
        assert app.dead.delete(Query.where(errors=["KeyError"]), older_than=age_of_the_first_two()) == 0
        assert app.dead.delete(older_than=age_of_the_first_two()) == 2
        assert app.dead.delete(Query.where(queues=["b"])) == 1
        assert app.dead.delete(Query.everything()) == 2
        assert alive.info().state is State.READY

    def test_delete_without_a_condition_is_refused(self, app: Mainspring) -> None:
        with pytest.raises(InvalidOption, match="older_than"):
            app.dead.delete()
        with pytest.raises(InvalidOption, match=r"pass Query\.everything\(\)"):
            app.dead.delete(Query())
        with pytest.raises(InvalidOption, match="older_than"):
            app.dead.delete(older_than="soon")

    async def test_the_async_method_deletes(self, app: Mainspring) -> None:
        assert await app.dead.adelete(older_than="1h") == 0


def died_at(info: JobInfo) -> float:
    assert info.finished is not None
    return info.finished.timestamp()


@pytest.mark.row("R7")
def test_a_retry_of_all_is_atomic_for_each_job(app: Mainspring) -> None:
    """Two callers retry all dead jobs at once: each job is retried once, and the two returned numbers add up."""
    dead(app, [("a", "value")] * 120)
    done: list[int] = []

    def retry() -> None:
        done.append(app.dead.retry(Query.everything(), rate=None))

    callers = [threading.Thread(target=retry) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(LIMIT)
    assert sum(done) == 120
    assert {info.epoch for info in app.jobs.iterate()} == {2}
