"""Soft and hard limits: raised inside the handler, enforced, and reported after the body has ended."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from mainspring.errors import HardTimeout, SoftTimeout
from mainspring.jobs.outcomes import Outcome
from mainspring.states import Reason, State
from mainspring.worker.lease.shared_state import STUCK, Phase
from mainspring.worker.run.context import AsyncContext, Context
from tests.jobs.world import SECOND, World, error, eventually, result

SOON = SECOND // 20


def spin(seconds: float = 20.0) -> None:
    """Run in a thread for long, giving the interpreter a chance to raise."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.001)


@pytest.mark.row("R5")
@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_the_soft_limit_is_raised_in_the_handler(world: World, colour: str) -> None:
    """The handler can catch it, and the job can still succeed."""

    async def in_async() -> str:
        try:
            await asyncio.sleep(20)
        except SoftTimeout as told:
            await asyncio.sleep(0.01)
            return f"tidied after {told.limit}"
        return "never told"

    def in_thread() -> str:
        try:
            spin()
        except SoftTimeout as told:
            return f"tidied after {told.limit}"
        return "never told"

    job = await world.enqueue(world.task(in_async if colour == "async" else in_thread, soft_timeout=SOON))
    await world.drain()
    assert result(await world.row(job)) == "tidied after 0.05"


@pytest.mark.row("R5")
async def test_the_soft_limit_passes_through_timeouts_and_task_groups_of_the_handler(world: World) -> None:
    async def layered() -> str:
        try:
            async with asyncio.timeout(20), asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(20))
                await asyncio.sleep(20)
        except BaseExceptionGroup as group_error:
            return "told" if group_error.subgroup(SoftTimeout) else "never told"
        return "never told"

    async def plain() -> str:
        try:
            async with asyncio.timeout(20):
                await asyncio.gather(asyncio.sleep(20), asyncio.sleep(20))
        except SoftTimeout:
            return "told"
        return "never told"

    jobs = [await world.enqueue(world.task(fn, soft_timeout=SOON)) for fn in (layered, plain)]
    await world.drain()
    assert [result(await world.row(job)) for job in jobs] == ["told", "told"]


@pytest.mark.row("R5")
@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_a_soft_limit_that_is_not_caught_is_a_timed_out_attempt(world: World, colour: str) -> None:
    async def in_async() -> None:
        await asyncio.sleep(20)

    def in_thread() -> None:
        spin()

    job = await world.enqueue(world.task(in_async if colour == "async" else in_thread, soft_timeout=SOON))
    await world.drain()
    row = await world.row(job)
    assert (row.state, row.reason, error(row).type) == (State.DEAD, Reason.TIMED_OUT, "mainspring.errors.SoftTimeout")


@pytest.mark.row("R5")
async def test_check_raises_soft_timeout(world: World) -> None:
    def looping(ctx: Context) -> str:
        try:
            while True:
                ctx.check()
        except SoftTimeout:
            return "told"

    job = await world.enqueue(world.task(looping, takes_context=True, soft_timeout=SOON))
    await world.drain()
    assert result(await world.row(job)) == "told"


@pytest.mark.row("R5")
@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_the_hard_limit_ends_the_body_and_the_attempt_is_retried(world: World, colour: str) -> None:
    """Two bodies of one job never run at once. After the last attempt the job is dead: timed_out."""
    alive, most, runs = 0, 0, 0
    lock = threading.Lock()

    def enter() -> None:
        nonlocal alive, most, runs
        with lock:
            alive, runs = alive + 1, runs + 1
            most = max(most, alive)

    def leave() -> None:
        nonlocal alive
        with lock:
            alive -= 1

    async def in_async() -> None:
        enter()
        try:
            await asyncio.sleep(20)
        finally:
            await asyncio.sleep(0.02)
            leave()

    def in_thread() -> None:
        enter()
        try:
            spin()
        finally:
            leave()

    job = await world.enqueue(world.task(in_async if colour == "async" else in_thread, timeout=SOON, retries=1))
    await world.drain()
    row = await world.row(job)
    assert (runs, most, alive) == (2, 1, 0)
    assert (row.state, row.reason, error(row).type) == (State.DEAD, Reason.TIMED_OUT, "mainspring.errors.HardTimeout")
    assert [a.outcome for a in await world.attempts(job)] == [Outcome.TIMED_OUT] * 2


async def test_the_timeout_of_the_job_overrides_that_of_the_task_and_zero_disables_it(world: World) -> None:
    async def short() -> str:
        await asyncio.sleep(0.2)
        return "done"

    task = world.task(short, timeout=SOON)
    free = await world.enqueue(task, _body={"options": {"timeout": None}})
    bound = await world.enqueue(task)
    await world.drain()
    assert result(await world.row(free)) == "done"
    assert (await world.row(bound)).reason is Reason.TIMED_OUT


