"""Progress, log lines and stream items of running jobs, on their way to the store."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import msgspec
import pytest

from mainspring.errors import StoreError, StoreFull, StoreUnavailable
from mainspring.states import State
from mainspring.worker.run.context import AsyncContext, Context
from tests.jobs.test_claiming import faulty
from tests.jobs.world import World, error, eventually, result


def progress(data: bytes | None) -> Any:
    return None if data is None else msgspec.json.decode(data)


@pytest.mark.row("W8")
@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_progress_is_seen_while_the_job_runs(world: World, colour: str) -> None:
    gate = threading.Event()

    async def in_async(ctx: AsyncContext) -> None:
        ctx.progress(3, 10, "mixing", phase="a")
        await asyncio.to_thread(gate.wait, 20)

    def in_thread(ctx: Context) -> None:
        ctx.progress(3, 10, "mixing", phase="a")
        gate.wait(20)

    job = await world.enqueue(world.task(in_async if colour == "async" else in_thread, takes_context=True))
    running = await world.worker().started()

    async def seen() -> Any:
        row = await world.row(job)
        return progress(row.progress) if row.state is State.RUNNING else None

    assert await eventually(seen, "progress") == {"done": 3, "total": 10, "note": "mixing", "meta": {"phase": "a"}}
    gate.set()
    await world.final(job)
    assert await running.drained() == 0


@pytest.mark.row("W9")
@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_log_lines_are_stored_in_order_including_the_last_ones(
    world: World, colour: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The ack waits for the lines. The logger gets them with the job's id."""

    async def in_async(ctx: AsyncContext) -> None:
        ctx.log("first", n=1)
        ctx.log("nul \0 and \ud800 are cleaned")
        ctx.log("last")

    def in_thread(ctx: Context) -> None:
        ctx.log("first", n=1)
        ctx.log("nul \0 and \ud800 are cleaned")
        ctx.log("last")

    job = await world.enqueue(world.task(in_async if colour == "async" else in_thread, takes_context=True))
    with caplog.at_level(logging.INFO, logger="mainspring.jobs"):
        await world.drain()
    lines = await world.logs(job)
    assert [line.text for line in lines] == ["first n=1", "nul \\x00 and \\ud800 are cleaned", "last"]
    assert {line.level for line in lines} == {"info"}
    record = next(record for record in caplog.records if "first" in record.getMessage())
    assert record.__dict__["job_id"] == str(UUID(bytes=job))


@pytest.mark.row("W9")
async def test_only_the_newest_thousand_lines_are_kept(world: World) -> None:
    async def chatty(ctx: AsyncContext) -> None:
        for n in range(2_500):
            ctx.log(f"line {n}")

    job = await world.enqueue(world.task(chatty, takes_context=True))
    await world.drain()
    lines = await world.logs(job)
    assert len(lines) == 1_000
    assert lines[-1].text == "line 2499"


