"""B19: what a handler sends is read elsewhere, from the start, each place once."""

from __future__ import annotations

import gc
import threading

import pytest

from mainspring import AsyncContext, Context, Mainspring
from mainspring.errors import JobNotFound, ResultTimeout, StreamFull, WouldBlockLoop
from mainspring.states import State
from tests.rows.crew import LIMIT, Crew, Tasks
from tests.rows.leaks import nothing_is_left


@pytest.mark.row("B19")
class TestStream:
    def test_a_stream_is_read_from_another_process_while_the_job_runs(self, tasks: Tasks, crew: Crew) -> None:
        """Items arrive before the job ends, a retry repeats no item, and a second reader starts at the first item."""
        worker = crew.start()
        job = tasks.send.enqueue(10, fail_at=4)
        read = []
        for item in job.stream(timeout=LIMIT):
            read.append(item)
            if item["n"] == 4:
                assert job.info().state is State.RUNNING
                tasks.say("go_on")
        assert [item["n"] for item in read] == list(range(1, 11))
        assert {item["pid"] for item in read} == {worker.pid}
        assert len(job.info().attempts) == 1, "it was retried"

        elsewhere = Mainspring(tasks.app.settings.url)
        again = list(elsewhere.jobs.get(job.id).stream())
        assert [item["n"] for item in again] == list(range(1, 11))
        elsewhere.close()

    def test_many_items_arrive_in_order(self, app: Mainspring) -> None:
        @app.task(name="many")
        def many(ctx: Context) -> None:
            for n in range(3_500):
                ctx.send(n)

        with app.worker():
            assert list(many.enqueue().stream(timeout=LIMIT)) == list(range(3_500))

    async def test_astream_yields_the_items(self, app: Mainspring) -> None:
        @app.task(name="few")
        async def few(ctx: AsyncContext) -> None:
            for word in ("one", "two", "three"):
                ctx.send(word)

        async with app.worker():
            job = await few.aenqueue()
            assert [item async for item in job.astream(timeout=LIMIT)] == ["one", "two", "three"]
        waiting = await few.aenqueue()
        with pytest.raises(ResultTimeout, match=r"0\.05 s"):
            assert [item async for item in waiting.astream(timeout="50ms")] == []

    def test_the_stream_of_a_job_that_sends_nothing_is_empty(self, app: Mainspring) -> None:
        @app.task(name="quiet")
        async def quiet() -> None: ...

        with app.worker():
            assert list(quiet.enqueue().stream(timeout=LIMIT)) == []

    def test_a_dead_job_keeps_its_stream(self, app: Mainspring) -> None:
        @app.task(name="fails", retries=0)
        def fails(ctx: Context) -> None:
            ctx.send("so far")
            raise ValueError

        with app.worker():
            job = fails.enqueue()
            assert list(job.stream(timeout=LIMIT)) == ["so far"]
        assert job.info().state is State.DEAD
        job.retry()
        with pytest.raises(ResultTimeout):
            list(job.stream(timeout="1ms"))  # a new epoch begins a new stream

    def test_a_stream_is_bounded(self, app: Mainspring) -> None:
        sent: list[int] = []

        @app.task(name="endless", retries=0)
        def endless(ctx: Context) -> None:
            for n in range(20_000):
                ctx.send(n)
                sent.append(n)

        with app.worker():
            job = endless.enqueue()
            read = list(job.stream(timeout=LIMIT))
        info = job.info()
        assert info.error is not None
        assert info.error.type.endswith(StreamFull.__name__)
        assert read == sent == list(range(10_000))

    def test_stream_ends_at_its_timeout(self, app: Mainspring) -> None:
        job = app.call("nobody.knows").enqueue()
        with pytest.raises(ResultTimeout, match=r"0\.05 s; it is still ready"):
            list(job.stream(timeout="50ms"))

    def test_the_stream_of_an_unknown_job_raises_job_not_found(self, app: Mainspring) -> None:
        job = app.call("nobody.knows").enqueue()
        job.delete()
        with pytest.raises(JobNotFound):
            next(job.stream())

    async def test_stream_refuses_a_running_loop(self, app: Mainspring) -> None:
        job = await app.call("nobody.knows").aenqueue()
        with pytest.raises(WouldBlockLoop, match=r"async for \.\.\. in job\.astream"):
            job.stream()


class TestClosedEarly:
    def test_a_blocking_reader_closed_early_leaves_nothing_behind(self, app: Mainspring) -> None:
        sent, go_on = threading.Event(), threading.Event()

        @app.task(name="hold")
        def hold(ctx: Context) -> None:
            ctx.send(1)
            sent.set()
            go_on.wait(LIMIT)

        with app.worker():
            job = hold.enqueue()
            assert sent.wait(LIMIT)
            for _ in range(20):
                assert next(job.stream(timeout=LIMIT)) == 1
            gc.collect()
            nothing_is_left("_items")
            go_on.set()

    async def test_an_async_reader_closed_early_leaves_nothing_behind(self, app: Mainspring) -> None:
        @app.task(name="hold")
        async def hold(ctx: AsyncContext) -> None:
            ctx.send(1)

        async with app.worker():
            job = await hold.aenqueue()
            for _ in range(20):
                async for item in job.astream(timeout=LIMIT):
                    assert item == 1
                    break
        gc.collect()
        nothing_is_left("_items")
