"""A caller who waits for a result learns what the job waits for."""

from __future__ import annotations

import asyncio
import logging
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

from mainspring import Job, Mainspring
from mainspring.client.blocking import run as blocking
from mainspring.errors import ResultTimeout, mask_url
from mainspring.jobs import job as job_module
from mainspring.worker.records import Beat, Registration
from tests.rows.crew import until

LIMIT = 60


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers learn early what they wait for."""
    assert job_module.SAY_AFTER == 10.0
    monkeypatch.setattr(job_module, "SAY_AFTER", 0.05)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "mainspring.jobs" and r.levelno == logging.WARNING]


def test_a_worker_that_was_killed_does_not_count_as_a_live_worker(app: Mainspring) -> None:
    """No live worker is left to mark it lost, so its row stays as it was."""

    async def leave_a_row() -> None:
        registration = Registration(queues=("default",), tasks=("shop.add",), lease=1_000)
        await (await app.client.store()).beat([Beat("killed", registration)])

    blocking("leave_a_row", leave_a_row())
    until(lambda: app.workers.list() == [], "the lease of the killed worker is over")
    job = app.call("shop.add", 1).enqueue()
    assert "no live worker serves queue 'default'" in str(job.why())
    with pytest.raises(ResultTimeout, match="no live worker serves queue 'default'"):
        job.result(timeout="50ms")


def test_a_timeout_names_the_missing_worker_and_the_store(app: Mainspring) -> None:
    job = app.call("shop.add", 1).enqueue()
    with pytest.raises(ResultTimeout) as caught:
        job.result(timeout="50ms")
    error = caught.value
    assert "0.05 s" in str(error)
    assert "still ready: no live worker serves queue 'default'" in str(error)
    assert mask_url(app.settings.url) in str(error)
    assert "mainspring worker" in error.hint
    assert (error.state, error.url) == ("ready", mask_url(app.settings.url))
    assert error.why is not None
    assert [each.kind for each in error.why.obstacles] == ["no_worker"]
    assert pickle.loads(pickle.dumps(error)).why == error.why


def test_the_timeouts_of_join_watch_and_stream_say_the_same(app: Mainspring) -> None:
    job = app.call("shop.add", 1).enqueue()
    waits: list[Callable[[], Any]] = [
        lambda: job.join(timeout=0), lambda: list(job.watch(timeout=0)), lambda: list(job.stream(timeout=0)),
    ]  # fmt: skip
    for wait in waits:
        with pytest.raises(ResultTimeout, match="no live worker serves queue 'default'"):
            wait()


async def test_the_async_timeouts_say_the_same(app: Mainspring) -> None:
    job = await app.call("shop.add", 1).aenqueue()
    for wait in (job.aresult, job.ajoin):
        with pytest.raises(ResultTimeout, match="no live worker serves queue 'default'"):
            await wait(timeout=0)


def test_the_password_of_the_store_is_not_in_the_error(app: Mainspring) -> None:
    job = app.call("shop.add", 1).enqueue()
    error = ResultTimeout(job.id, 1.0, url=mask_url("postgresql://shop:hunter2@db/shop"))
    assert "postgresql://shop:***@db/shop" in str(error)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("verb", ["result", "join"])
def test_a_wait_without_a_timeout_says_once_what_it_waits_for(
    app: Mainspring, caplog: pytest.LogCaptureFixture, verb: str
) -> None:
    job = app.call("shop.add", 1).enqueue()
    waiting = threading.Thread(target=getattr(job, verb), daemon=True)
    with caplog.at_level(logging.WARNING, "mainspring.jobs"):
        waiting.start()
        until(lambda: warnings_of(caplog), "the warning")
        _end(app, job)
        waiting.join(LIMIT)
    [said] = warnings_of(caplog)
    assert f"job {job.id} (shop.add) is still ready: no live worker serves queue 'default'" in said
    assert mask_url(app.settings.url) in said


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("verb", ["aresult", "ajoin"])
async def test_an_async_wait_without_a_timeout_says_once_what_it_waits_for(
    app: Mainspring, caplog: pytest.LogCaptureFixture, verb: str
) -> None:
    job = await app.call("shop.add", 1).aenqueue()
    with caplog.at_level(logging.WARNING, "mainspring.jobs"):
        waiting = asyncio.create_task(getattr(job, verb)())
        await asyncio.to_thread(until, lambda: warnings_of(caplog), "the warning")
        await asyncio.to_thread(_end, app, job)
        await waiting
    assert len(warnings_of(caplog)) == 1


@pytest.mark.usefixtures("soon")
def test_a_wait_for_a_running_job_is_no_warning(app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
    release = threading.Event()

    @app.task(name="slow")
    def slow() -> None:
        release.wait(LIMIT)

    with app.worker(), caplog.at_level(logging.INFO, "mainspring.jobs"):
        job = slow.enqueue()
        waiting = threading.Thread(target=job.result, daemon=True)
        waiting.start()
        until(lambda: [r for r in caplog.records if "is still running" in r.getMessage()], "the line")
        release.set()
        waiting.join(LIMIT)
    assert warnings_of(caplog) == []


@pytest.mark.usefixtures("soon")
def test_a_wait_with_a_timeout_logs_nothing(app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
    job = app.call("shop.add", 1).enqueue()
    with caplog.at_level(logging.INFO, "mainspring.jobs"), pytest.raises(ResultTimeout):
        job.result(timeout="300ms")
    assert not [r for r in caplog.records if r.name == "mainspring.jobs"]


def test_why_suggests_the_queue_with_a_similar_name(app: Mainspring) -> None:
    @app.task(name="send", queue="email")
    async def send() -> None: ...

    job = send.options(queue="emial").enqueue()
    with app.worker():
        until(app.workers.list, "the worker")
        assert "no live worker serves queue 'emial'; did you mean 'email'?" in str(job.why())


def _end(app: Mainspring, job: Job[Any]) -> None:
    """Run the job to its end, after the warning."""

    @app.task(name="shop.add")
    async def add(n: int) -> int:
        return n

    with app.worker():
        until(lambda: job.info().final, "the end of the job")
