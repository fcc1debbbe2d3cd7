"""W12, R6: hooks get what was stored, in the worker that stored it, at most once, and disturb nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from mainspring import AsyncContext, Cancel, Context, Discard, Event, Mainspring, Snooze
from mainspring.errors import UnknownOption
from mainspring.states import Reason, State
from mainspring.tasks.events import EVENTS
from mainspring.worker.records import Beat, Registration, Turn, Want
from tests.rows.crew import until

LIMIT = 60


class Heard:
    """The events that hooks got."""

    def __init__(self, app: Mainspring, *events: Any, **options: Any) -> None:
        self.events: list[Event] = []
        app.on(*(events or EVENTS), **options)(self.hear)

    def hear(self, event: Event) -> None:
        self.events.append(event)

    def names(self, job: Any = None) -> list[str]:
        return [event.name for event in self.events if job is None or event.job == job.id]


@pytest.mark.row("W12")
@pytest.mark.parametrize("colour", ["def", "async def"])
class TestEveryEvent:
    def run(self, app: Mainspring, colour: str, act: Callable[[Context], Any], **options: Any) -> tuple[Heard, Any]:
        heard = Heard(app)
        if colour == "def":

            @app.task(name="t", **options)
            def t(ctx: Context) -> Any:
                return act(ctx)

            job = t.enqueue()
        else:

            @app.task(name="t", **options)
            async def at(ctx: AsyncContext) -> Any:
                return act(ctx)

            job = at.enqueue()
        with app.worker():
            job.join(timeout=LIMIT)
        return heard, job

    def test_succeeded_is_called(self, app: Mainspring, colour: str) -> None:
        heard, job = self.run(app, colour, lambda ctx: 1)
        assert heard.names() == ["started", "succeeded"]
        info = job.info()
        for event in heard.events:
            assert (event.job, event.task, event.queue, event.attempt) == (job.id, "t", "default", 1)
            assert event.worker == info.worker
            assert event.at.tzinfo is not None
        assert [event.state for event in heard.events] == [State.RUNNING, State.SUCCEEDED]

    def test_failed_is_called_for_a_retried_and_for_the_last_failure(self, app: Mainspring, colour: str) -> None:
        def fail(ctx: Context) -> None:
            raise ValueError(f"number {ctx.attempt}")

        heard, _ = self.run(app, colour, fail, retries=1, backoff="10ms")
        assert heard.names() == ["started", "failed", "retrying", "started", "failed", "dead"]
        assert [event.attempt for event in heard.events] == [1, 1, 1, 2, 2, 2]
        dead = heard.events[-1]
        assert (dead.state, dead.reason) == (State.DEAD, Reason.RETRIES_EXHAUSTED)
        assert dead.error is not None
        assert (dead.error.type, dead.error.message) == ("ValueError", "number 2")

    def test_snoozed_is_called(self, app: Mainspring, colour: str) -> None:
        ran: list[int] = []

        def nap(ctx: Context) -> None:
            ran.append(1)
            if len(ran) == 1:
                raise Snooze("10ms")

        heard, _ = self.run(app, colour, nap)
        assert heard.names() == ["started", "snoozed", "started", "succeeded"]

    def test_cancelled_is_called_when_the_handler_cancels(self, app: Mainspring, colour: str) -> None:
        def cancel(ctx: Context) -> None:
            raise Cancel("not needed")

        heard, _ = self.run(app, colour, cancel)
        assert heard.names() == ["started", "cancelled"]
        assert heard.events[-1].reason is Reason.BY_USER


@pytest.mark.row("W12")
def test_a_job_cancelled_in_the_store_has_no_succeeded_event(app: Mainspring) -> None:
    """The body returned before the worker read the cancel order. Hooks get the state that the store recorded."""
    heard = Heard(app, "succeeded", "cancelled")

    @app.task(name="t")
    def t(ctx: Context) -> str:
        app.jobs.get(ctx.job_id).cancel()
        return "done all the same"

    with app.worker():
        job = t.enqueue()
        assert job.join(timeout=LIMIT).state is State.CANCELLED
    assert heard.names() == ["cancelled"]


@pytest.mark.row("W12")
def test_cancelled_is_called_for_an_expired_job(app: Mainspring) -> None:
    heard = Heard(app)

    @app.task(name="late")
    async def late() -> None: ...

    job = late.options(expires="10ms", queue="unserved").enqueue()
    with app.worker():
        until(lambda: heard.events, "the hook was told")
    assert heard.names(job) == ["cancelled"]
    [event] = heard.events
    assert (event.state, event.reason, event.task) == (State.CANCELLED, Reason.EXPIRED, "late")


@pytest.mark.row("R6")
class TestDead:
    """The hook for dead jobs fires once for every cause."""

    CAUSES: ClassVar[dict[str, tuple[dict[str, Any], Reason]]] = {
        "no retries": ({"retries": 0}, Reason.FAILED),
        "never retried": ({"never_retry_on": (KeyError,)}, Reason.NOT_RETRYABLE),
        "discarded": ({}, Reason.NOT_RETRYABLE),
        "timed out": ({"retries": 0, "timeout": "200ms"}, Reason.TIMED_OUT),
        "undecodable": ({}, Reason.UNDECODABLE),
    }

    @pytest.mark.parametrize("cause", CAUSES)
    @pytest.mark.parametrize("colour", ["def", "async def"])
    def test_dead_is_called_after_the_last_attempt(self, app: Mainspring, cause: str, colour: str) -> None:
        heard = Heard(app, "dead")
        options, reason = self.CAUSES[cause]
        errors: dict[str, Exception] = {
            "no retries": ValueError(), "never retried": KeyError(), "discarded": Discard("no use"),
        }  # fmt: skip

        if colour == "def":

            @app.task(name="t", **options)
            def t(n: int) -> None:
                while cause not in errors:
                    time.sleep(0.01)
                raise errors[cause]
        else:

            @app.task(name="t", **options)
            async def at(n: int) -> None:
                if cause not in errors:
                    await asyncio.sleep(LIMIT)
                raise errors[cause]

        other = Mainspring(app.settings.url)
        job = other.call("t", **({"wrong": 1} if cause == "undecodable" else {"n": 1})).enqueue()
        other.close()
        with app.worker():
            info = job.join(timeout=LIMIT)
        assert info.reason is reason
        [event] = heard.events
        assert (event.job, event.state, event.reason) == (job.id, State.DEAD, reason)
        assert event.error is not None

    async def test_dead_is_called_by_the_worker_that_rescued_the_job(self, app: Mainspring) -> None:
        """The owner sends no heartbeats. The rescuer of this worker takes the job, so this worker calls the hook."""
        heard = Heard(app)

        @app.task(name="early", ack="early")
        async def early() -> None: ...

        @app.task(name="late")
        async def late() -> None: ...

        jobs = [await early.aenqueue(), await late.aenqueue()]
        store = await app.client.store()
        await store.beat([Beat("silent", Registration(queues=("default",), tasks=("early", "late"), lease=500_000))])
        turned = await store.turn(Turn(worker="silent", number=1, seen=0, wants=(Want(("default/async",), 2),)))
        assert {claim.id for claim in turned.claims} == {job.id.bytes for job in jobs}
        async with app.worker():
            await jobs[1].ajoin(timeout=LIMIT)
            await asyncio.to_thread(until, lambda: "dead" in heard.names(jobs[0]), "the hook was told")
        assert heard.names(jobs[0]) == ["stalled", "dead"]
        names = heard.names(jobs[1])  # the job may start before the reply of the rescue is read
        assert sorted(names) == ["stalled", "started", "succeeded"]
        assert names.index("started") < names.index("succeeded")
        dead = next(event for event in heard.events if event.name == "dead")
        assert (dead.reason, dead.attempt, dead.worker) == (Reason.CRASHED, 1, "silent")


@pytest.mark.row("W12")
class TestIsolation:
    def test_an_exception_of_a_hook_is_logged_and_nothing_else_fails(
        self, app: Mainspring, caplog: pytest.LogCaptureFixture
    ) -> None:
        @app.on("succeeded")
        def broken(event: Event) -> None:
            raise ValueError("from a hook")

        @app.on("succeeded")
        async def leaves(event: Event) -> None:
            raise SystemExit(3)

        @app.on("succeeded")
        def leaves_too(event: Event) -> None:
            raise SystemExit(3)

        heard = Heard(app, "succeeded")

        @app.task(name="t")
        async def t() -> int:
            return 1

        with app.worker():
            assert [t.enqueue().result(timeout=LIMIT) for _ in range(3)] == [1, 1, 1]
        assert heard.names() == ["succeeded"] * 3
        text = caplog.text
        assert text.count("ValueError: from a hook") == 3
        assert "leaves" in text

    @pytest.mark.parametrize("colour", ["def", "async def"])
    def test_a_hook_that_never_returns_delays_no_job_and_no_stop(self, app: Mainspring, colour: str) -> None:
        called, never = threading.Event(), threading.Event()
        if colour == "def":

            @app.on("succeeded")
            def hang(event: Event) -> None:
                called.set()
                never.wait()
        else:

            @app.on("succeeded")
            async def ahang(event: Event) -> None:
                called.set()
                await asyncio.Event().wait()

        @app.task(name="t")
        async def t(n: int) -> int:
            return n

        worker = app.worker(grace="1s")
        with worker:
            jobs = app.enqueue_many([t.s(n) for n in range(50)])
            assert [job.result(timeout=LIMIT) for job in jobs] == list(range(50))
            assert called.wait(LIMIT)
        assert worker.exit_code == 0
        never.set()

    def test_async_hooks_run_on_the_loop_and_sync_hooks_in_threads(self, app: Mainspring) -> None:
        threads: dict[str, int] = {}

        @app.on("succeeded")
        async def on_loop(event: Event) -> None:
            threads["async"] = threading.get_ident()

        @app.on("succeeded")
        def in_thread(event: Event) -> None:
            threads["def"] = threading.get_ident()

        @app.task(name="t")
        async def t() -> int:
            return threading.get_ident()

        with app.worker():
            loop = t.enqueue().result(timeout=LIMIT)
        assert threads["async"] == loop
        assert threads["def"] not in (loop, threading.get_ident())


@pytest.mark.row("W12")
def test_each_event_is_called_at_most_once_and_the_last_before_the_worker_has_stopped(app: Mainspring) -> None:
    heard = Heard(app, "succeeded", "started")

    @app.task(name="t")
    async def t(n: int) -> None: ...

    jobs = app.enqueue_many([t.s(n) for n in range(400)])
    with app.worker(), app.worker():
        for job in jobs:
            job.join(timeout=LIMIT)
    counted = Counter((event.job, event.name) for event in heard.events)
    assert counted == Counter({(job.id, name): 1 for job in jobs for name in ("started", "succeeded")})


@pytest.mark.row("W12")
@pytest.mark.parametrize("colour", ["def", "async def"])
def test_a_worker_that_stops_waits_for_running_hooks(app: Mainspring, colour: str) -> None:
    told: list[Event] = []
    if colour == "def":

        @app.on("succeeded")
        def slow(event: Event) -> None:
            time.sleep(0.02)
            told.append(event)
    else:

        @app.on("succeeded")
        async def aslow(event: Event) -> None:
            await asyncio.sleep(0.02)
            told.append(event)

    @app.task(name="t")
    async def t(n: int) -> None: ...

    jobs = app.enqueue_many([t.s(n) for n in range(20)])
    with app.worker(grace="50s"):
        for job in jobs:
            job.join(timeout=LIMIT)
    assert {event.job for event in told} == {job.id for job in jobs}


def test_a_hook_can_be_limited_to_some_tasks(app: Mainspring) -> None:
    shop, all_of_them = Heard(app, "succeeded", task="shop.*"), Heard(app, "succeeded")

    @app.task(name="shop.sell", aliases=["old.sell"])
    async def sell() -> None: ...

    @app.task(name="mail.send")
    async def send() -> None: ...

    other = Mainspring(app.settings.url)
    jobs = [sell.enqueue(), send.enqueue(), other.call("old.sell").enqueue()]
    other.close()
    with app.worker():
        for job in jobs:
            job.join(timeout=LIMIT)
    assert {event.job for event in shop.events} == {jobs[0].id, jobs[2].id}
    assert {event.task for event in shop.events} == {"shop.sell"}, "by its name of today"
    assert len(all_of_them.events) == 3


def test_hooks_can_enqueue(app: Mainspring) -> None:
    @app.task(name="after")
    async def after(job: str) -> str:
        return job

    made: list[Any] = []

    @app.on("succeeded", task="first")
    def follow(event: Event) -> None:
        made.append(after.enqueue(str(event.job)))

    @app.task(name="first")
    async def first() -> None: ...

    with app.worker():
        job = first.enqueue()
        until(lambda: made, "the hook was told")
        assert made[0].result(timeout=LIMIT) == str(job.id)


def test_an_event_that_does_not_exist_is_refused(app: Mainspring) -> None:
    with pytest.raises(UnknownOption, match="did you mean 'dead'"):
        app.on("deed")(print)  # type: ignore[arg-type]  # that is the mistake
