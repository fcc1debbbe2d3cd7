"""W2: an embedded worker whose event loop is blocked reports the jobs that end meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from mainspring import BreakerEvent, Event, Mainspring
from mainspring.jobs.outcomes import Outcome
from mainspring.states import State
from mainspring.stores.connect import connect

LIMIT = 60


@pytest.mark.row("W2")
@pytest.mark.parametrize("bulk", [False, True])
def test_ends_are_stored_while_the_loop_is_blocked(
    app: Mainspring, caplog: pytest.LogCaptureFixture, bulk: bool
) -> None:
    release, begun = threading.Event(), threading.Event()
    started: list[int] = []

    @app.task
    def in_thread(n: int) -> int:
        started.append(n)
        begun.wait(LIMIT)
        return n

    @app.bulk_task(name="many", size=2, wait="10ms")
    def many(items: list[int]) -> list[int]:
        started.extend(items)
        begun.wait(LIMIT)
        return items

    @app.task(name="blocking")
    async def blocking() -> None:
        begun.set()
        release.wait(LIMIT)

    with app.worker():
        ends = [(many if bulk else in_thread).enqueue(n) for n in range(4)]
        while len(started) < len(ends):  # the state is too early: a claimed job may wait on the loop for its bulk call
            time.sleep(0.02)
        blocked = blocking.enqueue()
        assert [job.result(timeout=LIMIT) for job in ends] == [0, 1, 2, 3]
        assert blocked.info().state is State.RUNNING
        while not any("task 'blocking'" in line and "blocked the event loop" in line for line in caplog.messages):
            time.sleep(0.02)
        release.set()
        blocked.result(timeout=LIMIT)
    assert [job.info().attempts for job in (*ends, blocked)] == [()] * 5


@pytest.mark.row("W2", "R8")
def test_a_breaker_that_opens_while_the_loop_is_blocked_is_an_event(app: Mainspring) -> None:
    release, begun = threading.Event(), threading.Event()
    opened: list[str] = []

    @app.on("breaker_opened")
    def on_opened(event: BreakerEvent) -> None:
        opened.append(event.breaker)

    @app.task(name="failing", breaker={"failures": 1, "open_for": "1h"}, retries=0)
    def failing() -> None:
        begun.wait(LIMIT)
        raise ConnectionError

    @app.task(name="blocking")
    async def blocking() -> None:
        begun.set()
        release.wait(LIMIT)

    with app.worker():
        failed = failing.enqueue()
        while failed.info().state is not State.RUNNING:
            time.sleep(0.02)
        blocked = blocking.enqueue()
        assert failed.join(timeout=LIMIT).state is State.DEAD
        release.set()
        blocked.result(timeout=LIMIT)
        until = time.monotonic() + LIMIT
        while not opened and time.monotonic() < until:
            time.sleep(0.02)
    assert opened == ["failing"]


@pytest.mark.row("W2", "R8")
def test_a_worker_that_is_lost_while_its_loop_is_blocked_reports_the_ends_that_it_stored(
    app: Mainspring, store_url: str
) -> None:
    begun, release = threading.Event(), threading.Event()
    events: list[str] = []

    @app.on("succeeded")
    def on_succeeded(event: Event) -> None:
        events.append(event.task)

    @app.task(name="in_thread")
    def in_thread() -> None:
        begun.wait(LIMIT)

    @app.task(name="blocking")
    async def blocking() -> None:
        begun.set()
        release.wait(LIMIT)

    async def lose_worker() -> None:
        store = connect(store_url)
        await store.open()
        try:
            for row in await store.workers():
                await store.rescue(row.id, row.number, Outcome.LOST)
        finally:
            await store.close()

    with app.worker():
        ended = in_thread.enqueue()
        while ended.info().state is not State.RUNNING:
            time.sleep(0.02)
        blocked = blocking.enqueue()
        ended.result(timeout=LIMIT)
        asyncio.run(lose_worker())
        release.set()
        blocked.result(timeout=LIMIT)
    assert sorted(events) == ["blocking", "in_thread"]
