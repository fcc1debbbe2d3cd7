"""An error of the program itself makes the job dead at once: another attempt would end with the same error."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.errors import InvalidOption, MissingArgument, NotBuilt, WouldBlockLoop
from mainspring.states import Reason, State

LIMIT = 60


def with_fewer_parameters(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator with a mistake: it shows the parameters of the function, and accepts none."""

    @functools.wraps(fn)
    def wrapped() -> Any:
        return fn(1)

    return wrapped


def assert_dead_at_once(app: Mainspring, job: Any, error: type[BaseException]) -> None:
    with app.worker():
        info = job.join(timeout=LIMIT)
    assert (info.state, info.reason, info.attempt) == (State.DEAD, Reason.NOT_RETRYABLE, 1)
    assert info.error is not None
    assert info.error.type.rpartition(".")[2] == error.__name__


def test_a_blocking_call_in_an_async_task_is_not_retried(app: Mainspring) -> None:
    @app.task(retries=5)
    async def blocking() -> None:
        app.queues.list()

    assert_dead_at_once(app, blocking.enqueue(), WouldBlockLoop)


@pytest.mark.parametrize("act", ["invalid option", "not built", "missing argument"])
def test_a_wrong_use_of_the_api_in_a_task_is_not_retried(app: Mainspring, act: str) -> None:
    @app.task
    def child(n: int) -> None: ...

    @app.task(retries=5)
    def misuse(act: str) -> None:
        if act == "invalid option":
            child.options(delay="many").enqueue(1)
        if act == "not built":
            raise NotBuilt("app", "pipeline")
        child.enqueue()  # type: ignore[call-arg]  # the mistake under test

    errors: dict[str, type[BaseException]] = {
        "invalid option": InvalidOption,
        "not built": NotBuilt,
        "missing argument": MissingArgument,
    }
    assert_dead_at_once(app, misuse.enqueue(act), errors[act])


@pytest.mark.parametrize("middleware", [False, True])
def test_a_function_that_refuses_its_own_arguments_is_not_retried(app: Mainspring, middleware: bool) -> None:
    if middleware:
        from mainspring import Middleware

        class Around(Middleware):
            def run(self, ctx: Any, call: Callable[[], Any]) -> Any:
                return call()

            arun = Middleware.arun

        app.middleware(Around())

    @app.task(retries=5)
    @with_fewer_parameters
    def work(n: int) -> int:
        return n

    assert_dead_at_once(app, work.enqueue(1), TypeError)


@pytest.mark.parametrize("colour", ["def", "async def"])
def test_a_type_error_inside_the_body_is_retried(app: Mainspring, colour: str) -> None:
    @app.task(retries=1, backoff="10ms")
    def in_thread(n: int) -> int:
        return n + "1"  # type: ignore[operator]  # the mistake under test

    @app.task(retries=1, backoff="10ms")
    async def on_loop(n: int) -> int:
        return len(n)  # type: ignore[arg-type]  # the mistake under test

    job = in_thread.enqueue(1) if colour == "def" else on_loop.enqueue(1)
    with app.worker():
        info = job.join(timeout=LIMIT)
    assert (info.state, info.reason, info.attempt) == (State.DEAD, Reason.RETRIES_EXHAUSTED, 2)


@pytest.mark.parametrize("of_the_job", [False, True])
def test_a_job_without_retries_is_dead_because_it_failed(app: Mainspring, of_the_job: bool) -> None:
    @app.task(retries=3 if of_the_job else 0)
    def broken() -> None:
        raise ValueError("no luck")

    job = (broken.options(retries=0) if of_the_job else broken).enqueue()
    with app.worker():
        info = job.join(timeout=LIMIT)
    assert (info.state, info.reason, info.attempt) == (State.DEAD, Reason.FAILED, 1)
    [group] = app.dead.stats()
    assert (group.value, group.count) == ("ValueError", 1)
    why = job.why()
    assert "failed" in str(why)
