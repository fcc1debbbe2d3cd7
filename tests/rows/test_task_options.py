"""Each option of a task and of a job does what it says; tests of other rows prove the rest of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from mainspring import Context, Mainspring, Query
from mainspring.errors import InvalidOption
from mainspring.jobs.outcomes import Outcome
from mainspring.states import Reason, State

pytestmark = pytest.mark.stores("sqlite")

LIMIT = 60


def number(n: int = 0) -> int:
    return n


@pytest.mark.option("task.priority", "job.priority")
def test_the_priority_of_the_task_applies_unless_the_job_has_its_own(app: Mainspring) -> None:
    ran: list[str] = []

    @app.task(name="low", priority="low")
    def low(which: str) -> None:
        ran.append(which)

    @app.task(name="usual")
    def usual(which: str) -> None:
        ran.append(which)

    jobs = [
        low.enqueue("low"),
        usual.enqueue("usual"),
        low.options(priority="critical").enqueue("raised"),
    ]
    assert [job.info().priority for job in jobs] == [-50, 0, 100]
    with app.worker(thread_slots=1):
        for job in jobs:
            job.join(timeout=LIMIT)
    assert ran == ["raised", "usual", "low"]


@pytest.mark.option("job.timeout", "task.timeout")
def test_the_time_limit_of_a_job_overrides_that_of_the_task_and_none_disables_it(app: Mainspring) -> None:
    def wait(ctx: Context, seconds: float) -> str:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            ctx.check()
            time.sleep(0.01)
        return "done"

    short = app.task(name="short", timeout="50ms", retries=0)(wait)
    long = app.task(name="long", timeout="1h", retries=0)(wait)
    with app.worker():
        ended = [short.enqueue(LIMIT), long.options(timeout="50ms").enqueue(LIMIT)]
        finished = [short.options(timeout=None).enqueue(0.3), short.options(timeout="30s").enqueue(0.3)]
        assert [job.join(timeout=LIMIT).reason for job in ended] == [Reason.TIMED_OUT] * 2
        assert [job.result(timeout=LIMIT) for job in finished] == ["done"] * 2
    assert [attempt.outcome for attempt in ended[0].info().attempts] == [Outcome.TIMED_OUT]


@pytest.mark.option("task.retries", "job.retries")
def test_the_retries_of_the_task_apply_unless_the_job_has_its_own(app: Mainspring) -> None:
    @app.task(name="fails", retries=2, backoff="1ms")
    def fails() -> None:
        raise ValueError

    with app.worker():
        jobs = [fails.enqueue(), fails.options(retries=0).enqueue()]
        assert [len(job.join(timeout=LIMIT).attempts) for job in jobs] == [3, 1]


@pytest.mark.option("task.queue", "job.queue")
def test_the_queue_of_the_task_applies_unless_the_job_has_its_own(app: Mainspring) -> None:
    task = app.task(name="a", queue="of-the-task")(number)
    one, other = task.enqueue(1), task.options(queue="of-the-job").enqueue(2)
    with app.worker(queues=["of-the-job"]):
        assert other.result(timeout=LIMIT) == 2
    assert one.info().state is State.READY
    with app.worker():
        assert one.result(timeout=LIMIT) == 1


@pytest.mark.option("task.tags", "job.tags")
def test_a_job_is_found_by_the_tags_of_its_task_and_its_own(app: Mainspring) -> None:
    task = app.task(name="a", tags=["shop"])(number)
    plain, tagged = task.enqueue(), task.options(tags=["eu", "vip"]).enqueue()
    other = app.task(name="b")(number).options(tags=["eu"]).enqueue()

    def found(*tags: str) -> set[Any]:
        return {info.id for info in app.jobs.list(Query.where(tags=tags)).jobs}

    assert found("shop") == {plain.id, tagged.id}
    assert found("eu") == {tagged.id, other.id}
    assert found("eu", "shop") == {tagged.id}, "tags add up"
    assert found("nobody") == set()
    assert tagged.info().tags == ("shop", "eu", "vip")


@pytest.mark.option("task.meta", "job.meta")
def test_the_handler_and_job_info_have_the_meta_of_task_and_job(app: Mainspring) -> None:
    @app.task(name="a", meta={"team": "shop", "level": 1})
    def told(ctx: Context) -> dict[str, Any]:
        return dict(ctx.meta)

    expected = {"team": "shop", "level": 2, "order": {"id": 7}}
    with app.worker():
        job = told.options(meta={"level": 2}).s().options(meta={"order": {"id": 7}}).enqueue()
        assert job.result(timeout=LIMIT) == expected == job.info().meta
        assert told.enqueue().result(timeout=LIMIT) == {"team": "shop", "level": 1}


@pytest.mark.option("task.name", "task.aliases")
def test_a_task_is_found_by_its_name_and_by_its_aliases(app: Mainspring) -> None:
    before = Mainspring(app.settings.url)
    waiting = before.task(name="shop.old_name")(number).enqueue(1)
    renamed = app.task(name="shop.new_name", aliases=["shop.old_name"])(number)
    assert renamed.name == "shop.new_name"
    assert app.task(number).name == f"{__name__}.number"
    with app.worker():
        assert renamed.job(waiting.id).result(timeout=LIMIT) == 1
        assert app.call("shop.old_name", 2).task == "shop.new_name"
        assert app.call("shop.new_name", 2).enqueue().result(timeout=LIMIT) == 2
    before.close()


async def on_the_loop() -> str:
    return threading.current_thread().name


@pytest.mark.option("task.executor")
@pytest.mark.parametrize(("executor", "fn"), [("async", number), ("thread", on_the_loop)])
def test_an_executor_that_does_not_fit_the_function_is_refused(
    app: Mainspring, executor: Any, fn: Callable[..., Any]
) -> None:
    with pytest.raises(InvalidOption, match=f"executor='{executor}': does not fit a"):
        app.task(executor=executor)(fn)


@pytest.mark.option("task.executor")
def test_an_executor_that_fits_decides_where_the_task_runs(app: Mainspring) -> None:
    threaded = app.task(name="t", executor="thread")(number)
    looped = app.task(name="l", executor="async")(on_the_loop)
    assert [task.s().new_job().kind for task in (threaded, looped)] == ["thread", "async"]


@pytest.mark.option("task.soft_timeout")
def test_a_soft_limit_must_be_shorter_than_the_hard_limit(app: Mainspring) -> None:
    with pytest.raises(InvalidOption, match="soft_timeout must be shorter than timeout"):
        app.task(soft_timeout="5s", timeout="5s")(number)
    with pytest.raises(InvalidOption, match="soft_timeout must be shorter than timeout"):
        app.task(name="x", soft_timeout="5s")(number).options(timeout="2s")
