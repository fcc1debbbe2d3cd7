"""W16, B18: one call for many jobs, and an answer for each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from mainspring import AsyncContext, Cancel, Context, Discard, Mainspring, Retry, Snooze, Task
from mainspring.errors import JobCancelled, JobDead
from mainspring.jobs.job import Job
from mainspring.jobs.outcomes import Outcome
from mainspring.states import Reason, State
from tests.rows.crew import until

LIMIT = 60

pytestmark = pytest.mark.row("W16")


def bulk(app: Mainspring, colour: str, work: Callable[[list[Any]], Sequence[Any]], **options: Any) -> Task[[Any], Any]:
    """A bulk task of either colour that does ``work``; its jobs are tried once unless ``options`` say otherwise."""
    declare: Any = app.bulk_task(**{"name": "bulk", "retries": 0, "backoff": "10ms", **options})

    def plain(items: list[Any]) -> Sequence[Any]:
        return work(items)

    async def awaited(items: list[Any]) -> Sequence[Any]:
        return work(items)

    made: Task[[Any], Any] = declare(plain if colour == "def" else awaited)
    return made


def many(task: Task[[Any], Any], items: Sequence[Any]) -> list[Job[Any]]:
    return task.enqueue_many(task.s(item) for item in items)


@pytest.mark.row("B18")
@pytest.mark.option("bulk.size")
@pytest.mark.parametrize("colour", ["def", "async def"])
def test_many_jobs_run_in_few_calls_and_each_caller_gets_its_own_result(app: Mainspring, colour: str) -> None:
    calls: list[list[int]] = []

    def work(items: list[int]) -> list[str]:
        calls.append(items)
        return [f"result of {item}" for item in items]

    task = bulk(app, colour, work, size=50)
    jobs = many(task, range(400))
    with app.worker():
        results = [job.result(timeout=LIMIT) for job in jobs]
    assert results == [f"result of {n}" for n in range(400)]
    assert len(calls) <= 20
    assert max(map(len, calls)) == 50
    assert sorted(item for call in calls for item in call) == list(range(400))


@pytest.mark.parametrize("colour", ["def", "async def"])
def test_an_error_outcome_retries_only_its_own_job(app: Mainspring, colour: str) -> None:
    calls: list[list[int]] = []

    def work(items: list[int]) -> list[Any]:
        calls.append(items)
        return [ValueError(f"not {item}") if item == 3 and len(calls) == 1 else item * 2 for item in items]

    jobs = many(bulk(app, colour, work, size=10, retries=1), range(10))
    with app.worker():
        assert [job.result(timeout=LIMIT) for job in jobs] == [n * 2 for n in range(10)]
    assert calls[1:] == [[3]]
    infos = [job.info() for job in jobs]
    assert [info.attempt for info in infos] == [1, 1, 1, 2, 1, 1, 1, 1, 1, 1]
    [failed] = infos[3].attempts
    assert failed.outcome is Outcome.FAILED
    assert failed.error is not None
    assert failed.error.message == "not 3"


def test_the_decorator_works_without_parentheses(app: Mainspring) -> None:
    @app.bulk_task
    def double(items: list[int]) -> list[int]:
        return [2 * item for item in items]

    @app.bulk_task
    async def adouble(items: list[int]) -> list[int]:
        return [2 * item for item in items]

    with app.worker():
        jobs = [double.enqueue(1), adouble.enqueue(2)]
        assert [job.result(timeout=LIMIT) for job in jobs] == [2, 4]


def test_an_error_class_as_outcome_is_an_error(app: Mainspring) -> None:
    job = bulk(app, "def", lambda items: [ConnectionError for _ in items]).enqueue(1)
    with app.worker(), pytest.raises(JobDead, match="ConnectionError"):
        job.result(timeout=LIMIT)


def test_each_outcome_follows_the_policy_of_its_job(app: Mainspring) -> None:
    """Signals are obeyed, ``retry_on`` and ``never`` apply, and the job's own number of retries counts."""
    seen: list[str] = []
    answers = {
        "retry": Retry(after="10ms"), "snooze": Snooze("10ms"), "cancel": Cancel("no"), "discard": Discard("bad"),
        "never": KeyError("never"), "no retries": ValueError("once"),
    }  # fmt: skip

    def work(items: list[str]) -> list[Any]:
        first = [item not in seen for item in items]
        seen.extend(items)
        return [answers.get(item, item) if new else f"{item} again" for item, new in zip(items, first, strict=True)]

    task = bulk(app, "def", work, size=10, retries=2, never_retry_on=KeyError)
    jobs = {item: task.s(item) for item in ("good", *answers)}
    jobs["no retries"] = jobs["no retries"].options(retries=0)
    made = dict(zip(jobs, task.enqueue_many(jobs.values()), strict=True))
    with app.worker():
        infos = {item: job.join(timeout=LIMIT) for item, job in made.items()}
    assert [made[item].result() for item in ("good", "retry", "snooze")] == ["good", "retry again", "snooze again"]
    assert [infos[item].attempt for item in ("good", "retry", "snooze")] == [1, 2, 1]
    assert infos["cancel"].state is State.CANCELLED
    assert {item: infos[item].reason for item in ("discard", "never", "no retries")} == {
        "discard": Reason.NOT_RETRYABLE, "never": Reason.NOT_RETRYABLE, "no retries": Reason.FAILED,
    }  # fmt: skip