async def test_never_retry_on_applies_to_timeouts(world: World) -> None:
    async def slow() -> None:
        await asyncio.sleep(20)

    job = await world.enqueue(world.task(slow, timeout=SOON, retries=5, never_retry_on=(HardTimeout,)))
    await world.drain()
    row = await world.row(job)
    assert (row.state, row.reason) == (State.DEAD, Reason.TIMED_OUT)
    assert len(await world.attempts(job)) == 1


@pytest.mark.row("R5")
@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_a_body_that_catches_the_first_exception_gets_a_second_one(world: World, colour: str) -> None:
    async def in_async() -> str:
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            await asyncio.sleep(20)
        return "late"

    def in_thread() -> str:
        try:
            spin()
        except Exception:  # noqa: BLE001 - the rude handler that this test is about
            spin()
        return "late"

    job = await world.enqueue(world.task(in_async if colour == "async" else in_thread, timeout=SOON))
    await world.drain(grace=SECOND)
    row = await world.row(job)
    assert (row.state, row.reason) == (State.DEAD, Reason.TIMED_OUT)


@pytest.mark.row("R5")
async def test_a_supervised_worker_with_a_thread_that_does_not_end_is_replaced(world: World) -> None:
    """The slot is marked STUCK, the phase is REPLACE, the other jobs finish, and the supervisor reports the stuck
    job.
    """
    release, neighbour = threading.Event(), asyncio.Event()

    def stubborn() -> None:
        while not release.is_set():
            try:
                release.wait(20)
            except BaseException:  # noqa: BLE001 - the rude handler that this test is about
                continue

    async def polite() -> str:
        await neighbour.wait()
        return "finished"

    guilty = await world.enqueue(world.task(stubborn, timeout=SOON))
    innocent = await world.enqueue(world.task(polite))
    waiting = await world.enqueue(world.tasks["polite"].name)
    running = await world.worker(supervised=True, grace=SECOND // 5).started()
    board = running.worker._shared_state

    async def replaced() -> bool | None:
        return True if board.phase == Phase.REPLACE else None

    await eventually(replaced, "the worker asks to be replaced")
    assert [job.job for job in board.jobs() if job.flags & STUCK] == [guilty]
    late = await world.enqueue("polite")
    neighbour.set()
    assert await running.end() == 3
    assert board.phase == Phase.REPLACE
    assert result(await world.row(innocent)) == "finished"
    assert result(await world.row(waiting)) == "finished"
    assert (await world.row(late)).state is State.READY
    row = await world.row(guilty)
    assert (row.state, row.worker) == (State.RUNNING, running.worker.id)
    release.set()


@pytest.mark.row("R5")
async def test_without_a_supervisor_the_slot_stays_occupied_until_the_thread_ends(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so. The job is reported when the thread has ended, and other jobs run on."""
    release = threading.Event()

    def stubborn() -> None:
        while not release.is_set():
            try:
                release.wait(20)
            except BaseException:  # noqa: BLE001 - the rude handler that this test is about
                continue

    async def other() -> int:
        return 1

    world.task(other)
    guilty = await world.enqueue(world.task(stubborn, timeout=SOON))
    running = await world.worker(grace=SECOND // 5).started()

    async def said() -> bool | None:
        text = "(stubborn) ran longer than its timeout of "
        return True if text in caplog.text and "its slot stays occupied" in caplog.text else None

    await eventually(said, "the log says it")
    assert result(await world.final(await world.enqueue("other"))) == 1
    assert (await world.row(guilty)).state is State.RUNNING
    release.set()
    assert (await world.final(guilty)).reason is Reason.TIMED_OUT
    assert await running.drained() == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it may strike in a finaliser
async def test_a_late_exception_is_never_raised_in_the_next_body(world: World) -> None:
    """Bodies end at the moment their limit passes: later bodies in the same thread get no exception."""

    def edge(ctx: Context, n: int) -> int:
        end = time.monotonic() + 0.0049 + (n % 20) / 100_000
        while time.monotonic() < end:
            pass
        return n

    def calm() -> str:
        return "calm"

    racing, still = world.task(edge, takes_context=True, timeout=5_000), world.task(calm)
    jobs = [(await world.put(world.new_job(racing, n), world.new_job(still)))[1] for n in range(60)]
    await world.drain(thread_slots=1)
    assert [result(await world.row(job)) for job in jobs] == ["calm"] * 60
    assert set(await world.counts()) <= {State.SUCCEEDED, State.DEAD}


async def test_check_of_an_async_context_raises_soft_timeout(world: World) -> None:
    async def looping(ctx: AsyncContext) -> str:
        try:
            while True:
                ctx.check()
                await asyncio.sleep(0.001)
        except SoftTimeout:
            return "told"

    job = await world.enqueue(world.task(looping, takes_context=True, soft_timeout=SOON))
    await world.drain()
    assert result(await world.row(job)) == "told"
