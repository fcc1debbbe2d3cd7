"""A drain of the test app ends: closed queues are left alone, and a job that never ends is named."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta

import pytest

from mainspring import Mainspring, Rate, RateLimited, Snooze
from mainspring.errors import InsideTest
from mainspring.jobs.outcomes import Outcome
from mainspring.states import State
from mainspring.testing.app import drain as draining


@pytest.mark.parametrize("how", ["hold", "skip"])
def test_a_drain_leaves_a_disabled_queue_alone(app: Mainspring, store_url: str, how: str) -> None:
    @app.task(queue="mail")
    def send() -> None: ...

    with app.test(url=store_url) as t:
        job = send.enqueue()
        app.queues.disable("mail", how)  # type: ignore[arg-type]  # it is one of the literals
        assert t.drain().ran == 0
        app.queues.enable("mail")
        assert t.drain().succeeded == 1
        assert job.info().state is State.SUCCEEDED


@pytest.mark.parametrize("close", ["disable", "pause"])
def test_a_closed_queue_beside_a_job_that_waits_for_its_rate(app: Mainspring, store_url: str, close: str) -> None:
    @app.task(queue="mail")
    def send() -> None: ...

    @app.task(limit=Rate(1, per="1h"))
    def slow() -> None: ...

    with app.test(url=store_url) as t:
        send.enqueue()
        getattr(app.queues, close)("mail")
        slow.enqueue()
        slow.enqueue()
        assert t.drain().ran == 1


@pytest.mark.parametrize(
    "again",
    [Snooze(for_=0), Snooze(until=datetime.now(UTC) - timedelta(days=9999)), RateLimited(0)],
    ids=["for", "until", "rate"],
)
def test_a_snooze_without_a_pause_waits_a_second(app: Mainspring, store_url: str, again: Exception) -> None:
    """Not at once: the job would keep a worker busy for ever."""

    @app.task
    def sleepy() -> None:
        raise again

    with app.test(url=store_url) as t:
        job = sleepy.enqueue()
        assert t.drain().snoozed == 1
        info = job.info()
        assert info.state is State.SCHEDULED
        assert info.due is not None
        assert info.due - t.clock.now() == timedelta(seconds=1)
        t.clock.advance("1s")
        assert t.drain().snoozed == 1
        assert [each.outcome for each in job.info().attempts] == [Outcome.SNOOZED] * 2


def test_a_drain_names_the_job_that_never_ends(
    app: Mainspring, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draining, "MOST_OF_ONE_JOB", 5)

    @app.task(name="sleepy")
    def sleepy() -> None:
        raise Snooze(for_="1h")

    with app.test(url=store_url) as t:
        job = sleepy.enqueue()
        with pytest.raises(
            InsideTest, match=rf"job {job.id} of task 'sleepy' ran [5-9] times\n  .*t\.drain\(limit=100\)"
        ):
            t.drain(future=True)
        assert t.drain(8, future=True).ran == 8, "a limit is not exceeded, and nothing is guessed"


def test_a_drain_names_the_task_that_enqueues_itself(
    app: Mainspring, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draining, "MOST", 5)

    @app.task(name="again")
    def again() -> None:
        again.enqueue()

    with app.test(url=store_url) as t:
        again.enqueue()
        with pytest.raises(InsideTest, match="after 5 attempts jobs are still ready; most of them are of task 'again'"):
            t.drain()


@pytest.mark.parametrize("how", ["exit", "stop"])
def test_a_drain_survives_a_body_that_ends_the_event_loop(app: Mainspring, store_url: str, how: str) -> None:
    """In a process of workers this is a crash. A test goes on, and sees the error of the body."""

    async def leave() -> None:
        sys.exit(3)

    @app.task(retries=0)
    async def end() -> str:
        if how == "exit":
            await asyncio.gather(leave())
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
        return "ended"

    with app.test(url=store_url) as t:
        job = end.enqueue()
        assert t.drain().ran == 1
        assert job.info().state is (State.DEAD if how == "exit" else State.SUCCEEDED)