@pytest.mark.parametrize("colour", ["def", "async def"])
def test_an_exception_of_the_handler_fails_every_job_of_the_call(app: Mainspring, colour: str) -> None:
    calls: list[list[int]] = []

    def work(items: list[int]) -> list[int]:
        calls.append(items)
        if len(calls) == 1:
            raise ConnectionError("all of it")
        return items

    task = bulk(app, colour, work, size=3, retries=1, wait="500ms")
    jobs = task.enqueue_many([task.s(1), task.s(2).options(retries=0), task.s(3)])
    with app.worker():
        assert (jobs[0].result(timeout=LIMIT), jobs[2].result(timeout=LIMIT)) == (1, 3)
        with pytest.raises(JobDead, match="all of it"):
            jobs[1].result(timeout=LIMIT)
    assert [len(call) for call in calls] == [3, 2]


@pytest.mark.parametrize(
    ("value", "says"),
    [([1], "1 outcomes for 2 items"), (None, "returned None"), ("ab", "returned a str"), ({1: 2}, "returned a dict")],
)
@pytest.mark.stores("sqlite")
def test_a_wrong_number_or_type_of_outcomes_fails_every_job_of_the_call(app: Mainspring, value: Any, says: str) -> None:
    jobs = many(bulk(app, "def", lambda _: value, size=2, wait="5s"), [1, 2])
    with app.worker():
        for job in jobs:
            with pytest.raises(JobDead, match=says):
                job.result(timeout=LIMIT)


@pytest.mark.option("bulk.wait")
@pytest.mark.parametrize("colour", ["def", "async def"])
def test_a_call_waits_for_more_items_and_starts_when_it_is_full(app: Mainspring, colour: str) -> None:
    calls: list[list[int]] = []

    def work(items: list[int]) -> list[int]:
        calls.append(items)
        return items

    task = bulk(app, colour, work, size=5, wait="1h")
    with app.worker(async_slots=1, thread_slots=1):
        jobs = [task.enqueue(n) for n in range(4)]
        until(lambda: all(job.info().state is State.RUNNING for job in jobs), "all are claimed")
        assert calls == []
        jobs.append(task.enqueue(4))
        assert [job.result(timeout=LIMIT) for job in jobs] == [0, 1, 2, 3, 4]
    assert [sorted(call) for call in calls] == [[0, 1, 2, 3, 4]]


def test_a_call_that_is_not_full_starts_after_its_wait(app: Mainspring) -> None:
    calls: list[list[int]] = []

    def work(items: list[int]) -> list[int]:
        calls.append(items)
        return items

    jobs = many(bulk(app, "def", work, size=50, wait="100ms"), range(7))
    with app.worker():
        assert [job.result(timeout=LIMIT) for job in jobs] == list(range(7))
    assert calls == [list(range(7))]


@pytest.mark.option("bulk.by")
@pytest.mark.parametrize("by", ["tenant.name", lambda item: item["tenant"]["name"]], ids=["path", "function"])
def test_only_items_with_equal_values_share_a_call(app: Mainspring, by: Any) -> None:
    calls: list[set[str]] = []

    def work(items: list[dict[str, Any]]) -> list[int]:
        calls.append({item["tenant"]["name"] for item in items})
        return [item["n"] for item in items]

    task = bulk(app, "def", work, size=30, by=by)
    jobs = many(task, [{"n": n, "tenant": {"name": "abc"[n % 3]}} for n in range(30)])
    with app.worker():
        assert [job.result(timeout=LIMIT) for job in jobs] == list(range(30))
    assert [len(call) for call in calls] == [1] * len(calls)
    assert len(calls) <= 9


@pytest.mark.parametrize("colour", ["def", "async def"])
def test_a_cancelled_job_leaves_the_others_of_its_call_alone(app: Mainspring, colour: str) -> None:
    """The job is cancelled whatever outcome the handler returns for it. The handler is not interrupted."""
    begun = threading.Event()

    @app.bulk_task(name="plain", size=3, wait="1h")
    def plain(ctx: Context, items: list[int]) -> list[int]:
        begun.set()
        until(lambda: ctx.jobs[1].cancelled, "the order has come")
        ctx.check()
        return items

    @app.bulk_task(name="awaited", size=3, wait="1h")
    async def awaited(ctx: AsyncContext, items: list[int]) -> list[int]:
        begun.set()
        while not ctx.jobs[1].cancelled:  # noqa: ASYNC110 - the order comes by a turn of the worker
            await asyncio.sleep(0.01)
        ctx.check()
        return items

    task: Any = plain if colour == "def" else awaited
    jobs = many(task, [1, 2, 3])
    with app.worker():
        assert begun.wait(LIMIT)
        assert jobs[1].cancel("not wanted")
        assert (jobs[0].result(timeout=LIMIT), jobs[2].result(timeout=LIMIT)) == (1, 3)
        with pytest.raises(JobCancelled, match="not wanted"):
            jobs[1].result(timeout=LIMIT)


