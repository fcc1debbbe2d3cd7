"""W: what a worker does with a job."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from mainspring import AsyncContext, Context, Mainspring
from mainspring.errors import JobCancelled
from mainspring.states import State

LIMIT = 60


@pytest.mark.row("W1")
class TestSlots:
    def test_sync_and_async_jobs_run_side_by_side_with_a_limit_per_queue(self, app: Mainspring) -> None:
        busy = {"slow": 0, "most": 0}
        lock = threading.Lock()

        def enter(by: int) -> None:
            with lock:
                busy["slow"] += by
                busy["most"] = max(busy["most"], busy["slow"])

        @app.task(name="sync_slow", queue="slow")
        def sync_slow() -> str:
            enter(1)
            time.sleep(0.05)
            enter(-1)
            return "thread"

        @app.task(name="async_slow", queue="slow")
        async def async_slow() -> str:
            enter(1)
            await asyncio.sleep(0.05)
            enter(-1)
            return "loop"

        @app.task(name="other", queue="other")
        async def other() -> str:
            return "other"

        jobs = [task.enqueue() for task in (sync_slow, async_slow, other) for _ in range(10)]
        with app.worker(concurrency={"slow": 3}):
            results = [job.result(timeout=LIMIT) for job in jobs]
        assert sorted(results) == ["loop"] * 10 + ["other"] * 10 + ["thread"] * 10
        assert busy["most"] <= 3

    def test_only_the_named_queues_are_served(self, app: Mainspring) -> None:
        @app.task(name="a", queue="a")
        async def a() -> None: ...

        @app.task(name="b", queue="b")
        async def b() -> None: ...

        not_served = b.enqueue()
        with app.worker(queues=["a"]):
            a.enqueue().join(timeout=LIMIT)
        assert not_served.info().state is State.READY

    def test_an_unknown_task_is_logged_and_waits_for_a_worker_that_knows_it(
        self, app: Mainspring, caplog: pytest.LogCaptureFixture
    ) -> None:
        strange = app.call("elsewhere.task", 1).enqueue()
        other = Mainspring(app.settings.url)

        @other.task(name="known")
        async def known() -> None: ...

        with other.worker(poll="100ms"):
            known.enqueue().join(timeout=LIMIT)
        assert "elsewhere.task" in caplog.text
        info = strange.info()
        assert (info.state, info.attempt) == (State.READY, 0)

        @app.task(name="elsewhere.task")
        async def knows(n: int) -> int:
            return n

        with app.worker():
            assert strange.result(timeout=LIMIT) == 1


@pytest.mark.row("W6")
def test_prefetched_jobs_are_handed_back_when_the_worker_stops(app: Mainspring) -> None:
    release = threading.Event()

    @app.task(name="quick")
    async def quick(n: int) -> None: ...

    @app.task(name="block")
    def block() -> None:
        release.wait(LIMIT)

    app.enqueue_many(quick.s(n) for n in range(300))
    blocked = [block.enqueue() for _ in range(20)]
    worker = app.worker(thread_slots=2, async_slots=2)
    with worker:
        threading.Timer(0.5, release.set).start()
        blocked[0].join(timeout=LIMIT)
    states = {job.info().state for job in blocked}
    assert State.RUNNING not in states, "nothing stays with a worker that is gone"


@pytest.mark.row("W10")
class TestCancel:
    def test_a_cancelled_queued_job_never_starts(self, app: Mainspring) -> None:
        ran = threading.Event()

        @app.task(name="never")
        def never() -> None:
            ran.set()

        job = never.enqueue()
        assert job.cancel()
        with app.worker(), pytest.raises(JobCancelled):
            job.result(timeout=LIMIT)
        assert not ran.is_set()
        assert not job.cancel(), "it had ended already"

    def test_a_running_async_handler_is_cancelled_and_the_state_is_final(self, app: Mainspring) -> None:
        begun, told = threading.Event(), threading.Event()

        @app.task(name="stubborn")
        async def stubborn() -> str:
            begun.set()
            try:
                await asyncio.sleep(LIMIT)
            except asyncio.CancelledError:
                told.set()
            return "done all the same"

        with app.worker():
            job = stubborn.enqueue()
            assert begun.wait(LIMIT)
            elsewhere = Mainspring(app.settings.url)  # cancelled through another client of the store
            assert elsewhere.task(name="stubborn")(stubborn.fn).job(job.id).cancel("changed my mind")
            assert told.wait(LIMIT)
            assert job.join(timeout=LIMIT).state is State.CANCELLED

    def test_a_running_sync_handler_reads_the_cancel_order_with_check(self, app: Mainspring) -> None:
        begun = threading.Event()

        @app.task(name="loop")
        def loop(ctx: Context) -> None:
            begun.set()
            while True:
                time.sleep(0.01)
                ctx.check()

        with app.worker():
            job = loop.enqueue()
            assert begun.wait(LIMIT)
            assert job.cancel()
            assert job.join(timeout=LIMIT).state is State.CANCELLED


@pytest.mark.row("W13")
def test_lifespans_run_once_in_the_process_that_runs_the_jobs(app: Mainspring) -> None:
    happened: list[str] = []

    @app.lifespan
    def database() -> Iterator[str]:
        happened.append("open")
        yield "connection"
        happened.append("close")

    @app.task(name="use")
    def use(ctx: Context) -> str:
        return str(ctx.state)

    with app.worker():
        assert [use.enqueue().result(timeout=LIMIT) for _ in range(3)] == ["connection"] * 3
    assert happened == ["open", "close"]


@pytest.mark.row("X4")
def test_lifespans_end_in_reverse_and_an_error_in_one_stops_no_other(app: Mainspring) -> None:
    ended: list[str] = []

    @app.lifespan
    async def first() -> AsyncIterator[int]:
        yield 1
        ended.append("first")

    @app.lifespan
    def second() -> Iterator[int]:
        yield 2
        ended.append("second")
        raise RuntimeError("cleaning up failed")

    @app.lifespan
    def third() -> Iterator[int]:
        yield 3
        ended.append("third")

    @app.task(name="noop")
    async def noop() -> None: ...

    with app.worker():
        noop.enqueue().join(timeout=LIMIT)
    assert ended == ["third", "second", "first"]


@pytest.mark.row("B11")
def test_a_handler_has_a_token_that_grows_with_each_attempt(app: Mainspring) -> None:
    tokens: list[int] = []

    @app.task(name="watch", retries=2, backoff="10ms")
    async def watch(ctx: AsyncContext) -> None:
        tokens.append(ctx.token)
        if ctx.attempt < 3:
            raise ValueError

    with app.worker():
        info = watch.enqueue().join(timeout=LIMIT)
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 3
    assert info.token == tokens[-1]


def test_progress_and_log_lines_are_visible_from_outside(app: Mainspring) -> None:
    reached, go_on = threading.Event(), threading.Event()

    @app.task(name="tell")
    def tell(ctx: Context) -> None:
        ctx.progress(3, 4, "three quarters", colour="blue")
        ctx.log("a line", number=7)
        reached.set()
        go_on.wait(LIMIT)

    with app.worker():
        job = tell.enqueue()
        assert reached.wait(LIMIT)
        deadline = time.monotonic() + LIMIT
        while (progress := job.info().progress) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        go_on.set()
        assert progress is not None
        assert (progress["done"], progress["total"], progress["note"]) == (3, 4, "three quarters")
