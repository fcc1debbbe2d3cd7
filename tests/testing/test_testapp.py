"""``app.test()``: what it runs, where, and its options."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from mainspring import AsyncContext, Context, Mainspring, Middleware, Snooze
from mainspring.errors import InsideTest, InvalidOption, NotOpen, UnknownOption, WouldBlockLoop
from mainspring.states import State
from mainspring.testing import Drained, TestApp


@pytest.fixture
def app() -> Mainspring:
    """Its own store can never be reached: whatever works, works on the private one."""
    return Mainspring("postgresql://nobody@127.0.0.1:1/nothing")


# ---- what runs -------------------------------------------------------------------------------------


def test_jobs_run_at_drain_and_not_before(app: Mainspring) -> None:
    """In threads and on the loop, as in a worker. Jobs that jobs enqueue run too."""
    seen: list[tuple[str, str]] = []

    @app.task
    def one(n: int) -> int:
        seen.append(("one", threading.current_thread().name))
        two.enqueue(n + 1)
        return n

    @app.task
    async def two(n: int) -> int:
        seen.append(("two", threading.current_thread().name))
        return n

    with app.test() as t:
        job = one.enqueue(1)
        assert (seen, job.info().state) == ([], State.READY)
        assert t.drain() == Drained(ran=2, succeeded=2)
        assert [name for name, _ in seen] == ["one", "two"]
        assert seen[0][1] != seen[1][1] != threading.current_thread().name
        assert job.result() == 1
        assert t.jobs.get(t.assert_enqueued(two).id).result() == 2
        assert t.drain() == Drained()


def test_drain_waits_for_slow_jobs(app: Mainspring) -> None:
    """A body gets the real time it needs, however the others end."""
    slow_may_end = threading.Event()

    @app.task
    def slow() -> None:
        assert slow_may_end.wait(60)

    @app.task
    async def quick() -> None:
        asyncio.get_running_loop().call_later(0.3, slow_may_end.set)

    with app.test() as t:
        slow.enqueue()
        quick.enqueue()
        assert t.drain().succeeded == 2


def test_drain_leaves_jobs_that_cannot_run(app: Mainspring) -> None:
    """Of a task that this app does not have, or in a paused queue: the drain ends."""

    @app.task(queue="mail")
    def send() -> None: ...

    @app.task(queue="other")
    def pause() -> None:
        app.queues.pause("mail")

    with app.test() as t:
        unknown = app.call("not.here", 1).enqueue()
        t.queues.pause("mail")
        mail = send.enqueue()
        assert t.drain() == Drained()
        assert (unknown.info().state, mail.info().state) == (State.READY, State.READY)
        t.queues.resume("mail")
        assert t.drain() == Drained(ran=1, succeeded=1)
        pause.options(priority="high").enqueue()
        t.drain(limit=1)
        send.enqueue()
        assert t.drain(future=True) == Drained()


def test_every_queue_is_served_also_queues_that_appear_during_a_drain(app: Mainspring) -> None:
    @app.task
    def begin() -> None:
        end.options(queue="special").enqueue()

    @app.task
    def end() -> None: ...

    with app.test() as t:
        begin.options(queue="elsewhere").enqueue()
        assert t.drain() == Drained(ran=2, succeeded=2)


def test_an_app_that_only_enqueues_can_be_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its settings forbid workers, slots and some queues: in a test its jobs run."""
    app = Mainspring("sqlite://", roles="api", async_slots=0, queues=["mail"])

    @app.task
    async def work() -> int:
        return 1

    with app.test() as t:
        job = work.enqueue()
        t.drain()
        assert job.result() == 1


def test_the_limit_of_a_drain_counts_attempts(app: Mainspring) -> None:
    runs: list[int] = []

    @app.task(retries=10, backoff=0)
    def fails(n: int) -> None:
        runs.append(n)
        raise ValueError

    with app.test() as t:
        for n in range(5):
            fails.enqueue(n)
        assert t.drain(limit=0).ran == 0
        assert t.drain(limit=3).ran == 3
        assert (len(runs), t.jobs.count().live) == (3, 5)
        assert t.drain(limit=4, future=True).ran == 4
        with pytest.raises(InvalidOption, match="limit=-1"):
            t.drain(limit=-1)


def test_a_drain_that_never_ends_is_an_error(app: Mainspring) -> None:
    @app.task
    def again() -> None:
        raise Snooze(for_="1h")

    with app.test() as t:
        again.enqueue()
        with pytest.raises(InsideTest, match=r"after 1,000 attempts jobs are still ready"):
            t.drain(future=True)


def test_lifespans_run_once_in_a_test(app: Mainspring) -> None:
    """From the first drain with a job to the end of the test, on the loop that runs the jobs."""
    words: list[str] = []

    @app.lifespan
    def first() -> Iterator[str]:
        words.append("first up")
        yield "a"
        words.append("first down")

    @app.lifespan
    async def second() -> AsyncIterator[asyncio.AbstractEventLoop]:
        words.append("second up")
        yield asyncio.get_running_loop()
        words.append("second down")

    @app.task
    async def work(ctx: AsyncContext) -> None:
        assert ctx.state.first == "a"
        assert ctx.state.second is asyncio.get_running_loop()
        words.append("work")

    with app.test() as t:
        t.drain()
        assert words == []
        for _ in range(3):
            work.enqueue()
            assert t.drain().succeeded == 1
    assert words == ["first up", "second up", "work", "work", "work", "second down", "first down"]


