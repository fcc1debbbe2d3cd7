"""What a process sets up before its first job and tidies up after its last."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from mainspring.errors import InvalidOption
from mainspring.states import State
from mainspring.worker.lifespan import Lifespans
from mainspring.worker.run.context import AsyncContext
from tests.jobs.world import SECOND, World, result


@pytest.mark.row("W13", "X4")
async def test_lifespans_start_before_the_first_job_and_end_in_reverse_order(world: World) -> None:
    said: list[str] = []

    async def database() -> AsyncIterator[str]:
        said.append("database up")
        yield "db"
        said.append("database down")

    def model() -> Iterator[str]:
        said.append("model up")
        yield "model"
        said.append("model down")

    async def use(ctx: AsyncContext) -> list[str]:
        said.append("job")
        return [ctx.state.database, ctx.state.model]

    job = await world.enqueue(world.task(use, takes_context=True))
    assert await world.drain(lifespans=(database, model)) == 0
    assert result(await world.row(job)) == ["db", "model"]
    assert said == ["database up", "model up", "job", "model down", "database down"]


@pytest.mark.row("W13")
async def test_the_value_of_a_single_lifespan_is_the_state(world: World) -> None:
    async def only() -> AsyncIterator[dict[str, int]]:
        yield {"answer": 42}

    async def use(ctx: AsyncContext) -> int:
        return int(ctx.state["answer"])

    job = await world.enqueue(world.task(use, takes_context=True))
    await world.drain(lifespans=(only,))
    assert result(await world.row(job)) == 42


@pytest.mark.row("X4")
async def test_a_lifespan_that_fails_or_hangs_at_the_end_does_not_stop_the_others(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    release, said = threading.Event(), []

    async def first() -> AsyncIterator[None]:
        yield
        said.append("first down")

    async def fails() -> AsyncIterator[None]:
        yield
        raise ValueError("cannot close")

    def hangs() -> Iterator[None]:
        yield
        release.wait(20)

    async def hangs_on_the_loop() -> AsyncIterator[None]:
        yield
        await asyncio.sleep(20)

    lifespans = (first, fails, hangs, hangs_on_the_loop)
    assert await world.drain(lifespans=lifespans, grace=SECOND // 10) == 0
    assert said == ["first down"]
    assert "lifespan fails failed to clean up" in caplog.text
    assert "lifespan hangs did not clean up" in caplog.text
    assert "lifespan hangs_on_the_loop did not clean up" in caplog.text
    release.set()


@pytest.mark.row("W13")
async def test_if_a_lifespan_fails_to_start_the_earlier_ones_end_and_nothing_is_claimed(world: World) -> None:
    said: list[str] = []

    async def first() -> AsyncIterator[None]:
        yield
        said.append("first down")

    def fails() -> Iterator[None]:
        raise ValueError("no such model")
        yield

    async def one() -> None:
        return None

    job = await world.enqueue(world.task(one))
    with pytest.raises(ValueError, match="no such model"):
        await world.worker(lifespans=(first, fails)).end()
    assert said == ["first down"]
    assert (await world.row(job)).state is State.READY


@pytest.mark.parametrize("wrong", [lambda: None, print])
def test_a_lifespan_that_is_not_a_generator_function_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="must be a generator function"):
        Lifespans([wrong], 1.0)
