"""From a claim to its ack: what a body gets, and what it comes to."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextvars import ContextVar
from uuid import UUID

import pytest

from mainspring.errors import NotBuilt, NotOpen
from mainspring.jobs.outcomes import Outcome
from mainspring.states import Reason, State
from mainspring.worker.run.context import AsyncContext, Context
from tests.jobs.world import World, error, eventually, result

MARK: ContextVar[str] = ContextVar("mark", default="clean")


@pytest.mark.row("W1")
async def test_sync_and_async_handlers_run_side_by_side(world: World) -> None:
    """One of each waits for the other, so both must be running at once."""
    met = threading.Barrier(2, timeout=20)

    def in_thread() -> str:
        met.wait()
        return threading.current_thread().name

    async def on_loop() -> str:
        await asyncio.get_running_loop().run_in_executor(None, met.wait)
        return threading.current_thread().name

    jobs = [await world.enqueue(world.task(fn)) for fn in (in_thread, on_loop)]
    assert await world.drain() == 0
    names = [result(await world.row(job)) for job in jobs]
    assert names[0].startswith("mainspring-slot-")
    assert names[1] == threading.current_thread().name


async def test_arguments_and_results_are_encoded_by_the_signature(world: World) -> None:
    async def add(a: int, b: int = 5) -> dict[str, int]:
        return {"sum": a + b}

    job = await world.enqueue(world.task(add), 2)
    await world.drain()
    assert result(await world.row(job)) == {"sum": 7}


@pytest.mark.row("B11")
@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_the_context_describes_the_running_job(world: World, colour: str) -> None:
    """Id, attempt, token, queue and deadline are those of the claim. ``current()`` returns the same context."""
    seen: list[Context] = []

    def look(ctx: Context) -> None:
        assert type(ctx).current() is ctx
        assert ctx.bind(lambda: type(ctx).current())() is ctx
        seen.append(ctx)

    async def in_async(ctx: AsyncContext) -> None:
        look(ctx)

    def in_thread(ctx: Context) -> None:
        look(ctx)

    fn = in_async if colour == "async" else in_thread
    job = await world.enqueue(world.task(fn, takes_context=True, timeout=60_000_000), queue="default")
    await world.drain()
    row = await world.row(job)
    (ctx,) = seen
    assert (ctx.job_id, ctx.attempt, ctx.token, ctx.queue) == (UUID(bytes=job), 1, row.token, "default")
    assert ctx.deadline is not None
    assert ctx.cancelled is False


async def test_a_local_context_stores_nothing(world: World) -> None:
    ctx = Context.local("shop.send")
    ctx.progress(1, 2, "half")
    ctx.log("hello", n=1)
    ctx.check()
    assert list(ctx.track([1, 2])) == [1, 2]
    assert (ctx.attempt, ctx.token, ctx.deadline, ctx.state) == (1, 0, None, None)
    with pytest.raises(NotBuilt, match="'step'"):
        ctx.step("a", print)  # type: ignore[attr-defined]  # a type checker refuses it too
    with pytest.raises(AttributeError, match="no attribute 'stepp'"):
        _ = ctx.stepp  # type: ignore[attr-defined]  # a type checker refuses it too
    with pytest.raises(NotOpen):
        Context.current()


@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_bodies_do_not_inherit_context_variables_from_each_other(world: World, colour: str) -> None:
    seen: list[str] = []

    async def in_async() -> None:
        seen.append(MARK.get())
        MARK.set("dirty")

    def in_thread() -> None:
        seen.append(MARK.get())
        MARK.set("dirty")

    task = world.task(in_async if colour == "async" else in_thread)
    await world.put(*(world.new_job(task) for _ in range(20)))
    await world.drain(async_slots=1, thread_slots=1)
    assert seen == ["clean"] * 20


@pytest.mark.row("W1")
async def test_an_unknown_task_is_logged_once_and_its_job_stays_ready(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that knows the task claims the job afterwards. The other worker is not given the job again."""
    jobs = [await world.enqueue("shop.later") for _ in range(3)]
    running = await world.worker().started()

    async def all_parked() -> bool | None:
        rows = [await world.row(job) for job in jobs]
        return True if all(row.lane == "default/any?shop.later" and row.state is State.READY for row in rows) else None

    await eventually(all_parked, "the jobs are parked")
    assert await running.drained() == 0
    warnings = [record for record in caplog.records if "shop.later" in record.getMessage()]
    assert len(warnings) == 1
    assert "include=" in warnings[0].getMessage()

    async def later() -> int:
        return 1

    world.task(later, name="shop.later")
    await world.drain()
    assert [result(await world.row(job)) for job in jobs] == [1, 1, 1]
    assert (await world.row(jobs[0])).attempt == 1


