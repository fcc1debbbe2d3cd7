"""R8: failures in a row have no success between them, also when one turn reports many ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from mainspring import BreakerEvent, Mainspring
from mainspring.options.typed import BreakerOptions
from tests.rows.crew import LIMIT, until

pytestmark = pytest.mark.row("R8")

MANY = 60


def heard(app: Mainspring) -> list[BreakerEvent]:
    events: list[BreakerEvent] = []
    app.on("breaker_opened")(events.append)
    return events


@pytest.mark.option("breaker.failures")
@pytest.mark.parametrize(("every", "opens"), [(3, False), (1, True)], ids=["every third", "all"])
def test_failures_of_one_turn_count_in_the_order_of_their_ends(app: Mainspring, every: int, opens: bool) -> None:
    inside, go_on = asyncio.Semaphore(0), asyncio.Event()

    @app.task(name="shop.try", breaker={"failures": 5, "open_for": "1h"}, retries=0)
    async def attempt(n: int) -> None:
        inside.release()
        if n == 0:
            for _ in range(MANY):
                await inside.acquire()
            go_on.set()
        await go_on.wait()
        if n % every == 0:
            raise ConnectionError(n)

    events = heard(app)
    jobs = app.enqueue_many(attempt.s(n) for n in range(MANY))
    with app.worker(async_slots=MANY):
        for job in jobs:
            job.join(timeout=LIMIT)
        if opens:
            until(lambda: events, "open")
    assert (app.breakers.get("shop.try").state == "open") == bool(events) == opens


@pytest.mark.parametrize("rate", [False, True])
def test_a_bulk_call_that_raises_is_one_failure_in_a_row(app: Mainspring, rate: bool) -> None:
    """A breaker with a rate counts one failure for each job, as it counts successes."""
    options: BreakerOptions = {"rate": 0.5, "minimum": 10} if rate else {"failures": 2}

    @app.bulk_task(name="shop.all", size=20, wait="1s", retries=0, breaker=options)
    def all_of(items: Sequence[int]) -> Sequence[int]:
        raise ConnectionError("away")

    def call() -> None:
        for job in app.enqueue_many(all_of.s(n) for n in range(20)):
            job.join(timeout=LIMIT)

    with app.worker():
        call()
        found = app.breakers.get("shop.all")
        assert (found.state, found.failures) == (("open", 20) if rate else ("closed", 1))
        if not rate:
            call()
            assert app.breakers.get("shop.all").state == "open"


def test_failures_of_several_workers_count_once_each(app: Mainspring) -> None:
    """All of them write the same row at the same time, and the breaker opens once."""

    @app.task(name="shop.fail", breaker={"failures": MANY, "open_for": "1h"}, retries=0)
    async def fail(n: int) -> None:
        raise ConnectionError(n)

    events = heard(app)
    jobs = app.enqueue_many(fail.s(n) for n in range(MANY - 1))
    with app.worker(async_slots=3), app.worker(async_slots=3), app.worker(async_slots=3):
        for job in jobs:
            job.join(timeout=LIMIT)
        until(lambda: app.breakers.get("shop.fail").failures == MANY - 1, "all are counted")
        assert events == []
        fail.enqueue(MANY).join(timeout=LIMIT)
        until(lambda: events, "open")
    assert [event.failures for event in events] == [MANY]
