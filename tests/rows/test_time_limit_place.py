"""The error of a time-out names the line of code at which the body was ended."""

from __future__ import annotations

import asyncio
import time

import pytest

from mainspring import Mainspring
from mainspring.states import Reason, State

LIMIT = 60


def rest() -> None:
    time.sleep(0.01)


@pytest.mark.parametrize("colour", ["def", "async def"])
def test_a_time_out_names_the_line_of_the_task(app: Mainspring, colour: str) -> None:
    @app.task(timeout="300ms", retries=0)
    def in_thread() -> None:
        while True:
            rest()

    @app.task(timeout="300ms", retries=0)
    async def on_loop() -> None:
        await asyncio.sleep(LIMIT)

    job = in_thread.enqueue() if colour == "def" else on_loop.enqueue()
    with app.worker():
        info = job.join(timeout=LIMIT)
    assert (info.state, info.reason) == (State.DEAD, Reason.TIMED_OUT)
    assert info.error is not None
    name = "in_thread" if colour == "def" else "on_loop"
    assert "was ended at test_time_limit_place.py:" in info.error.message
    assert f" in {name}" in info.error.message
    if colour == "async def":
        assert " in sleep" in info.error.message
