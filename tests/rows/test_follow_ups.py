"""W12, second half: a follow-up job is inserted in the step that ends the job it follows; never lost, never doubled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any
from uuid import UUID

import pytest

from mainspring import Concurrency, Job, JobInfo, Mainspring, Query
from mainspring.client.blocking import run
from mainspring.errors import InvalidOption
from mainspring.states import Action, Reason, State
from tests.rows.crew import until
from tests.rows.followed import Followed
from tests.rows.test_keys import ROOT

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


class Chain:
    """First, second, third, fourth: each follows the end of the one before; the third one dies."""

    def __init__(self, app: Mainspring) -> None:
        self.app = app
        self.got: dict[str, list[UUID]] = {"second": [], "third": [], "fourth": []}

        @app.task(name="fourth", queue="last", priority=7, tags=["end"])
        def fourth(job: UUID) -> None:
            self.got["fourth"].append(job)

        @app.task(name="third", retries=0, on_dead=fourth, on_success="never")
        async def third(job: UUID) -> None:
            self.got["third"].append(job)
            raise ValueError("dies")

        @app.task(name="second", on_success=third, on_cancel="fourth")
        def second(job: UUID) -> None:
            self.got["second"].append(job)

        @app.task(name="first", on_success=second)
        def first() -> None: ...

        self.first = first

    def below(self, job: UUID) -> list[JobInfo]:
        """The jobs that follow this one, one below the other."""
        found: list[JobInfo] = []
        while followers := list(self.app.jobs.list(Query.where(parent=job)).jobs):
            [info] = followers
            found.append(info)
            job = info.id
        return found

    def live(self) -> int:
        return self.app.jobs.count(Query.everything()).live


def test_follow_ups_of_follow_ups_are_ordinary_jobs_to_any_depth(app: Mainspring) -> None:
    chain = Chain(app)
    with app.worker():
        job = chain.first.enqueue()
        until(lambda: chain.got["fourth"] and not chain.live(), "the last job of the chain has ended")
    second, third, fourth = chain.below(job.id)
    assert [info.task for info in (second, third, fourth)] == ["second", "third", "fourth"]
    assert chain.got == {"second": [job.id], "third": [second.id], "fourth": [third.id]}
    assert third.state is State.DEAD
    assert (fourth.queue, fourth.priority, fourth.tags, fourth.trace) == ("last", 7, ("end",), job.id.hex)
    assert app.jobs.count(Query.everything()).total == 4


def test_a_chain_of_follow_ups_is_made_once_for_each_epoch(app: Mainspring) -> None:
    chain = Chain(app)
    with app.worker():
        job = chain.first.enqueue()
        until(lambda: chain.got["fourth"] and not chain.live(), "the first chain has ended")
        [second, third, _] = chain.below(job.id)
        app.jobs.get(third.id).retry()
        until(lambda: len(chain.got["fourth"]) == 2 and not chain.live(), "the third job has died again")
        job.retry()
        until(lambda: len(chain.got["fourth"]) == 3 and not chain.live(), "the whole chain has run again")
    assert chain.got["second"] == [job.id] * 2
    assert len(set(chain.got["third"])) == 2
    assert chain.got["third"][0] == second.id
    assert chain.got["fourth"][:2] == [third.id] * 2
    assert chain.got["fourth"][2] not in chain.got["fourth"][:2]
    assert app.jobs.count(Query.everything()).total == 1 + 2 + 2 + 3


def test_a_cancelled_follow_up_has_its_own_follow_up_at_once(app: Mainspring) -> None:
    """No worker runs, and no code of the user."""

    @app.task(name="second", on_cancel="third", queue="unserved")
    def second(job: UUID) -> None: ...

    @app.task(name="first", on_cancel=second)
    def first() -> None: ...

    job = first.enqueue()
    job.cancel()
    [info] = children(app, job)
    app.jobs.get(info.id).cancel()
    [last] = children(app, app.jobs.get(info.id))
    assert (last.task, last.parent, last.state) == ("third", info.id, State.READY)
    assert [str(info.id) in text for text in map(str, last.args.values())] == [True]


@pytest.mark.option("task.limit", "task.breaker")
def test_a_follow_up_obeys_the_limits_of_its_task(app: Mainspring) -> None:
    running, most, ran = 0, 0, 0
    lock = threading.Lock()

    @app.task(name="second", limit=Concurrency(1), breaker={})
    def second(job: UUID) -> None:
        nonlocal running, most, ran
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1
            ran += 1

    @app.task(name="first", on_success=second)
    def first(n: int) -> None: ...

    jobs = app.enqueue_many([first.s(n) for n in range(20)])
    with app.worker(concurrency={"default": 8}):
        until(lambda: ran == 20, "all follow-ups have run")
    assert most == 1
    assert [len(children(app, job)) for job in jobs] == [1] * 20


def test_a_chain_of_follow_ups_without_end_is_refused(app: Mainspring) -> None:
    @app.task(name="third", on_dead="first")
    def third(job: UUID) -> None: ...

    @app.task(name="second", on_success=third)
    def second(job: UUID) -> None: ...

    @app.task(name="first", on_success=second)
    def first(job: UUID | None = None) -> None: ...

    @app.task(name="self", on_dead="self")
    def itself(job: UUID) -> None: ...

    with pytest.raises(InvalidOption, match=r"(?s)task 'third': on_dead='first': .*first -> second -> third -> first"):
        first.enqueue()
    with pytest.raises(InvalidOption, match=r"(?s)without end: self -> self.*enqueue 'self' inside"):
        itself.enqueue(UUID(int=1))
    assert app.jobs.count(Query.everything()).total == 0


def test_a_job_with_too_many_follow_ups_is_refused(app: Mainspring) -> None:
    """Each level has three times as many jobs as the level before."""

    def body(job: UUID | None = None) -> None: ...

    last: Any = "elsewhere"
    tasks = []
    for n in range(4):
        last = app.task(name=f"level-{n}", on_success=last, on_dead=last, on_cancel=last)(body)
        tasks.append(last)
    tasks[2].enqueue()  # 3 + 9 + 27 jobs; the next level has 120
    with pytest.raises(InvalidOption, match="more than 100 follow-up jobs of one job of the task 'level-3'"):
        tasks[3].enqueue()


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


def test_a_job_that_snoozes_until_its_children_have_ended_combines_their_results(app: Mainspring) -> None:
    """A follow-up would start when the parent ends; this waits for the children, and keeps no slot."""
    from mainspring import Context, Snooze

    @app.task(name="page")
    def page(n: int) -> int:
        return n * 10

    @app.task(name="total")
    def total(ctx: Context, pages: int) -> int:
        found = [ctx.spawn(page.s(n)) for n in range(pages)]
        if not all(child.info().final for child in found):
            raise Snooze(for_="20ms")
        return sum(child.result() for child in found)

    with app.worker(concurrency={"default": 1}):
        job = total.enqueue(5)
        assert job.result(timeout=LIMIT) == 100
    assert (len(children(app, job)), job.info().attempt) == (5, 1)
