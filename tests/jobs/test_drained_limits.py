"""Test mode: a drain ends when all that is left waits for a rate or a breaker, and moves the clock if it may."""

from __future__ import annotations

import pytest

from mainspring import Mainspring, Rate


@pytest.fixture
def app() -> Mainspring:
    return Mainspring("sqlite://")


def test_drain_leaves_jobs_behind_an_open_breaker(app: Mainspring) -> None:
    calls: list[int] = []

    @app.task(name="drained.pay", breaker={"failures": 1, "open_for": "30s"}, retries=0)
    def pay(n: int) -> None:
        calls.append(n)
        if n == 0:
            raise ConnectionError("away")

    with app.test() as t:
        pay.enqueue(0)
        assert t.drain().dead == 1
        pay.enqueue(1)
        assert t.drain().ran == 0
        t.clock.advance("30s")
        assert t.drain().succeeded == 1
        assert calls == [0, 1]
        app.breakers.trip("drained.pay")
        pay.enqueue(2)
        assert t.drain(future=True).ran == 0


def test_drain_moves_the_clock_to_the_time_when_limited_jobs_can_start(app: Mainspring) -> None:
    @app.task(name="drained.pay", breaker={"failures": 1, "open_for": "30s"}, retries=0)
    def pay(n: int) -> None:
        if n == 0:
            raise ConnectionError("away")

    @app.task(name="drained.rated", limit=Rate(2, per="1m"))
    def rated() -> None: ...

    with app.test() as t:
        before = t.clock.now()
        app.enqueue_many([pay.s(0), *(rated.s() for _ in range(5))])
        assert t.drain().ran == 3
        pay.enqueue(1)
        assert t.drain(future=True).succeeded == 4
        assert (t.clock.now() - before).total_seconds() == 120
