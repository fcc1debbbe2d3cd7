"""More faults of the public API that a reviewer found: they must not come back."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from mainspring import AsyncContext, Context, Key, Mainspring, Middleware, Tasks
from mainspring.errors import (
    BadSignature,
    InvalidOption,
    JobCancelled,
    KeyTaken,
    UnknownOption,
    UseError,
    WrongArgument,
)
from mainspring.states import Reason, State
from mainspring.worker.records import Beat, Registration
from tests.rows.test_found_face import publisher

pytestmark = pytest.mark.stores("sqlite")

LIMIT = 60

shop = Tasks()


@shop.task(name="shop.add")
def add(a: int = 1) -> int:
    return a


class Recorder:
    """Of another program, and no context of ours."""


class TestDeclaring:
    @pytest.mark.parametrize("colour", ["run", "enqueue", "arun"])
    def test_sync_and_async_methods_of_middleware_are_checked(self, app: Mainspring, colour: str) -> None:
        async def awaited(self: Any, *args: Any) -> Any: ...
        def plain(self: Any, *args: Any) -> Any: ...

        wrong = type("Wrong", (Middleware,), {colour: plain if colour == "arun" else awaited})
        with pytest.raises(InvalidOption, match=rf"(?s){colour} must be.*{'async def' if colour == 'arun' else 'def'}"):
            app.middleware(wrong())
        right = {"run": plain, "enqueue": plain, "arun": awaited}
        app.middleware(type("Right", (Middleware,), right)())

    def test_a_hook_without_events_is_refused(self, app: Mainspring) -> None:
        anything: Any = app
        with pytest.raises(InvalidOption, match=r'(?s)is not the name of an event.*@app\.on\("dead"\)'):
            anything.on(lambda event: None)
        with pytest.raises(InvalidOption, match="at least one event"):
            anything.on()
        with pytest.raises(UnknownOption, match="did you mean 'dead'"):
            anything.on("dad")
        with pytest.raises(InvalidOption, match="pattern"):
            anything.on("dead", task=5)
        assert not app.hooks

    @pytest.mark.parametrize("what", [5, "send-mail", dict, None.__class__, add], ids=repr)
    def test_a_task_must_be_a_function(self, app: Mainspring, what: Any) -> None:
        for declare in (app.task, app.task(name="x"), Tasks().task):
            with pytest.raises(InvalidOption, match=r"(?s)is not a function.*name="):
                declare(what)
        assert len(app.tasks) == 0

    def test_the_context_class_must_match_the_colour_of_the_task(self, app: Mainspring) -> None:
        async def awaited(ctx: Context) -> None: ...
        def plain(ctx: AsyncContext) -> None: ...

        with pytest.raises(BadSignature, match=r"(?s)'ctx' is a Context.*AsyncContext"):
            app.task(name="a")(awaited)
        with pytest.raises(BadSignature, match=r"(?s)'ctx' is an AsyncContext.*Context"):
            app.task(name="a")(plain)

    def test_the_context_must_be_the_first_parameter_and_occur_once(self, app: Mainspring) -> None:
        def second(n: int, ctx: Context) -> None: ...
        def named(n: int, *, ctx: Context) -> None: ...
        def maybe(ctx: Context | None) -> None: ...
        async def either(ctx: Context | AsyncContext, n: int) -> None: ...

        for fn in (second, named, maybe, either):
            with pytest.raises(BadSignature, match="'ctx' must be the first parameter"):
                app.task(name="a")(fn)

    def test_a_users_own_class_named_context_is_an_ordinary_argument(self, app: Mainspring) -> None:
        mine = type("Context", (dict,), {"__module__": "shop"})

        def first(ctx: Any, n: int) -> int:
            return n

        first.__annotations__ = {"ctx": mine, "n": "int", "return": "int"}
        assert not app.task(name="a")(first).declared.takes_context

    def test_a_refused_task_is_not_registered(self, app: Mainspring) -> None:
        @app.task(name="first")
        def first() -> None: ...
        def second() -> None: ...

        with pytest.raises(InvalidOption, match="is already the name of"):
            app.task(name="second", aliases=["first"])(second)
        assert app.tasks.find("second") is None
        assert app.tasks.find("first") is first

    def test_an_upgrade_must_be_a_plain_function(self, app: Mainspring) -> None:
        task: Any = app.task(name="a")(lambda: None)

        async def later(old: dict[str, Any]) -> dict[str, Any]:
            return old

        for wrong in (later, 5, None):
            with pytest.raises(InvalidOption, match=r"upgrade=.*must be a def"):
                task.upgrade(wrong)
        assert task.spec().upgrade is None


class TestFollowUps:
    def test_a_follow_up_task_with_a_key_is_refused_at_declaration(self, app: Mainspring) -> None:
        @app.task(name="keyed", key="k")
        def keyed(job: UUID) -> None: ...

        @app.task(name="free")
        def free(job: UUID) -> None: ...

        def parent() -> None: ...

        for wrong in (keyed, keyed.s(UUID(int=1)), free.options(key="k"), free.s(UUID(int=1)).options(key="k")):
            with pytest.raises(InvalidOption, match=r"(?s)task 'p': on_dead=.*cannot have key=.*once for each job"):
                app.task(name="p", on_dead=wrong)(parent)
        app.task(name="q", on_dead="keyed")(parent)
        with pytest.raises(InvalidOption, match=r"(?s)task 'q': on_dead=.*cannot have key="):
            app.call("q").enqueue()

    def test_follow_ups_ignore_a_key_added_by_middleware(self, app: Mainspring) -> None:
        class Keys(Middleware):
            def enqueue(self, call: Any) -> Any:
                return call.options(key=Key(call.task), tags=["seen"])

        app.middleware(Keys())

        @app.task(name="after")
        def after(job: UUID) -> None: ...

        @app.task(name="first", on_success=after)
        def first() -> None: ...

        with app.test() as t:
            job = first.enqueue()
            t.drain()
            [info] = t.enqueued(after)
            assert (info.parent, info.key, info.tags) == (job.id, None, ("seen",))

    def test_a_follow_up_task_of_another_app_is_refused_by_name(self, app: Mainspring) -> None:
        other = Mainspring("sqlite://")

        @other.task(name="theirs")
        def theirs(job: UUID) -> None: ...

        @app.task(name="first", on_success=theirs)
        def first() -> None: ...

        with pytest.raises(InvalidOption, match=r"task 'first': on_success=.*another app"):
            first.enqueue()


class TestHandlers:
    def test_send_and_progress_refuse_values_that_would_arrive_changed(self, app: Mainspring) -> None:
        refused: list[str] = []

        @app.task(name="tell")
        def tell(ctx: Context) -> None:
            nan, inf, text = float("nan"), float("inf"), "x"
            wrong: list[Callable[[], None]] = [
                lambda: ctx.send(nan),
                lambda: ctx.send({"a": [inf]}),
                lambda: ctx.send("a\0b"),
                lambda: ctx.progress(text),  # type: ignore[arg-type]
                lambda: ctx.progress(nan),
                lambda: ctx.progress(True),
                lambda: ctx.progress(1, inf),
                lambda: ctx.progress(1, 2, at=nan),
            ]
            for say in wrong:
                try:
                    say()
                except InvalidOption as error:
                    refused.append(error.name)
            ctx.send(None)
            ctx.send("null")
            ctx.progress(1, 2.5, "half", at=None)

        with app.worker():
            job = tell.enqueue()
            assert list(job.stream(LIMIT)) == [None, "null"]
        assert refused == ["send"] * 3 + ["progress"] * 5
        assert job.info().progress == {"done": 1, "total": 2.5, "note": "half", "meta": {"at": None}}

    def test_a_worker_runs_tasks_that_are_declared_after_it_started(self, app: Mainspring) -> None:
        """As in a notebook: one cell starts the worker, the next cell declares a task."""
        with app.worker():

            @app.task(name="late", aliases=["old.late"])
            def late(n: int) -> int:
                return n

            assert late.enqueue(5).result(LIMIT) == 5
            assert publisher(app).call("old.late", 6).enqueue().result(LIMIT) == 6


class TestByName:
    @pytest.mark.parametrize(
        ("args", "why"),
        [(("x",), "Expected `?int`?, got `?str"), ((1, 2, 3), "takes 2 positional"), ((), "'a'")],
        ids=["wrong", "too many", "missing"],
    )
    def test_the_error_of_a_job_by_name_says_which_argument_does_not_fit(
        self, app: Mainspring, args: tuple[Any, ...], why: str
    ) -> None:
        @app.task(name="opt")
        def opt(a: int, b: int = 5) -> int:
            return a

        job = publisher(app).call("opt", *args).enqueue()
        with app.worker():
            info = job.join(LIMIT)
        assert info.reason is Reason.UNDECODABLE
        assert info.error is not None
        assert "'@'" not in info.error.message
        with pytest.raises(AssertionError, match=why):
            raise AssertionError(info.error.message.replace("'int'", "int").replace("'str'", "str"))

    def test_an_argument_can_have_any_name(self, app: Mainspring) -> None:
        @app.task(name="kw")
        def kw(**rest: int) -> dict[str, int]:
            return rest

        given = {"self": 1, "fn": 2, "task": 3, "args": 4, "kwargs": 5, "app": 6, "name": 7}
        assert kw(**given) == given
        with app.worker():
            assert kw.enqueue(**given).result(LIMIT) == given
            assert asyncio.run(kw.s(**given).aenqueue()).result(LIMIT) == given
            assert app.call("kw", **given).enqueue().result(LIMIT) == given
            assert publisher(app).call("kw", **given).enqueue().result(LIMIT) == given

    @pytest.mark.parametrize("name", ["@", "*", "**"])
    def test_the_names_that_payloads_reserve_are_refused_as_arguments(self, app: Mainspring, name: str) -> None:
        with pytest.raises(WrongArgument, match="cannot be the name of an argument"):
            app.call("u", 1, **{name: [2]})


@pytest.mark.stores("sqlite", "postgres", "redis")
class TestHandles:
    def test_the_reason_of_a_cancel_reaches_the_waiting_caller(self, app: Mainspring) -> None:
        job = app.call("x").enqueue()
        job.cancel("not needed any more")
        with pytest.raises(JobCancelled, match="not needed any more") as cancelled:
            job.result(LIMIT)
        assert cancelled.value.reason == "not needed any more"
        plain = app.call("x").enqueue()
        plain.cancel()
        with pytest.raises(JobCancelled, match="by_user"):
            plain.result(LIMIT)

    def test_a_batch_with_the_same_key_twice_is_refused(self, app: Mainspring) -> None:
        @app.task(name="once")
        def once() -> None: ...

        call = once.options(key=Key("k", on_conflict="error")).s()
        for enqueue in (app.enqueue_many, lambda calls: asyncio.run(app.aenqueue_many(calls))):
            with pytest.raises(KeyTaken, match="two calls of this batch"):
                enqueue([call, call])
        first = call.enqueue()
        with pytest.raises(KeyTaken, match=str(first.id)):
            app.enqueue_many([call])

    def test_a_copied_handle_is_the_same_and_handles_are_never_pickled(self, app: Mainspring) -> None:
        app.include(shop)
        task: Any = app.tasks.find("shop.add")
        call = task.s(1)
        job = call.enqueue()
        for each in (job, call, task):
            assert copy.copy(each) is each
            assert copy.deepcopy([each]) == [each]
        with pytest.raises(UseError, match=r"(?s)Job cannot be pickled.*job\.id"):
            pickle.dumps(job)
        with pytest.raises(UseError, match=r"(?s)Call cannot be pickled.*task\.name"):
            pickle.dumps(call)

    def test_a_task_is_pickled_by_its_name(self) -> None:
        assert pickle.loads(pickle.dumps(add)) is add
        with pytest.raises(pickle.PicklingError):
            pickle.dumps(add.options(priority=1))

    def test_a_conflict_of_options_names_both_options(self, app: Mainspring) -> None:
        with pytest.raises(InvalidOption, match=r"delay='1s'.*together with run_at") as refused:
            app.call("x").options(delay="1s").options(run_at=datetime.now(UTC))
        assert "None" not in str(refused.value)


@pytest.mark.stores("sqlite", "postgres", "redis")
async def test_a_worker_whose_lease_is_over_is_listed_as_lost_before_its_rescue(app: Mainspring) -> None:
    async with app.test() as t:
        store = await app.client.store()
        await store.beat([Beat("silent", Registration(queues=("q",), lease=2_000_000, info=b"{}"))])
        t.clock.advance("2s")
        assert [each.lost for each in await app.workers.alist()] == [False]
        t.clock.advance("1ms")
        assert await app.workers.alist() == []
        assert [each.lost for each in await app.workers.alist(lost=True)] == [True]


@pytest.mark.stores("sqlite", "postgres", "redis")
def test_expires_counts_from_the_enqueue(app: Mainspring) -> None:
    """Also for a delayed job, as documented."""
    with app.test() as t:
        job = app.call("x").options(delay="1h", expires="90m").enqueue()
        t.clock.advance("100m")
        t.drain()
        assert (job.info().state, job.info().reason) == (State.CANCELLED, Reason.EXPIRED)
