"""W2: an embedded worker whose event loop is blocked reports the jobs that end meanwhile."""

from __future__ import annotations

import threading
import time

import pytest

from mainspring import Mainspring
from mainspring.states import State

LIMIT = 60


@pytest.mark.row("W2")
@pytest.mark.parametrize("bulk", [False, True])
def test_ends_are_stored_while_the_loop_is_blocked(
    app: Mainspring, caplog: pytest.LogCaptureFixture, bulk: bool
) -> None:
    release, begun = threading.Event(), threading.Event()

    @app.task
    def in_thread(n: int) -> int:
        begun.wait(LIMIT)
        return n

    @app.bulk_task(name="many", size=2, wait="10ms")
    def many(items: list[int]) -> list[int]:
        begun.wait(LIMIT)
        return items

    @app.task(name="blocking")
    async def blocking() -> None:
        begun.set()
        release.wait(LIMIT)

    with app.worker():
        ends = [(many if bulk else in_thread).enqueue(n) for n in range(4)]
        while {job.info().state for job in ends} != {State.RUNNING}:
            time.sleep(0.02)
        blocked = blocking.enqueue()
        assert [job.result(timeout=LIMIT) for job in ends] == [0, 1, 2, 3]
        assert blocked.info().state is State.RUNNING
        while not any("task 'blocking'" in line and "blocked the event loop" in line for line in caplog.messages):
            time.sleep(0.02)
        release.set()
        blocked.result(timeout=LIMIT)
    assert [job.info().attempts for job in (*ends, blocked)] == [()] * 5
