"""``app.test(inline=True)``: an enqueue returns when its job has been run."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from mainspring import Mainspring
from mainspring.errors import JobDead, WouldBlockLoop
from mainspring.states import State
from mainspring.testing import Drained


@pytest.fixture
def app() -> Mainspring:
    return Mainspring("sqlite://")


@pytest.mark.option("test.inline")
def test_a_job_has_run_when_enqueue_returns(app: Mainspring) -> None:
    """Also a job that it enqueued itself, and every job of a batch. Exceptions are stored as in production."""
    ran: list[str] = []

    @app.task
    def parent() -> str:
        ran.append("parent")
        child.enqueue()
        return "done"

    @app.task
    async def child() -> None:
        ran.append("child")
        await grandchild.aenqueue()

    @app.task(retries=0)
    def grandchild() -> None:
        ran.append("grandchild")
        raise ValueError("no")

    with app.test(inline=True) as t:
        assert parent.enqueue().result() == "done"
        assert ran == ["parent", "child", "grandchild"]
        with pytest.raises(JobDead):
            grandchild.enqueue().result()
        app.enqueue_many([parent.s(), parent.s()])
        assert ran.count("grandchild") == 4
        later = parent.options(delay="1d").enqueue()
        assert later.info().state is State.SCHEDULED
        t.clock.advance("1d")
        assert t.drain().ran == 3
    with app.test():
        assert parent.enqueue().info().state is State.READY


async def test_inline_mode_works_in_an_async_test(app: Mainspring) -> None:
    here = asyncio.get_running_loop()

    @app.task
    async def work() -> bool:
        await other.aenqueue()
        return asyncio.get_running_loop() is here

    @app.task
    def other() -> None: ...

    async with app.test(inline=True) as t:
        job = await work.aenqueue()
        assert await job.aresult()
        assert (await t.aassert_enqueued(other)).state is State.SUCCEEDED
        with pytest.warns(UserWarning, match="blocks the running event loop"), pytest.raises(WouldBlockLoop):
            work.enqueue()
        assert len(await t.aenqueued(work)) == 1, "it was refused before it was stored"


def test_inline_mode_works_from_many_threads_and_from_a_thread_of_a_job(app: Mainspring) -> None:
    """No enqueue waits for a drain that waits for this enqueue."""
    lock = threading.Lock()
    ran: list[int] = []

    @app.task
    def fans_out(n: int) -> None:
        thread = threading.Thread(target=leaf.enqueue, args=(n,))
        thread.start()
        thread.join()

    @app.task
    def leaf(n: int) -> None:
        with lock:
            ran.append(n)

    with app.test(inline=True), ThreadPoolExecutor(4) as threads:
        list(threads.map(fans_out.enqueue, range(20)))
        fans_out.enqueue(20)
        assert sorted(ran) == list(range(21))


def test_an_explicit_drain_runs_the_jobs_that_its_jobs_enqueue(app: Mainspring) -> None:
    ran: list[str] = []

    @app.task
    def parent() -> None:
        child.enqueue()

    @app.task
    def child() -> None:
        ran.append("child")

    with app.test(inline=True) as t:
        parent.options(delay="1h").enqueue()
        t.clock.advance("1h")
        assert t.drain() == Drained(ran=2, succeeded=2)
        assert ran == ["child"]
