"""A deadline ends what its task waits for, and nothing else: as ``asyncio.timeout`` does, with one timer for many."""

from __future__ import annotations

import asyncio
import time

import pytest

from mainspring.stores.shared.deadlines import CallDeadlines, DeadlinePassed

pytestmark = pytest.mark.asyncio

SOON = 0.05


async def forever(deadlines: CallDeadlines) -> None:
    with deadlines.begin():
        await asyncio.Event().wait()


async def test_a_call_past_its_deadline_raises_timeout_error() -> None:
    deadlines = CallDeadlines(SOON)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await forever(deadlines)
    assert time.monotonic() - began >= SOON * 0.9
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_each_of_many_calls_has_its_own_deadline() -> None:
    """Calls that end in time are not interrupted, whatever began before or after them."""
    deadlines = CallDeadlines(SOON)
    late = [asyncio.create_task(forever(deadlines)) for _ in range(3)]

    async def quick() -> int:
        with deadlines.begin():
            await asyncio.sleep(0)
        return 1

    assert await asyncio.gather(*(quick() for _ in range(20))) == [1] * 20
    await asyncio.sleep(SOON / 2)
    late += [asyncio.create_task(forever(deadlines)) for _ in range(3)]
    ended = await asyncio.wait_for(asyncio.gather(*late, return_exceptions=True), 10)
    assert [type(each) for each in ended] == [DeadlinePassed] * 6


async def test_deadlines_work_again_after_a_pause() -> None:
    """The timer is set again when there is a call to watch."""
    deadlines = CallDeadlines(SOON)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(forever(deadlines), 10)
        await asyncio.sleep(SOON * 2)


async def test_a_cancellation_from_outside_is_not_a_timeout() -> None:
    task = asyncio.create_task(forever(CallDeadlines(10)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_late_call_that_was_cancelled_from_outside_stays_cancelled() -> None:
    deadlines = CallDeadlines(SOON)

    async def slow_to_go() -> None:
        with deadlines.begin():
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.Event().wait()

    task = asyncio.create_task(slow_to_go())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task], timeout=10)
    assert task.cancelled()


async def test_an_error_of_the_call_is_raised_unchanged() -> None:
    with pytest.raises(KeyError), CallDeadlines(10).begin():
        raise KeyError


async def test_a_deadline_outside_a_task_is_refused() -> None:
    told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin() -> None:
        try:
            CallDeadlines(1).begin()
        except RuntimeError as error:
            told.set_exception(error)

    asyncio.get_running_loop().call_soon(begin)
    with pytest.raises(RuntimeError):
        await told