@pytest.mark.parametrize("colour", ["def", "async def"])
def test_a_call_ends_when_all_its_jobs_are_cancelled(app: Mainspring, colour: str) -> None:
    begun, ended = threading.Event(), threading.Event()
    never = threading.Event()

    @app.bulk_task(name="plain", size=2, wait="1h")
    def plain(items: list[int]) -> list[int]:
        begun.set()
        try:
            while not never.wait(0.01):
                pass
        finally:
            ended.set()
        return items

    @app.bulk_task(name="awaited", size=2, wait="1h")
    async def awaited(items: list[int]) -> list[int]:
        begun.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()
        return items

    task: Any = plain if colour == "def" else awaited
    jobs = many(task, [1, 2])
    with app.worker():
        assert begun.wait(LIMIT)
        for job in jobs:
            job.cancel("not wanted")
        assert ended.wait(LIMIT)
        assert [job.join(timeout=LIMIT).state for job in jobs] == [State.CANCELLED] * 2


def test_a_job_cancelled_while_its_call_gathers_never_starts(app: Mainspring) -> None:
    calls: list[list[int]] = []

    def work(items: list[int]) -> list[int]:
        calls.append(items)
        return items

    task = bulk(app, "def", work, size=3, wait="1h")
    with app.worker():
        jobs = many(task, [1, 2])
        until(lambda: all(job.info().state is State.RUNNING for job in jobs), "both are claimed")
        jobs[0].cancel()
        assert jobs[0].join(timeout=LIMIT).state is State.CANCELLED
        jobs += many(task, [3, 4])
        assert [job.result(timeout=LIMIT) for job in jobs[1:]] == [2, 3, 4]
    assert calls == [[2, 3, 4]]


def test_gathered_jobs_are_handed_back_when_the_worker_stops(app: Mainspring) -> None:
    task = bulk(app, "def", list, size=10, wait="1h")
    jobs = many(task, range(4))
    with app.worker():
        until(lambda: all(job.info().state is State.RUNNING for job in jobs), "all are claimed")
    infos = [job.info() for job in jobs]
    assert {(info.state, info.attempt, info.crashes) for info in infos} == {(State.READY, 0, 0)}
    jobs += many(task, range(4, 10))
    with app.worker():
        assert [job.result(timeout=LIMIT) for job in jobs] == list(range(10))


def test_jobs_enqueued_as_another_kind_of_task_run_in_the_bulk_task(app: Mainspring, store_url: str) -> None:
    """Enqueued by name, under an alias, or when the task was an ordinary task."""
    before = Mainspring(store_url)

    @before.task(name="bulk")
    def ordinary(item: int) -> int:
        raise AssertionError("never run here")

    @before.bulk_task(name="older")
    def older(items: list[int]) -> list[int]:
        raise AssertionError("never run here")

    jobs: list[Job[Any]] = [ordinary.enqueue(1), older.enqueue(2)]
    before.close()
    stranger = Mainspring(store_url)
    jobs += [stranger.call("bulk", 3).enqueue(), stranger.call("bulk", item=4).enqueue()]
    stranger.close()
    task = bulk(app, "def", lambda items: [item * 10 for item in items], size=5, wait="2s", aliases=["older"])
    jobs.append(task.enqueue(5))
    with app.worker():
        assert [app.jobs.get(job.id).result(timeout=LIMIT) for job in jobs] == [10, 20, 30, 40, 50]


def test_a_bulk_task_shares_its_slots_with_other_tasks(app: Mainspring) -> None:
    """One slot and a backlog of both kinds: jobs of both kinds run."""

    @app.task(name="one")
    def one(n: int) -> int:
        return n

    task = bulk(app, "def", list, size=5, wait=0)
    jobs = [*many(task, range(100)), *one.enqueue_many(one.s(n) for n in range(100))]
    with app.worker(thread_slots=1, async_slots=1):
        assert [job.result(timeout=LIMIT) for job in jobs] == [*range(100), *range(100)]


def test_the_concurrency_of_a_queue_counts_jobs_and_not_calls(app: Mainspring) -> None:
    calls: list[int] = []

    def work(items: list[int]) -> list[int]:
        calls.append(len(items))
        return items

    jobs = many(bulk(app, "def", work, size=10, wait=0, queue="slow"), range(12))
    with app.worker(concurrency={"slow": 3}):
        assert [job.result(timeout=LIMIT) for job in jobs] == list(range(12))
    assert max(calls) <= 3
