"""W12, second half: a follow-up job is inserted in the step that ends the job it follows; never lost, never doubled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Any
from uuid import UUID

import pytest

from mainspring import Job, JobInfo, Mainspring, Query
from mainspring.client.blocking import run
from mainspring.states import Action, Reason, State
from tests.rows.followed import Followed
from tests.rows.test_keys import ROOT, until

LIMIT = 60

pytestmark = [pytest.mark.row("W12"), pytest.mark.option("task.on_success", "task.on_dead", "task.on_cancel")]


@pytest.fixture
def followed(app: Mainspring) -> Followed:
    return Followed(app)


def children(app: Mainspring, job: Job[Any]) -> list[JobInfo]:
    return list(app.jobs.list(Query.where(parent=job.id)).jobs)


def supervisor_of(app: Mainspring) -> subprocess.Popen[bytes]:
    """Workers of the same tasks in processes of their own."""
    env = {**os.environ, "MAINSPRING_URL": app.settings.url}
    return subprocess.Popen([sys.executable, "-m", "tests.rows.followed"], cwd=ROOT, env=env)


def names(infos: list[JobInfo]) -> list[str]:
    return [info.task for info in infos]


@pytest.mark.parametrize(
    ("how", "state", "reason", "task"),
    [
        ("well", State.SUCCEEDED, None, "follow.succeeded"),
        ("fail once", State.SUCCEEDED, None, "follow.succeeded"),
        ("fail", State.DEAD, Reason.RETRIES_EXHAUSTED, "follow.dead"),
        ("discard", State.DEAD, Reason.NOT_RETRYABLE, "follow.dead"),
        ("cancel", State.CANCELLED, Reason.BY_USER, "follow.cancelled"),
    ],
)
def test_each_end_of_a_handler_makes_its_follow_up(
    followed: Followed, how: str, state: State, reason: Reason | None, task: str
) -> None:
    app = followed.app
    with app.worker():
        job = followed.work.enqueue(how)
        info = job.join(timeout=LIMIT)
        [child] = children(app, job)
        assert app.jobs.get(child.id).result(timeout=LIMIT) == f"{task.rpartition('.')[2]} {job.id}"
    assert (info.state, info.reason) == (state, reason)
    assert (child.task, child.parent, child.trace, child.queue) == (task, job.id, job.id.hex, "follow")
    assert names(children(app, job)) == [task]


def test_a_job_cancelled_while_it_waits_has_its_follow_up(followed: Followed) -> None:
    for job in (followed.work.enqueue("well"), followed.work.options(delay="1h").enqueue("well")):
        assert children(followed.app, job) == []
        assert job.cancel("changed my mind")
        assert names(children(followed.app, job)) == ["follow.cancelled"], "at once: no worker is needed"
        assert not job.cancel()
        assert names(children(followed.app, job)) == ["follow.cancelled"]


def test_a_job_cancelled_while_it_runs_has_its_follow_up(app: Mainspring) -> None:
    begun, go_on = threading.Event(), threading.Event()

    @app.task(name="slow", on_cancel="elsewhere", on_success="not.this")
    def slow() -> None:
        begun.set()
        go_on.wait(LIMIT)

    with app.worker():
        job = slow.enqueue()
        assert begun.wait(LIMIT)
        job.cancel()
        go_on.set()
        assert job.join(timeout=LIMIT).state is State.CANCELLED
    assert names(children(app, job)) == ["elsewhere"]


def test_an_expired_job_has_its_follow_up(followed: Followed) -> None:
    job = followed.work.options(expires="20ms", queue="unserved").enqueue("well")
    with followed.app.worker():
        info = job.join(timeout=LIMIT)
        assert (info.state, info.reason) == (State.CANCELLED, Reason.EXPIRED)
    assert names(children(followed.app, job)) == ["follow.cancelled"]


def test_a_superseded_job_has_its_follow_up(followed: Followed) -> None:
    from mainspring import Key

    keyed = followed.work.options(key=Key("k", on_conflict="replace"))
    first, second = keyed.enqueue("well"), keyed.enqueue("well")
    assert names(children(followed.app, first)) == ["follow.cancelled"]
    assert children(followed.app, second) == []


def test_a_job_that_cannot_be_decoded_has_its_follow_up(app: Mainspring) -> None:
    older = Mainspring(app.settings.url)
    before = older.task(name="changed", on_dead="elsewhere")(lambda old_name: None)
    job = before.enqueue(1)

    @app.task(name="changed")
    def changed(new_name: int) -> None: ...

    with app.worker():
        assert job.join(timeout=LIMIT).reason is Reason.UNDECODABLE
    assert names(children(app, job)) == ["elsewhere"], "as its producer said, not as this worker's code does"
    older.close()


@pytest.mark.option("task.crashes")
def test_a_job_that_kills_its_worker_has_its_follow_up(followed: Followed) -> None:
    """No user code runs at that moment: the supervisor reports the death, and another worker runs the follow-up."""
    job = followed.work.enqueue("crash")
    supervisor = supervisor_of(followed.app)
    try:
        info = job.join(timeout=LIMIT)
        assert (info.state, info.reason, info.crashes) == (State.DEAD, Reason.CRASHED, 1)
        [child] = children(followed.app, job)
        assert followed.app.jobs.get(child.id).result(timeout=LIMIT) == f"dead {job.id}"
        others = [followed.work.enqueue("well") for _ in range(5)]
        for other in others:
            assert other.join(timeout=LIMIT).state is State.SUCCEEDED
    finally:
        supervisor.send_signal(signal.SIGTERM)
        assert supervisor.wait(LIMIT) == 0
    assert names(children(followed.app, job)) == ["follow.dead"]
    assert [names(children(followed.app, other)) for other in others] == [["follow.succeeded"]] * 5


def test_no_follow_up_is_lost_or_doubled_in_a_hundred_ends_with_kills(followed: Followed) -> None:
    app = followed.app
    hows = ["well", "fail", "discard", "cancel", "fail once"]
    jobs = [followed.work.enqueue(hows[n % 5]) for n in range(100)]
    jobs += [followed.work.enqueue("crash") for _ in range(2)]
    supervisors = [supervisor_of(app) for _ in range(2)]
    try:
        until(lambda: app.jobs.count(Query.where(tasks=["work"], states=["dead"])).total > 0, "some have ended")
        supervisors[0].kill()
        ended = {job.id: job.join(timeout=LIMIT).state for job in jobs}
        until(lambda: app.jobs.count(Query.where(queues=["follow"])).live == 0, "the follow-ups have run")
    finally:
        for supervisor in supervisors:
            supervisor.terminate()
            supervisor.wait(LIMIT)
    found = list(app.jobs.iterate(Query.where(queues=["follow"])))
    assert sorted(str(info.parent) for info in found) == sorted(map(str, ended))
    assert {info.state for info in found} == {State.SUCCEEDED}
    assert all(info.task == f"follow.{ended[info.parent].value}" for info in found if info.parent)


def test_a_retry_by_hand_has_a_follow_up_of_its_own(followed: Followed) -> None:
    with followed.app.worker():
        job = followed.work.enqueue("fail")
        job.join(timeout=LIMIT)
        job.retry()
        until(lambda: len(children(followed.app, job)) == 2, "the second life has ended too")
        for child in children(followed.app, job):
            followed.app.jobs.get(child.id).join(timeout=LIMIT)
    assert names(children(followed.app, job)) == ["follow.dead"] * 2


def test_a_deleted_job_has_no_follow_up(followed: Followed) -> None:
    job = followed.work.enqueue("well")
    job.delete()
    assert followed.app.jobs.count(Query.everything()).total == 0


def test_an_end_reported_twice_makes_one_follow_up(followed: Followed) -> None:
    """After a lost reply the worker sends the same order again."""
    job = followed.work.enqueue("well")

    async def cancel() -> None:
        store = await followed.app.client.store()
        for _ in range(3):
            await store.act(Action.CANCEL, Query.of(job.id))

    run("cancel", cancel())
    assert names(children(followed.app, job)) == ["follow.cancelled"]


def test_a_complete_call_follows_with_its_own_arguments_and_options(app: Mainspring) -> None:
    said: list[str] = []

    @app.task(name="tell")
    def tell(text: str) -> None:
        said.append(text)

    @app.task(name="work", on_success=tell.s("well done").options(priority=7, tags=["praise"]))
    def work() -> None: ...

    with app.worker():
        job = work.enqueue()
        until(lambda: said, "the call has run")
    [child] = children(app, job)
    assert (said, child.priority, child.tags) == (["well done"], 7, ("praise",))


def test_a_follow_up_has_no_follow_up(app: Mainspring) -> None:
    """Follow-ups are one level deep."""

    @app.task(name="second", on_success="third")
    def second(job: UUID) -> None: ...

    @app.task(name="first", on_success=second)
    def first() -> None: ...

    with app.worker():
        job = first.enqueue()
        job.join(timeout=LIMIT)
        [child] = children(app, job)
        app.jobs.get(child.id).join(timeout=LIMIT)
    assert sorted(info.task for info in app.jobs.list().jobs) == ["first", "second"]


def test_the_follow_up_of_a_spawned_job_shares_the_trace(app: Mainspring) -> None:
    from mainspring import Context

    child_task = app.task(name="child", on_success="elsewhere")(lambda: None)

    @app.task(name="parent")
    def parent(ctx: Context) -> UUID:
        return ctx.spawn(child_task.s()).id

    with app.worker():
        job = parent.enqueue()
        child = app.jobs.get(job.result(timeout=LIMIT))
        child.join(timeout=LIMIT)
    [last] = children(app, child)
    assert (last.task, last.trace, last.parent) == ("elsewhere", job.id.hex, child.id)
