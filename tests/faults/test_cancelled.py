"""A caller that is cancelled disturbs no other caller of its event loop."""

from __future__ import annotations

import asyncio

import pytest

from mainspring import Mainspring
from mainspring.states import State

ROUNDS = 30
CANCELLED = 6


@pytest.mark.row("Q1")
@pytest.mark.parametrize("steps", [1, 2, 4])
async def test_cancelled_enqueues_leave_other_calls_alone(store_url: str, steps: int) -> None:
    """Also when several replies to cancelled callers are on their way: ``steps`` of the loop pass before the cancel."""
    app = Mainspring(store_url)

    @app.task(name="cancelled.work")
    async def work(n: int) -> None: ...

    first = await work.aenqueue(0)
    for n in range(ROUNDS):
        mine = await work.options(delay="1h").aenqueue(n)
        calls: list[asyncio.Future[object]] = [asyncio.ensure_future(work.aenqueue(n)) for _ in range(CANCELLED)]
        calls += [asyncio.ensure_future(first.ainfo()) for _ in range(CANCELLED)]
        others = asyncio.gather(first.ainfo(), app.jobs.acount(), mine.acancel(), work.aenqueue(n))
        for _ in range(steps):
            await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        info, counts, cancelled, made = await others
        assert (info.id, info.state) == (first.id, State.READY)
        assert counts.total >= n + 1
        assert cancelled
        assert (await made.ainfo()).state is State.READY
    await app.aclose()


@pytest.mark.row("Q1")
async def test_cancelled_enqueues_make_at_most_one_job_each(store_url: str) -> None:
    app = Mainspring(store_url)

    @app.task(name="cancelled.work")
    async def work(n: int) -> None: ...

    await work.aenqueue(-1)
    calls = [asyncio.ensure_future(work.aenqueue(n)) for n in range(50)]
    await asyncio.sleep(0)
    for call in calls[::2]:
        call.cancel()
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in ended[::2])
    made = [info.args["n"] async for info in app.jobs.aiterate()]
    assert len(made) == len(set(made))
    assert set(range(1, 50, 2)) < set(made)
    await app.aclose()