@pytest.mark.parametrize(
    "record", [b"\xff", b"[]", b'{"v":99}', b'{"args":{"a":"text"}}', b'{"args":{}}', b'{"args":{"a":1,"zzz":1}}']
)
async def test_a_job_that_cannot_be_decoded_is_dead_at_once(world: World, record: bytes) -> None:
    """It is not retried, and the other job of the turn runs."""

    async def one(a: int) -> int:
        return a

    task = world.task(one, retries=5)
    bad, good = await world.put(world.new_job(task, 1, record=record), world.new_job(task, 1))
    await world.drain()
    row = await world.row(bad)
    assert (row.state, row.reason) == (State.DEAD, Reason.UNDECODABLE)
    assert error(row).type == "mainspring.errors.Undecodable"
    assert result(await world.row(good)) == 1


async def test_a_strange_result_makes_the_job_dead_and_a_huge_result_is_dropped(world: World) -> None:
    async def strange() -> object:
        return object()

    async def huge() -> str:
        return "x" * 2_000_000

    jobs = [await world.enqueue(world.task(fn)) for fn in (strange, huge)]
    await world.drain()
    rows = [await world.row(job) for job in jobs]
    assert [(row.state, row.reason, row.result) for row in rows] == [
        (State.DEAD, Reason.NOT_RETRYABLE, None),
        (State.SUCCEEDED, None, None),
    ]
    assert [error(row).type for row in rows] == [
        "mainspring.errors.ResultNotSerializable",
        "mainspring.errors.ResultTooLarge",
    ]


async def test_a_result_is_not_stored_without_keep_result(world: World) -> None:
    async def chatty() -> str:
        return "noise"

    job = await world.enqueue(world.task(chatty, keep_result=False))
    await world.drain()
    row = await world.row(job)
    assert (row.state, row.result, row.error) == (State.SUCCEEDED, None, None)


def deep() -> None:
    deep()


@pytest.mark.parametrize("colour", ["async", "thread"])
@pytest.mark.parametrize(
    "raised",
    [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), MemoryError(), RecursionError()],
    ids=lambda raised: type(raised).__name__,
)
async def test_no_exception_of_a_handler_ends_the_worker(world: World, raised: BaseException, colour: str) -> None:
    """Any exception is a failed attempt, and the next job runs."""

    async def in_async(fail: bool) -> str:
        if fail:
            raise raised
        return "fine"

    def in_thread(fail: bool) -> str:
        if fail:
            if isinstance(raised, RecursionError):
                deep()
            raise raised
        return "fine"

    task = world.task(in_async if colour == "async" else in_thread)
    bad, good = await world.put(world.new_job(task, True), world.new_job(task, False))
    assert await world.drain(async_slots=1, thread_slots=1) == 0
    row = await world.row(bad)
    assert (row.state, row.reason) == (State.DEAD, Reason.FAILED)
    assert error(row).type.endswith(type(raised).__name__)
    assert [attempt.outcome for attempt in await world.attempts(bad)] == [Outcome.FAILED]
    assert result(await world.row(good)) == "fine"


async def test_a_body_that_cancels_its_own_task_has_failed(world: World) -> None:
    async def selfish() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    job = await world.enqueue(world.task(selfish))
    await world.drain()
    assert (await world.row(job)).reason is Reason.FAILED


async def test_no_log_line_is_written_for_a_job_at_the_default_level(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def quiet() -> None:
        return None

    with caplog.at_level(logging.INFO, logger="mainspring"):
        await world.put(*(world.new_job(world.task(quiet)) for _ in range(10)))
        await world.drain()
    said = [record.getMessage() for record in caplog.records]
    assert [text for text in said if not text.startswith("worker ")] == []
