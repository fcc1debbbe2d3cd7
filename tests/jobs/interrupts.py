"""Ctrl-C inside a blocking call, wherever it arrives: nothing is left on the loop, and the next call works.

A profile function raises ``KeyboardInterrupt`` at the n-th place in ``client/blocking.py`` that the caller's thread
passes, for every n: at the start of each function and after each call of a built-in one. There the interpreter looks
for signals.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from mainspring import Context, Job, Mainspring
from mainspring.client import blocking
from tests.rows.crew import until

LIMIT = 60


class InterruptAt:
    """Raises ``KeyboardInterrupt`` at the place ``n`` of the blocking module that this thread passes."""

    def __init__(self, n: int) -> None:
        self.left = n
        self.raised = False

    def __enter__(self) -> InterruptAt:
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _event(self, frame: FrameType, event: str, arg: object) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename == blocking.__file__ and not self.raised:
            self.left -= 1
            if self.left < 0:
                self.raised = True
                raise KeyboardInterrupt


@pytest.fixture
def app(store_url: str) -> Iterator[Mainspring]:
    app = Mainspring(store_url)
    yield app
    app.close()


def tasks_left() -> int:
    async def others() -> int:
        return len(asyncio.all_tasks() - {asyncio.current_task()})

    return blocking.run("others", others())


def interrupted_everywhere(act: Callable[[], Any]) -> int:
    """Interrupt ``act`` at each place, until it ends uninterrupted. Returns the number of interrupts."""
    n = 0
    while True:
        with InterruptAt(n) as at:
            try:
                act()
            except KeyboardInterrupt:
                assert at.raised
        gc.collect()  # a coroutine that was never awaited warns when it is collected
        until(lambda: tasks_left() == 0, "no task is left")
        if not at.raised:
            return n
        n += 1


@pytest.fixture(autouse=True)
def objects_of_other_tests_are_not_collected() -> Iterator[None]:
    """After thousands of other tests, one collection of the whole process takes long."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def no_warning_of_a_coroutine(objects_of_other_tests_are_not_collected: None) -> Iterator[None]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert not [str(each.message) for each in seen if "never awaited" in str(each.message)]


@pytest.fixture
def waiting(app: Mainspring) -> Job[int]:
    """A job that no worker runs."""

    @app.task(name="waits")
    def waits(ctx: Context) -> int:
        return 1

    return waits.enqueue()


def test_an_interrupted_call_leaves_no_task_and_no_coroutine(app: Mainspring, waiting: Job[int]) -> None:
    assert interrupted_everywhere(waiting.info) > 2
    assert waiting.info().id == waiting.id


def test_an_interrupted_wait_for_a_result_leaves_no_task(app: Mainspring, waiting: Job[int]) -> None:
    def wait() -> None:
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.01)

    assert interrupted_everywhere(wait) > 2


@pytest.mark.parametrize("verb", ["watch", "stream"])
def test_an_interrupted_iterator_leaves_no_task(app: Mainspring, waiting: Job[int], verb: str) -> None:
    def read() -> None:
        with pytest.raises(TimeoutError):
            for _ in getattr(waiting, verb)(timeout=0.01):
                pass

    assert interrupted_everywhere(read) > 2


def test_an_iterator_that_is_left_early_closes_its_async_twin(
    app: Mainspring, waiting: Job[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while a variable still refers to the iterator of its twin."""
    closed: list[str] = []
    plain = Job._changes

    async def changes(self: Job[Any], pace: Any) -> Any:
        try:
            async for batch in plain(self, pace):
                yield batch
        finally:
            closed.append("closed")

    monkeypatch.setattr(Job, "_changes", changes)
    seen = waiting.awatch()
    batches = seen.batches  # type: ignore[attr-defined]  # keeps the generator alive
    for _ in blocking.each("job.watch", batches):
        break
    until(lambda: closed == ["closed"], "the async twin is closed")
    until(lambda: tasks_left() == 0, "no task is left")


def test_an_interrupt_while_the_loop_starts_leaves_a_loop_that_runs(
    waiting: Job[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(12):
        fresh = blocking._Background()
        monkeypatch.setattr(blocking, "_background", fresh)
        with contextlib.suppress(KeyboardInterrupt), InterruptAt(n):
            blocking.run("zero", lambda: asyncio.sleep(0, 1))
        assert blocking.run("two", lambda: asyncio.sleep(0, 2)) == 2
        fresh.loop.call_soon_threadsafe(fresh.loop.stop)
