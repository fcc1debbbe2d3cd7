"""Middleware: around every enqueue and every run, the first one added outermost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from mainspring import AsyncContext, Call, Context, Depends, Mainspring, Middleware, Snooze
from mainspring.errors import HardTimeout, InvalidOption
from mainspring.states import State

pytestmark = pytest.mark.stores("sqlite")

LIMIT = 60


class Noting(Middleware):
    """Writes down what it sees, in both colours."""

    def __init__(self, name: str, seen: list[str]) -> None:
        self.name = name
        self.seen = seen

    def run(self, ctx: Context, body: Callable[[], Any]) -> Any:
        self.seen.append(f"{self.name} before {ctx.task}")
        try:
            return body()
        finally:
            self.seen.append(f"{self.name} after {ctx.task}")

    async def arun(self, ctx: AsyncContext, body: Callable[[], Awaitable[Any]]) -> Any:
        self.seen.append(f"{self.name} before {ctx.task}")
        try:
            return await body()
        finally:
            self.seen.append(f"{self.name} after {ctx.task}")


@pytest.mark.parametrize("colour", ["def", "async def"])
def test_the_first_middleware_is_the_outermost_and_dependencies_are_inside(app: Mainspring, colour: str) -> None:
    seen: list[str] = []
    app.middleware(Noting("outer", seen))
    app.middleware(Noting("inner", seen))

    def session() -> Iterator[str]:
        seen.append("open")
        yield "session"
        seen.append("close")

    if colour == "def":

        @app.task(name="t")
        def t(n: int, db: str = Depends(session)) -> int:
            seen.append("body")
            return n

        job = t.enqueue(3)
    else:

        @app.task(name="t")
        async def at(n: int, db: str = Depends(session)) -> int:
            seen.append("body")
            return n

        job = at.enqueue(3)
    with app.worker():
        assert job.result(timeout=LIMIT) == 3
    assert seen == [
        "outer before t", "inner before t", "open", "body", "close", "inner after t", "outer after t",
    ]  # fmt: skip


def test_middleware_can_change_the_result_and_run_the_body_again(app: Mainspring) -> None:
    class Twice(Middleware):
        def run(self, ctx: Context, body: Callable[[], Any]) -> Any:
            return [body(), body()]

        async def arun(self, ctx: AsyncContext, body: Callable[[], Awaitable[Any]]) -> Any:
            return [await body(), await body()]

    app.middleware(Twice())
    calls: list[int] = []

    @app.task(name="count")
    def count() -> Any:
        calls.append(1)
        return len(calls)

    @app.task(name="acount")
    async def acount() -> Any:
        calls.append(1)
        return len(calls)

    with app.worker():
        assert count.enqueue().result(timeout=LIMIT) == [1, 2]
        assert acount.enqueue().result(timeout=LIMIT) == [3, 4]


@pytest.mark.parametrize("colour", ["def", "async def"])
def test_an_exception_of_middleware_is_the_outcome_of_the_attempt(app: Mainspring, colour: str) -> None:
    """An error is retried, a signal is obeyed, and middleware can turn the error of a body into a result."""

    class Wilful(Middleware):
        def __init__(self) -> None:
            self.times = 0

        def decide(self) -> None:
            self.times += 1
            if self.times == 1:
                raise ConnectionError("from the middleware")
            if self.times == 2:
                raise Snooze("10ms")

        def run(self, ctx: Context, body: Callable[[], Any]) -> Any:
            self.decide()
            try:
                return body()
            except ValueError:
                return f"saved at attempt {ctx.attempt}"

        async def arun(self, ctx: AsyncContext, body: Callable[[], Awaitable[Any]]) -> Any:
            self.decide()
            try:
                return await body()
            except ValueError:
                return f"saved at attempt {ctx.attempt}"

    app.middleware(Wilful())
    if colour == "def":

        @app.task(name="t", retries=1, backoff="10ms")
        def t() -> str:
            raise ValueError

        job = t.enqueue()
    else:

        @app.task(name="t", retries=1, backoff="10ms")
        async def at() -> str:
            raise ValueError

        job = at.enqueue()
    with app.worker():
        assert job.result(timeout=LIMIT) == "saved at attempt 2"
    errors = [attempt.error.type for attempt in job.info().attempts if attempt.error]
    assert errors[0] == "ConnectionError"


@pytest.mark.parametrize("colour", ["def", "async def"])
def test_time_limits_apply_to_middleware_as_to_the_body(app: Mainspring, colour: str) -> None:
    class Slow(Middleware):
        def run(self, ctx: Context, body: Callable[[], Any]) -> Any:
            while True:
                time.sleep(0.01)

        async def arun(self, ctx: AsyncContext, body: Callable[[], Awaitable[Any]]) -> Any:
            await asyncio.sleep(LIMIT)

    app.middleware(Slow())
    if colour == "def":

        @app.task(name="t", retries=0, timeout="300ms")
        def t() -> None: ...

        job = t.enqueue()
    else:

        @app.task(name="t", retries=0, timeout="300ms")
        async def at() -> None: ...

        job = at.enqueue()
    with app.worker():
        info = job.join(timeout=LIMIT)
    assert info.state is State.DEAD
    assert info.error is not None
    assert info.error.type.endswith(HardTimeout.__name__)


def test_a_cancel_reaches_the_body_through_middleware(app: Mainspring) -> None:
    seen: list[str] = []
    app.middleware(Noting("m", seen))
    begun = threading.Event()

    @app.task(name="wait")
    async def wait() -> None:
        begun.set()
        await asyncio.sleep(LIMIT)

    with app.worker():
        job = wait.enqueue()
        assert begun.wait(LIMIT)
        job.cancel()
        assert job.join(timeout=LIMIT).state is State.CANCELLED
    assert seen == ["m before wait", "m after wait"]


def test_middleware_reads_changes_and_refuses_enqueues(app: Mainspring) -> None:
    seen: list[tuple[str, dict[str, Any]]] = []

    class Tagging(Middleware):
        def enqueue(self, call: Call[Any]) -> Call[Any]:
            seen.append((call.task, call.arguments))
            if call.arguments.get("n") == 13:
                raise ValueError("not that number")
            return call.options(tags=["seen"])

    app.middleware(Tagging())

    @app.task(name="t")
    async def t(n: int) -> None: ...

    one = t.enqueue(1)
    [two, by_name] = app.enqueue_many([t.s(2), app.call("t", n=3)])
    with pytest.raises(ValueError, match="not that number"):
        t.enqueue(13)
    assert [job.info().tags for job in (one, two, by_name)] == [("seen",)] * 3
    assert seen == [("t", {"n": 1}), ("t", {"n": 2}), ("t", {"n": 3}), ("t", {"n": 13})]
    assert app.jobs.count().total == 3


def test_only_middleware_objects_are_accepted(app: Mainspring) -> None:
    with pytest.raises(InvalidOption, match="Middleware"):
        app.middleware(object())  # type: ignore[arg-type]  # that is the mistake


async def _awaited(self: Any, *args: Any) -> Any: ...


def _plain(self: Any, *args: Any) -> Any: ...


@pytest.mark.parametrize(
    ("methods", "says"),
    [
        ({"run": _plain}, r"has run and no arun: async def tasks would run without it\n.*arun = Middleware\.arun"),
        ({"arun": _awaited}, r"has arun and no run: def tasks would run without it\n.*run = Middleware\.run"),
        ({"enqueue": _plain, "run": _plain}, "has run and no arun"),
        ({}, r"has none of the methods enqueue, run and arun\n  Write def enqueue"),
        ({"before": _plain}, "has none of the methods enqueue, run and arun"),
        ({"runn": _plain}, "has a method 'runn' that is never called; did you mean 'run'"),
        ({"run": _plain, "a_run": _awaited}, "has a method 'a_run' that is never called; did you mean 'arun'"),
        ({"aenqueue": _awaited}, r"did you mean 'enqueue'\?\n.*is called for enqueue and for aenqueue"),
        ({"run": _plain, "arun": _awaited, "enqeue": _plain}, "did you mean 'enqueue'"),
    ],
)
def test_middleware_that_would_skip_runs_or_enqueues_is_refused(
    app: Mainspring, methods: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidOption, match=says):
        app.middleware(type("Audit", (Middleware,), methods)())


def test_middleware_may_leave_out_the_tasks_of_one_kind(app: Mainspring) -> None:
    seen: list[str] = []

    class OfDef(Noting):
        arun = Middleware.arun

    class OfAsync(Noting):
        run = Middleware.run

    app.middleware(OfDef("def", seen))
    app.middleware(OfAsync("async", seen))

    @app.task(name="one")
    def one() -> None: ...

    @app.task(name="two")
    async def two() -> None: ...

    with app.test() as t:
        one.enqueue()
        two.enqueue()
        t.drain()
    assert sorted(seen) == ["async after two", "async before two", "def after one", "def before one"]


def test_middleware_may_have_methods_of_its_own_and_inherit_the_others(app: Mainspring) -> None:
    class Mixin:
        async def arun(self, ctx: AsyncContext, body: Callable[[], Awaitable[Any]]) -> Any:
            return await body()

    class Audit(Mixin, Middleware):
        name = "audit"
        _runn = None

        def run(self, ctx: Context, body: Callable[[], Any]) -> Any:
            return body()

        def check(self) -> None: ...

        def returns(self) -> None: ...

    app.middleware(Audit())
