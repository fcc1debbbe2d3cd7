"""An exception that interrupts a call of the store reaches the caller as it is, and the app stays usable."""

from __future__ import annotations

import asyncio

import pytest

from mainspring import Mainspring
from mainspring.errors import SoftTimeout
from tests.timing import milliseconds, patience, short_settings

STRUCK = 5
"""Attempts, each of which is struck by its limit at another place."""


@pytest.mark.row("E5")
@pytest.mark.parametrize("colour", ["async", "thread"])
def test_a_time_limit_that_strikes_inside_enqueue_ends_the_body(store_url: str, colour: str) -> None:
    """A ``SoftTimeout`` is a ``TimeoutError``: it must not be taken for an error of the store, and be repeated."""
    app = Mainspring(store_url, **short_settings())

    @app.task(name="interrupted.nothing", queue="unserved")
    def nothing() -> None: ...

    def produce() -> str:
        try:
            while True:
                nothing.enqueue()
        except SoftTimeout:
            return "stopped"

    async def aproduce() -> str:
        try:
            while True:
                await nothing.aenqueue()
                await asyncio.sleep(0)
        except SoftTimeout:
            return "stopped"

    options = {"name": "interrupted.produce", "soft_timeout": "200ms", "timeout": milliseconds(20), "retries": 0}
    task = app.task(**options)(produce if colour == "thread" else aproduce)  # type: ignore[call-overload]
    with app.worker(queues="default"):
        jobs = app.enqueue_many(task.s() for _ in range(STRUCK))
        assert [job.result(timeout=patience(30)) for job in jobs] == ["stopped"] * STRUCK
    app.close()