def test_a_lifespan_that_fails_fails_the_drain(app: Mainspring) -> None:
    @app.lifespan
    def broken() -> Iterator[None]:
        raise RuntimeError("no database")
        yield

    @app.task
    def work() -> None: ...

    with app.test() as t:
        work.enqueue()
        for _ in range(2):
            with pytest.raises(RuntimeError, match="no database"):
                t.drain()


def test_hooks_and_middleware_run_in_a_test(app: Mainspring) -> None:
    told: list[str] = []

    class Wrap(Middleware):
        def run(self, ctx: Context, body: Any) -> Any:
            told.append("before")
            return body() + 1

        arun = Middleware.arun

    app.middleware(Wrap())
    app.on("succeeded")(lambda event: told.append(event.name))

    @app.task
    def one() -> int:
        return 1

    with app.test() as t:
        job = one.enqueue()
        t.drain()
        assert job.result() == 2
        assert told == ["before", "succeeded"], "hooks have been told when the drain is over"


# ---- colours, loops, threads -----------------------------------------------------------------------


async def test_an_async_test_shares_its_loop_with_the_jobs(app: Mainspring) -> None:
    @app.task
    async def work() -> None:
        assert asyncio.get_running_loop() is here
        gate.set()

    here, gate = asyncio.get_running_loop(), asyncio.Event()
    async with app.test() as t:
        await work.aenqueue()
        assert (await t.adrain()).succeeded == 1
        assert gate.is_set()
        with pytest.raises(WouldBlockLoop, match=r"t\.drain\(\) would block .*\n  Use: await t\.adrain"):
            t.drain()
        await work.aenqueue()
        assert (await asyncio.to_thread(t.drain)).succeeded == 1


@pytest.fixture
def opened(app: Mainspring) -> Iterator[TestApp]:
    with app.test() as t:
        yield t


async def test_an_async_test_can_use_an_app_that_a_sync_fixture_opened(app: Mainspring, opened: TestApp) -> None:
    """The jobs run on another loop then."""

    @app.task
    async def work() -> None:
        assert asyncio.get_running_loop() is not here

    @app.task
    async def other() -> None: ...

    here = asyncio.get_running_loop()
    await work.aenqueue()
    assert (await opened.adrain()).succeeded == 1
    await opened.aassert_enqueued(work)
    await opened.aassert_not_enqueued(other)
    assert len(await opened.aenqueued(work)) == 1


def test_threads_can_enqueue_and_drain_at_once(app: Mainspring) -> None:
    runs: list[int] = []

    @app.task
    def work(n: int) -> None:
        runs.append(n)

    def one(n: int) -> int:
        for each in range(10):
            work.enqueue(10 * n + each)
        return t.drain().ran

    with app.test() as t, ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(one, range(8))) == 80
    assert sorted(runs) == list(range(80))


def test_a_closed_loop_is_reported(app: Mainspring) -> None:
    t = app.test()

    async def enter() -> None:
        await t.__aenter__()

    asyncio.run(enter())
    with pytest.raises(NotOpen, match="is closed"):
        t.drain()
    with pytest.raises(NotOpen, match="is closed"):
        asyncio.run(t.__aexit__(None, None, None))
    with app.test():
        pass  # and the app is free again


def test_a_job_cannot_drain(app: Mainspring) -> None:
    @app.task(retries=0)
    async def drains() -> None:
        await t.adrain()

    with app.test() as t:
        job = drains.enqueue()
        assert t.drain().dead == 1
        error = job.info().error
        assert error is not None
        assert error.type.endswith("InsideTest")


# ---- options ---------------------------------------------------------------------------------------


@pytest.mark.option("test.start")
def test_the_clock_starts_at_the_given_time(app: Mainspring) -> None:
    start = datetime(2040, 2, 29, tzinfo=UTC)

    @app.task
    def work() -> None: ...

    with app.test(start=start) as t:
        assert t.clock.now() == start
        assert work.enqueue().info().enqueued == start


@pytest.mark.option("test.url")
def test_a_test_can_use_a_given_store(app: Mainspring, store_url: str) -> None:
    """The jobs exist in the store afterwards."""
    work = app.task(name="work")(lambda: None)
    with app.test(url=store_url):
        job = work.enqueue()
    other = Mainspring(store_url)
    assert other.jobs.get(job.id).info().task == "work"
    other.close()


def test_wrong_options_are_refused(app: Mainspring) -> None:
    with pytest.raises(UnknownOption, match="did you mean 'inline'"):
        app.test(inlin=True)  # type: ignore[call-arg]  # wrong on purpose
    with pytest.raises(InvalidOption, match="inline='yes'"):
        app.test(inline="yes")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(InvalidOption, match="no time zone"):
        app.test(start=datetime(2030, 1, 1))  # noqa: DTZ001 - wrong on purpose
    with pytest.raises(ValueError, match="names no store"):
        app.test(url="mysql://x")
