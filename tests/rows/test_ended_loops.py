"""User code that ends the event loop of its worker: the same charge embedded and under a supervisor, and no silence."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from mainspring import Event, Mainspring
from mainspring.errors import InvalidOption, LoopEnded
from mainspring.jobs.outcomes import Outcome
from mainspring.states import State
from tests.rows.project import Project
from tests.timing import patience

ENDS = ["exit", "interrupt", "stop", "stop_and_return", "exit_in_callback"]


async def _sub() -> None:
    sys.exit(3)


async def _interrupt() -> None:
    raise KeyboardInterrupt


async def end_loop(how: str) -> str:
    """Ends the loop in one of the ways that asyncio has."""
    loop = asyncio.get_running_loop()
    match how:
        case "exit":
            await asyncio.gather(_sub(), asyncio.sleep(60))
        case "interrupt":
            await asyncio.gather(_interrupt(), asyncio.sleep(60))
        case "stop":
            loop.stop()
            await asyncio.sleep(60)
        case "stop_and_return":
            loop.stop()
        case "exit_in_callback":
            loop.call_soon(sys.exit, 3)
            await asyncio.sleep(60)
    return "ended"


def wait_until_dead(worker: object) -> None:
    """Until the thread of an embedded worker has ended by itself."""
    thread = worker._thread  # type: ignore[attr-defined]
    thread.join(patience(60))
    assert not thread.is_alive()


class TestEmbedded:
    @pytest.mark.parametrize("how", ENDS)
    def test_the_job_is_charged_and_the_end_is_said_once(
        self, app: Mainspring, how: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A crash is charged, the log does not call the job dead while it is ready, and leaving the block raises."""
        task = app.task(name="end", retries=0)(end_loop)
        job = task.enqueue(how)
        with pytest.raises(LoopEnded, match="user code ended the event loop"), app.worker() as worker:
            wait_until_dead(worker)
        info = job.info()
        assert (info.state, [each.outcome for each in info.attempts]) == (State.READY, [Outcome.CRASHED])
        said = [record for record in caplog.records if record.levelno == logging.CRITICAL]
        assert len(said) == 1, caplog.text
        assert "user code ended the event loop of the embedded worker" in said[0].getMessage()
        assert "dead (failed)" not in caplog.text
        assert "1 of its jobs are ready again" in caplog.text

    def test_the_third_crash_ends_the_job(self, app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
        task = app.task(name="end", retries=0, crashes=2)(end_loop)
        job = task.enqueue("stop")
        for _ in range(2):
            with pytest.raises(LoopEnded), app.worker() as worker:
                wait_until_dead(worker)
        info = job.info()
        assert (info.state, len(info.attempts)) == (State.DEAD, 2)
        assert f"job {job.id} is dead: its worker ended (user code ended its event loop)" in caplog.text

    def test_an_early_job_is_dead(self, app: Mainspring) -> None:
        job = app.task(name="end", ack="early")(end_loop).enqueue("exit")
        with pytest.raises(LoopEnded), app.worker() as worker:
            wait_until_dead(worker)
        assert job.info().state is State.DEAD

    def test_a_bulk_call_is_charged_for_all_its_items(self, app: Mainspring) -> None:
        @app.bulk_task(name="end", size=3, wait="10s")
        async def end(items: list[str]) -> list[str]:
            return [await end_loop(each) for each in items]

        jobs = [end.enqueue("exit") for _ in range(3)]
        with pytest.raises(LoopEnded), app.worker() as worker:
            wait_until_dead(worker)
        outcomes = [[each.outcome for each in job.info().attempts] for job in jobs]
        assert outcomes == [[Outcome.CRASHED]] * 3

    def test_a_body_in_a_thread_is_handed_back_without_a_crash(self, app: Mainspring) -> None:
        task = app.task(name="end")(end_loop)

        @app.task(name="wait")
        def wait() -> None:
            task.enqueue("exit")
            time.sleep(0.2)
            for _ in range(6000):
                time.sleep(0.01)

        job = wait.enqueue()
        with pytest.raises(LoopEnded), app.worker() as worker:
            wait_until_dead(worker)
        info = job.info()
        assert (info.state, [each.outcome for each in info.attempts]) == (State.READY, [Outcome.INTERRUPTED])

    def test_hooks_learn_of_the_crash(self, app: Mainspring) -> None:
        seen: list[str] = []

        @app.on("stalled")
        def on_stalled(event: Event) -> None:
            seen.append(str(event.job))

        job = app.task(name="end")(end_loop).enqueue("exit")
        with pytest.raises(LoopEnded), app.worker() as worker:
            wait_until_dead(worker)
        assert seen == [str(job.id)]

    def test_the_error_of_the_block_is_kept(self, app: Mainspring) -> None:
        """The error of the worker is shown above it."""
        app.task(name="end")(end_loop).enqueue("exit")

        def block() -> None:
            with app.worker() as worker:
                wait_until_dead(worker)
                raise ValueError("mine")

        with pytest.raises(ValueError, match="mine") as raised:
            block()
        assert isinstance(raised.value.__context__, LoopEnded)

    async def test_the_same_in_an_async_block(self, app: Mainspring) -> None:
        await app.task(name="end")(end_loop).aenqueue("exit")
        with pytest.raises(LoopEnded):
            async with app.worker() as worker:
                await asyncio.to_thread(wait_until_dead, worker)


class TestStart:
    """An embedded worker that cannot start raises where it is started."""

    def test_a_lifespan_that_raises(self, app: Mainspring) -> None:
        @app.lifespan
        async def broken() -> AsyncIterator[None]:
            raise OSError("no database")
            yield

        entered = False
        with pytest.raises(OSError, match="no database"), app.worker():
            entered = True
        assert not entered

    async def test_a_lifespan_that_raises_in_an_async_block(self, app: Mainspring) -> None:
        @app.lifespan
        def broken() -> Iterator[None]:
            raise OSError("no database")
            yield

        entered = False
        with pytest.raises(OSError, match="no database"):
            async with app.worker():
                entered = True
        assert not entered

    def test_a_lifespan_with_a_parameter(self, app: Mainspring) -> None:
        @app.lifespan
        def broken(app: Mainspring) -> Iterator[None]:
            yield

        with pytest.raises(InvalidOption, match="must have no parameters; it needs app"), app.worker():
            pass

    def test_a_lifespan_that_exits(self, app: Mainspring) -> None:
        @app.lifespan
        async def broken() -> AsyncIterator[None]:
            sys.exit(3)
            yield

        entered = False
        with pytest.raises(LoopEnded, match=r"SystemExit\(3\)"), app.worker():
            entered = True
        assert not entered


SHOP = """
    import asyncio, os
    from mainspring import Mainspring

    app = Mainspring(os.environ["SHOP_STORE"], sweep="500ms", poll="200ms")

    @app.task(retries=0, crashes=2)
    async def end() -> None:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(60)

    if __name__ == "__main__":
        job = end.enqueue()
        app.run(until_empty=True)
        info = job.info()
        print(info.state, info.reason, [str(each.outcome) for each in info.attempts])
"""


def test_a_supervised_worker_is_charged_for_a_stopped_loop(tmp_path: Path, store_url: str) -> None:
    project = Project(tmp_path, store_url)
    project.write(SHOP)
    done = project.run("shop.py")
    assert done.stdout.strip() == "dead crashed ['crashed', 'crashed']", done.stdout + done.stderr
    assert "user code ended the event loop of this worker: loop.stop()" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("is dead") == 1