@pytest.mark.row("W8")
async def test_the_rate_of_writes_is_bounded(world: World) -> None:
    """A thousand reports of one job make a few calls."""
    store, passed = faulty(world)
    calls = 0
    inner = store._inner.report

    async def counted(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        return await inner(*args)

    store.report = counted  # type: ignore[attr-defined]  # the test counts

    async def busy(ctx: AsyncContext) -> None:
        for n in range(1_000):
            ctx.progress(n, 1_000)
            if n % 100 == 0:
                await asyncio.sleep(0.01)

    job = await world.enqueue(world.task(busy, takes_context=True))
    assert await world.worker(store=passed, until_empty=True).end() == 0
    assert 1 <= calls <= 5
    assert progress((await world.row(job)).progress)["done"] == 999


@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_track_reports_progress(world: World, colour: str) -> None:
    async def numbers() -> AsyncIterator[int]:
        for n in (1, 2, 3):
            yield n

    async def in_async(ctx: AsyncContext) -> list[int]:
        plain = [n for n in ctx.track([1, 2, 3])]  # noqa: C416 - the loop is what is tested
        both = [n async for n in ctx.track([4])]
        return plain + both + [n async for n in ctx.track(numbers(), "adding", total=3)]

    def in_thread(ctx: Context) -> list[int]:
        return list(ctx.track([1, 2, 3], "adding"))

    job = await world.enqueue(world.task(in_async if colour == "async" else in_thread, takes_context=True))
    await world.drain()
    row = await world.row(job)
    assert result(row) == ([1, 2, 3, 4, 1, 2, 3] if colour == "async" else [1, 2, 3])
    assert progress(row.progress) == {"done": 3, "total": 3, "note": "adding"}


async def test_progress_that_cannot_be_stored_is_the_handlers_error(world: World) -> None:
    async def wrong(ctx: AsyncContext) -> None:
        ctx.progress(1, thing=object())

    job = await world.enqueue(world.task(wrong, takes_context=True))
    await world.drain()
    row = await world.row(job)
    assert error(row).type == "mainspring.errors.InvalidOption"


async def test_reports_that_cannot_be_sent_delay_nothing(world: World) -> None:
    store, passed = faulty(world)
    store.lose.add("report")

    async def chatty(ctx: AsyncContext) -> int:
        ctx.log("hello")
        return 1

    job = await world.enqueue(world.task(chatty, takes_context=True))
    assert await world.worker(store=passed, until_empty=True).end() == 0
    assert result(await world.row(job)) == 1


def items(rows: list[tuple[int, bytes]]) -> list[Any]:
    """The items of a stream; their places are 1, 2, 3 ..."""
    assert [place for place, _ in rows] == list(range(1, len(rows) + 1))
    return [msgspec.json.decode(data) for _, data in rows]


@pytest.mark.row("B19")
@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_items_are_stored_while_the_job_runs_and_the_last_ones_before_its_end(world: World, colour: str) -> None:
    gate = threading.Event()

    async def in_async(ctx: AsyncContext) -> None:
        ctx.send("first")
        await asyncio.to_thread(gate.wait, 20)
        ctx.send({"last": [1, None]})

    def in_thread(ctx: Context) -> None:
        ctx.send("first")
        gate.wait(20)
        ctx.send({"last": [1, None]})

    job = await world.enqueue(world.task(in_async if colour == "async" else in_thread, takes_context=True))
    running = await world.worker().started()

    async def seen() -> Any:
        return items(await world.store.items(job)) or None

    assert await eventually(seen, "the first item") == ["first"]
    assert (await world.row(job)).state is State.RUNNING
    gate.set()
    await world.final(job)
    assert items(await world.store.items(job)) == ["first", {"last": [1, None]}]
    assert await running.drained() == 0


@pytest.mark.row("B19")
async def test_a_retry_overwrites_the_stream_places_of_the_attempt_before(world: World) -> None:
    async def retried(ctx: AsyncContext) -> None:
        for n in range(3 if ctx.attempt == 1 else 5):
            ctx.send([n, ctx.attempt])
        if ctx.attempt == 1:
            raise ValueError

    job = await world.enqueue(world.task(retried, takes_context=True, retries=1))
    await world.drain()
    assert items(await world.store.items(job)) == [[n, 2] for n in range(5)]


@pytest.mark.row("B19")
@pytest.mark.parametrize(
    ("size", "most", "said"), [(1, 10_000, "10,000 items"), (999_998, 8, "8 MB")], ids=["by number", "by size"]
)
async def test_a_full_stream_raises_stream_full_and_keeps_its_items(
    world: World, size: int, most: int, said: str
) -> None:
    async def floods(ctx: AsyncContext) -> None:
        for _ in range(most + 1):
            ctx.send("x" * size)

    job = await world.enqueue(world.task(floods, takes_context=True))
    await world.drain()
    row = await world.row(job)
    assert error(row).type == "mainspring.errors.StreamFull"
    assert said in error(row).message
    found, after = 0, 0
    while page := await world.store.items(job, after):
        found, after = found + len(page), page[-1][0]
    assert (found, after) == (most, most)


@pytest.mark.row("B19")
@pytest.mark.parametrize("error", [StoreUnavailable, StoreFull])
async def test_stream_items_are_sent_after_the_store_was_away(world: World, error: type[StoreError]) -> None:
    """Or full. No item is missing, and the ack waits for the items before it."""
    store, passed = faulty(world)
    store.error = error
    failed = asyncio.Event()

    async def sends(ctx: AsyncContext) -> int:
        store.refuse = "report"
        for n in range(10):
            ctx.send(n)
        await failed.wait()
        ctx.send(10)
        return 11

    job = await world.enqueue(world.task(sends, takes_context=True))
    running = await world.worker(store=passed).started()

    async def refused() -> bool | None:
        return store.failed >= 2 or None

    await eventually(refused, "reports were refused")
    failed.set()

    async def over() -> bool | None:
        return (running.worker._dispatcher is not None and not running.worker._dispatcher.running()) or None

    await eventually(over, "the body ended")
    store.failed = 0
    await eventually(refused, "its items were refused again and again")
    assert (await world.row(job)).state is State.RUNNING, "the store has not got its items"
    store.refuse = ""
    assert result(await world.final(job)) == 11
    assert items(await world.store.items(job)) == list(range(11))
    assert await running.drained() == 0
