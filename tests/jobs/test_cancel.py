"""Cancel: raised in a running handler, forced after the grace, final."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from mainspring.errors import JobCancelled
from mainspring.jobs.outcomes import Outcome
from mainspring.jobs.query import Query
from mainspring.states import Action, Reason, State
from mainspring.worker.lease.shared_state import STUCK, Phase
from mainspring.worker.run.context import AsyncContext, Context
from tests.jobs.world import SECOND, World, eventually


async def cancel(world: World, job: bytes) -> None:
    done = await world.store.act(Action.CANCEL, Query.of(job), reason="not wanted")
    assert done.done == (job,)


@pytest.mark.row("W10")
@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_cancel_raises_in_a_running_handler(world: World, colour: str) -> None:
    """An async body is cancelled, a thread gets JobCancelled; ctx.cancelled says why."""
    begun, said = threading.Event(), []

    async def in_async(ctx: AsyncContext) -> None:
        begun.set()
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            said.append(ctx.cancelled)
            raise

    def in_thread(ctx: Context) -> None:
        begun.set()
        try:
            end = time.monotonic() + 20
            while time.monotonic() < end:
                time.sleep(0.001)
        except JobCancelled as told:
            said.append(ctx.cancelled and told.reason == "not wanted")
            raise

    job = await world.enqueue(world.task(in_async if colour == "async" else in_thread, takes_context=True, retries=5))
    running = await world.worker().started()
    await asyncio.to_thread(begun.wait, 20)
    await cancel(world, job)
    row = await world.final(job)
    assert (row.state, row.reason, said) == (State.CANCELLED, Reason.BY_USER, [True])
    assert [a.outcome for a in await world.attempts(job)] == [Outcome.CANCELLED]
    assert await running.drained() == 0


@pytest.mark.row("W10")
async def test_check_raises_job_cancelled_in_a_loop(world: World) -> None:
    begun = threading.Event()

    def looping(ctx: Context) -> None:
        while True:
            begun.set()
            ctx.check()

    job = await world.enqueue(world.task(looping, takes_context=True))
    running = await world.worker().started()
    await asyncio.to_thread(begun.wait, 20)
    await cancel(world, job)
    assert (await world.final(job)).state is State.CANCELLED
    assert await running.drained() == 0


@pytest.mark.row("W10")
async def test_a_handler_that_ignores_the_cancel_and_returns_is_cancelled(world: World) -> None:
    """Cancel is final. The attempt is recorded as succeeded."""
    begun = asyncio.Event()

    async def finishing() -> str:
        begun.set()
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            return "done all the same"
        return ""

    job = await world.enqueue(world.task(finishing))
    running = await world.worker().started()
    await begun.wait()
    await cancel(world, job)
    row = await world.final(job)
    assert (row.state, row.reason) == (State.CANCELLED, Reason.BY_USER)
    assert [a.outcome for a in await world.attempts(job)] == [Outcome.SUCCEEDED]
    assert await running.drained() == 0


@pytest.mark.row("W10")
async def test_a_worker_whose_cancelled_body_does_not_end_is_replaced(world: World) -> None:
    release, begun = threading.Event(), threading.Event()

    def stubborn() -> None:
        begun.set()
        while not release.is_set():
            try:
                release.wait(20)
            except BaseException:  # noqa: BLE001 - the rude handler that this test is about
                continue

    job = await world.enqueue(world.task(stubborn))
    running = await world.worker(supervised=True, grace=SECOND // 5).started()
    await asyncio.to_thread(begun.wait, 20)
    await cancel(world, job)
    board = running.worker._shared_state

    async def replaced() -> bool | None:
        return True if board.phase == Phase.REPLACE else None

    await eventually(replaced, "the worker asks to be replaced")
    assert [line.flags & STUCK for line in board.jobs()] == [STUCK]
    assert await running.end() == 3
    release.set()


@pytest.mark.row("W10")
async def test_a_job_cancelled_while_it_waits_never_starts(world: World) -> None:
    ran: list[int] = []

    async def never() -> None:
        ran.append(1)

    job = await world.enqueue(world.task(never))
    await cancel(world, job)
    await world.drain()
    assert ((await world.row(job)).state, ran) == (State.CANCELLED, [])
