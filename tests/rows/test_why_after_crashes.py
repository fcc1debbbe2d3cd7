"""B5: ``why()`` of a job that waits because its worker, or the process that it ran in, crashed."""

from __future__ import annotations

import threading
from datetime import timedelta

import msgspec
import pytest

from mainspring import Mainspring
from mainspring.client.blocking import run as blocking
from mainspring.codec import ErrorRecord
from mainspring.jobs.outcomes import Ack, Lease, Outcome
from mainspring.states import Reason, State
from mainspring.worker.records import Beat, Registration, Turn, Want
from tests.rows.crew import LIMIT, until

pytestmark = pytest.mark.row("B5")


def crash(app: Mainspring, name: str, jobs: int) -> None:
    """A worker claims this number of jobs and crashes."""

    async def claim_and_crash() -> None:
        store = await app.client.store()
        (beaten,) = await store.beat([Beat(name, Registration(queues=("default",)))])
        said = await store.turn(Turn(worker=name, number=1, seen=0, wants=(Want(("default/thread",), jobs),)))
        assert len(said.claims) == jobs
        assert (await store.rescue(name, beaten.number, Outcome.CRASHED)).taken

    blocking("claim_and_crash", claim_and_crash())


def test_why_names_the_crashes_and_the_end_of_the_delay(app: Mainspring, store_url: str) -> None:
    @app.task(crashes=3)
    def work() -> None: ...

    with app.test(url=store_url) as t:
        job = work.enqueue()
        crash(app, "first", 1)
        assert job.info().state is State.READY, "there is no delay after the first crash"
        crash(app, "second", 1)
        (found,) = [each for each in job.why().obstacles if each.kind == "not_due"]
        due = t.clock.now() + timedelta(seconds=5)
        assert found.until == due
        assert found.text == (
            "the process that ran the job crashed 2 times (the next crash makes the job dead): the job is due at "
            + due.isoformat(" ", "seconds")
        )


def crash_child(app: Mainspring, name: str, times: int, out_of_memory: bool = False) -> None:
    """A worker runs the job in a child process, which dies; the worker reports that, this number of times."""
    error = msgspec.json.encode(ErrorRecord(type="ChildDied", message="the child process ended with SIGSEGV\nmore"))

    async def claim_and_report() -> None:
        store = await app.client.store()
        await store.promote()
        await store.beat([Beat(name, Registration(queues=("default",)))])
        acks: tuple[Ack, ...] = ()
        for number in range(1, times + 1):
            want = Want(("default/thread",), 1)
            said = await store.turn(
                Turn(worker=name, number=number, seen=number - 1, acks=acks, wants=(want,), suspects=1)
            )
            (claim,) = said.claims
            lease = Lease(claim.id, claim.token)
            acks = (Ack.crashed(lease, error, out_of_memory=out_of_memory, label="ChildDied", run_us=3_000_000),)
        said = await store.turn(Turn(worker=name, number=times + 1, seen=times, acks=acks))
        assert (said.stale, said.unstorable) == ((), ())

    blocking("claim_and_report", claim_and_report())


def test_why_and_info_name_the_crash_that_a_worker_reported(app: Mainspring, store_url: str) -> None:
    @app.task(crashes=3)
    def work() -> None: ...

    with app.test(url=store_url) as t:
        job = work.enqueue()
        crash_child(app, "alive", 2)
        (found,) = [each for each in job.why().obstacles if each.kind == "not_due"]
        due = t.clock.now() + timedelta(seconds=5)
        assert found.text == (
            "the process that ran the job crashed 2 times, the last time by ChildDied: the child process ended with "
            "SIGSEGV (the next crash makes the job dead): the job is due at " + due.isoformat(" ", "seconds")
        )
        info = job.info()
        assert (info.state, info.crashes, info.attempt) == (State.RETRYING, 2, 0)
        assert info.error is not None
        assert info.error.type == "ChildDied"
        assert [each.outcome for each in info.attempts] == [Outcome.CRASHED] * 2
        assert info.attempts[0].run == timedelta(seconds=3)
        t.clock.advance("5s")
        crash_child(app, "other", 1, out_of_memory=True)
        info = job.info()
        assert (info.state, info.reason, info.crashes) == (State.DEAD, Reason.OUT_OF_MEMORY, 3)
        assert info.error is not None
        assert info.error.message.startswith("the child process ended with SIGSEGV")
        assert job.why().text == "dead: the job has ended as dead (out_of_memory)"


def test_why_of_a_retry_after_an_error_does_not_name_earlier_crashes(app: Mainspring, store_url: str) -> None:
    @app.task(crashes=3, retries=1, backoff="1h")
    def work() -> None:
        raise ValueError("no")

    with app.test(url=store_url) as t:
        job = work.enqueue()
        crash(app, "first", 1)
        t.drain()
        (found,) = [each for each in job.why().obstacles if each.kind == "not_due"]
        assert found.text.startswith("the job is due at ")


def test_why_says_that_a_suspect_waits_for_a_worker_without_crashed_jobs(app: Mainspring) -> None:
    """One more crash makes the job dead, so it never runs beside another such job."""
    go_on = threading.Event()

    @app.task(name="suspect", crashes=2)
    def work() -> None:
        go_on.wait(LIMIT)

    jobs = app.enqueue_many([work.s(), work.s()])
    crash(app, "doomed", 2)
    with app.worker(thread_slots=9):
        (first,) = until(lambda: [job for job in jobs if job.info().state is State.RUNNING], "one suspect runs")
        (second,) = [job for job in jobs if job is not first]
        (found,) = second.why().obstacles
        assert (found.kind, found.jobs, found.name) == ("isolated", (first.id,), "default")
        assert found.text == (
            "the process that ran the job crashed once (the next crash makes the job dead): the job starts in a worker "
            "that runs no other job that crashed before, and the worker of queue 'default' runs such a job"
        )
        with app.worker(thread_slots=9):
            until(lambda: second.info().state is State.RUNNING, "the other worker takes the second suspect")
            go_on.set()
            assert [job.join(timeout=LIMIT).state for job in jobs] == [State.SUCCEEDED] * 2


def test_a_worker_with_other_jobs_is_no_obstacle_for_a_suspect(app: Mainspring) -> None:
    """The suspect waits for its delay and a slot only: no job that the worker runs has crashed."""
    go_on = threading.Event()

    @app.task(name="suspect", crashes=3)
    def work() -> None:
        go_on.wait(LIMIT)

    suspect = work.enqueue()
    for name in ("first", "second"):
        crash(app, name, 1)
    with app.worker(thread_slots=1):
        plain = work.enqueue()
        until(lambda: State.RUNNING in {plain.info().state, suspect.info().state}, "a job runs")
        waiting = suspect if plain.info().state is State.RUNNING else plain
        assert {each.kind for each in waiting.why().obstacles} <= {"not_due"}
        go_on.set()
        assert [job.join(timeout=LIMIT).state for job in (plain, suspect)] == [State.SUCCEEDED] * 2
