"""A middleware that loses the result, a limiter's key that nothing uses, and a worker without slots for its tasks."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mainspring import AsyncContext, Cancel, Concurrency, Context, Mainspring, Middleware, Rate
from mainspring.errors import InvalidOption, JobDead, ResultTimeout
from mainspring.states import Reason, State

LIMIT = 60


class Forgetful(Middleware):
    """Calls the body and forgets to return its result."""

    def run(self, ctx: Context, body: Callable[[], Any]) -> Any:
        body()

    async def arun(self, ctx: AsyncContext, body: Callable[[], Awaitable[Any]]) -> Any:
        await body()


class Skipping(Middleware):
    """Never runs the body."""

    def run(self, ctx: Context, body: Callable[[], Any]) -> Any: ...
    async def arun(self, ctx: AsyncContext, body: Callable[[], Awaitable[Any]]) -> Any: ...


class Cautious(Middleware):
    """Answers itself, on purpose."""

    def run(self, ctx: Context, body: Callable[[], Any]) -> Any:
        return self.answer(ctx)

    async def arun(self, ctx: AsyncContext, body: Callable[[], Awaitable[Any]]) -> Any:
        return self.answer(ctx)

    def answer(self, ctx: Context | AsyncContext) -> str:
        if ctx.task == "cancelled":
            raise Cancel
        return "from the cache"


def declare(app: Mainspring, colour: str, name: str, value: Any) -> Any:
    def body() -> Any:
        return value

    async def abody() -> Any:
        return value

    return app.task(name=name, retries=3)(body if colour == "def" else abody)


@pytest.mark.parametrize("colour", ["def", "async def"])
@pytest.mark.parametrize(
    ("kind", "said"), [(Forgetful, r"body\(\) returned a result"), (Skipping, r"did not call .*body\(\): the work is")]
)
def test_a_middleware_that_loses_the_result_fails_the_attempt(
    app: Mainspring, colour: str, kind: type[Middleware], said: str
) -> None:
    app.middleware(kind())
    job = declare(app, colour, "read", 7).enqueue()
    with app.worker(), pytest.raises(JobDead, match=said) as dead:
        job.result(timeout=LIMIT)
    assert dead.value.reason == Reason.NOT_RETRYABLE
    assert dead.value.type_name == "mainspring.errors.MiddlewareError"


@pytest.mark.parametrize("colour", ["def", "async def"])
def test_a_middleware_may_answer_itself_and_return_the_none_of_the_body(app: Mainspring, colour: str) -> None:
    app.middleware(Cautious())
    answered, cancelled = (declare(app, colour, name, None).enqueue() for name in ("answered", "cancelled"))
    with app.worker():
        assert answered.result(timeout=LIMIT) == "from the cache"
        cancelled.join(timeout=LIMIT)
    assert cancelled.info().state is State.CANCELLED


@pytest.mark.parametrize("colour", ["def", "async def"])
def test_a_body_without_a_result_may_be_forgotten(app: Mainspring, colour: str) -> None:
    app.middleware(Forgetful())
    job = declare(app, colour, "nothing", None).enqueue()
    with app.worker():
        assert job.result(timeout=LIMIT) is None


@pytest.mark.stores("sqlite")
def test_a_key_for_a_limiter_without_by_is_refused(app: Mainspring) -> None:
    api = app.limiter("api", Rate(100, per="1s"), Concurrency(3))
    with pytest.raises(InvalidOption, match="key='a': is given to a limiter whose limits have no by="):
        api.at(key="a")
    with api.at(cost=2, wait="1s"):
        pass
    with app.limiter("mixed", Rate(100, per="1s"), Concurrency(3, by="tenant")).at(key="a"):
        pass


@pytest.mark.stores("sqlite")
@pytest.mark.option("worker.async_slots", "worker.thread_slots")
def test_a_worker_without_any_slot_is_refused(app: Mainspring) -> None:
    with pytest.raises(
        InvalidOption, match=r"thread_slots=0: is given with async_slots=0: the worker could run no job"
    ):
        app.worker(async_slots=0, thread_slots=0).__enter__()


def test_a_worker_without_slots_for_a_task_warns_and_why_names_the_option(
    app: Mainspring, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="threaded")
    def threaded() -> int:
        return 1

    @app.task(name="looped")
    async def looped() -> int:
        return 1

    warnings = [f"{kind}_slots=0: no live worker runs the" for kind in ("thread", "async")]
    job, caplog.handler.level = threaded.enqueue(), logging.WARNING
    with app.worker(thread_slots=0):
        assert looped.enqueue().result(timeout=LIMIT) == 1
        [slots] = job.why().obstacles
        assert (slots.kind, slots.name) == ("slots", "thread_slots")
        assert slots.text == "no live worker of queue 'default' runs def tasks: they have thread_slots=0"
        with pytest.raises(ResultTimeout, match="Its workers need thread_slots above 0"):
            job.result(timeout="100ms")
        said = [each.getMessage() for each in caplog.records if each.getMessage().startswith(warnings[0])]
        assert said == [f"{warnings[0]} def tasks 'threaded'; their jobs stay ready"]
        caplog.clear()
    with app.worker():
        assert job.result(timeout=LIMIT) == 1
    assert not [each for each in caplog.records if each.getMessage().startswith((warnings[0], warnings[1]))]
