"""Faults of the public API that a reviewer found by trying to break it: they must not come back."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from mainspring import Depends, Key, Mainspring, Query, Tasks
from mainspring.errors import BadSignature, InvalidOption
from mainspring.states import Reason, State
from tests.rows.crew import Crew
from tests.rows.crew import Tasks as CrewTasks

pytestmark = pytest.mark.stores("sqlite")

LIMIT = 60


def publisher(app: Mainspring) -> Mainspring:
    """A program that has none of the app's code."""
    return Mainspring(app.settings.url)


def map_of(ran: list[str]) -> Iterator[str]:
    ran.append("map")
    yield "map"


class Halves:
    """An object that is called and awaited."""

    async def __call__(self, n: int) -> int:
        return n // 2


class Counts:
    def __call__(self, n: int) -> Iterator[int]:
        yield n


class TestNames:
    @pytest.mark.parametrize("name", [b"x", None, 5, "", " ", "a b", "x" * 201, "a\0b", "\ud800", ["a"]])
    def test_a_call_by_name_needs_a_valid_task_name(self, app: Mainspring, name: Any) -> None:
        with pytest.raises(InvalidOption, match="is not a task name"):
            app.call(name, 1)

    def test_a_call_by_name_accepts_the_name_of_a_known_task(self, app: Mainspring) -> None:
        """The name of a script can contain a space, and so can the names of its tasks."""

        @app.task
        def odd() -> int:
            return 1

        app.tasks._by_name["my script.odd"] = odd
        assert app.call("my script.odd").task == odd.name


class TestBodies:
    def test_a_generator_function_is_refused_as_task(self, app: Mainspring) -> None:
        def gen(n: int) -> Iterator[int]:
            yield n

        async def agen(n: int) -> AsyncIterator[int]:
            yield n

        for fn in (gen, agen, functools.partial(gen, 1), Counts()):
            with pytest.raises(BadSignature, match="is a generator"):
                app.task(name="gen")(fn)
        assert len(app.tasks) == 0

    def test_an_object_with_an_async_call_runs_on_the_loop(self, app: Mainspring) -> None:
        half = app.task(name="half")(Halves())
        part = app.task(name="part")(functools.partial(Halves(), n=6))
        assert (half.declared.kind, part.declared.kind) == ("async", "async")
        with app.worker():
            assert half.enqueue(8).result(LIMIT) == 4
            assert part.enqueue().result(LIMIT) == 3

    @pytest.mark.parametrize("result", ["store", "ignore"])
    def test_a_job_whose_coroutine_was_never_awaited_fails(self, app: Mainspring, result: Any) -> None:
        ran: list[str] = []

        async def inner() -> None:
            ran.append("inner")

        def hidden() -> Any:  # as a plain decorator around an async def makes it
            return inner()

        async def forgot() -> Any:
            return inner()

        def lazily() -> Any:
            return map_of(ran)

        async def items() -> AsyncIterator[int]:
            ran.append("items")
            yield 1

        async def asyncly() -> Any:
            return items()

        tasks = [app.task(name=fn.__name__, retries=0, result=result)(fn) for fn in (hidden, forgot, lazily, asyncly)]
        with app.worker():
            for task in tasks:
                info = task.enqueue().join(LIMIT)
                assert (info.state, ran) == (State.DEAD, []), task
                assert info.error is not None
                assert "has not run" in info.error.message

    def test_a_job_whose_coroutine_was_never_awaited_is_not_retried(self, app: Mainspring) -> None:
        """Another try would return a coroutine again."""

        async def inner() -> int:
            return 7

        seen: list[int] = []

        @app.task(name="once", retries=1, backoff="10ms")
        def once() -> Any:
            seen.append(1)
            return inner()

        with app.worker():
            info = once.enqueue().join(LIMIT)
        assert (info.state, info.reason, seen) == (State.DEAD, Reason.NOT_RETRYABLE, [1])


class TestDeclaring:
    def test_functions_of_one_name_do_not_replace_each_other_as_tasks(self, app: Mainspring) -> None:
        def make(k: int) -> Any:
            @app.task
            def scale(x: int) -> int:
                return x * k

            return scale

        double = make(2)
        with pytest.raises(InvalidOption, match="is already the name of"):
            make(3)
        assert app.tasks.find(double.name) is double

    def test_lambdas_do_not_replace_each_other_as_tasks(self, app: Mainspring) -> None:
        app.task(name="one")(lambda: 1)
        with pytest.raises(InvalidOption, match=r"(?s)is already the name of.*<lambda>.*name="):
            app.task(name="one")(lambda: 2)

    def test_objects_do_not_replace_each_other_as_tasks(self, app: Mainspring) -> None:
        first = Halves()
        app.task(first)
        app.task(first)
        with pytest.raises(InvalidOption, match=r"is already the name of .*Halves"):
            app.task(Halves())
        app.task(name="part")(functools.partial(max, 1))
        with pytest.raises(InvalidOption, match="is already the name of"):
            app.task(name="part")(functools.partial(max, 2))

    def test_code_that_runs_again_replaces_the_tasks_it_declared(self, app: Mainspring) -> None:
        """A cell of a notebook or a reloaded module, also behind a decorator that does not run again."""

        def logged(fn: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(fn)
            def wrapper(*args: Any) -> Any:
                return fn(*args)

            return wrapper

        cell = "@app.task\ndef f(): return {n}\n@app.task\n@logged\ndef g(): return {n}\n"
        cell += "h = app.task(name='h')(lambda: {n} * 0)"
        for n in (1, 1, 2):
            names: dict[str, Any] = {"app": app, "logged": logged, "__name__": "cell"}
            exec(cell.replace("{n} * 0", "0").format(n=n), names)
        assert [app.tasks._by_name[f"cell.{name}"]() for name in ("f", "g")] == [2, 2]  # type: ignore[operator]

    def test_including_one_task_is_refused(self, app: Mainspring) -> None:
        library = Tasks()

        @library.task(name="l2")
        def l2(x: int) -> int:
            return x

        for wrong in (l2, app, Tasks, 5):
            with pytest.raises(InvalidOption, match="is neither"):
                app.include(wrong)  # type: ignore[arg-type]
        app.include(library)
        assert app.tasks.find("l2") is not None

    @pytest.mark.parametrize("name", ["", "shop tasks", "shop..tasks", ".tasks"])
    def test_include_refuses_what_cannot_be_a_module(self, app: Mainspring, name: str) -> None:
        with pytest.raises(InvalidOption, match="is not the name of a module"):
            app.include(name)


class TestHidden:
    def test_sensitive_arguments_are_hidden_everywhere(self, app: Mainspring) -> None:
        @app.task(name="login", sensitive=["pin"])
        def login(user: str, password: str, pin: str, more: dict[str, str]) -> str:
            return user

        call = login.s("ann", password="hunter2secret", pin="123456", more={"api_key": "deepsecret"})
        keyed = call.options(key=Key.arguments(), meta={"password": "metasecret", "source": {"token": "metatoken"}})
        info = keyed.enqueue().info()
        said = f"{info.args} {info.key} {info.meta} {call!r}"
        for secret in ("hunter2secret", "123456", "deepsecret", "metasecret", "metatoken"):
            assert secret not in said
        assert "ann" in str(info.key)
        assert "ann" in repr(call)
        assert info.meta == {"password": "***", "source": {"token": "***"}}

    def test_keys_differ_by_hidden_arguments(self, app: Mainspring) -> None:
        @app.task(name="login", key=Key.arguments())
        def login(password: str) -> None: ...

        assert login.enqueue("one").id != login.enqueue("two").id

    def test_a_call_by_name_hides_values_that_look_secret(self, app: Mainspring) -> None:
        call = publisher(app).call("login", user="ann", password="hunter2secret")
        assert "hunter2secret" not in repr(call)
        with pytest.raises(InvalidOption, match="another app") as refused:
            app.enqueue_many([call])
        assert "hunter2secret" not in str(refused.value)


class TestBadInput:
    def test_enqueue_many_takes_only_calls(self, app: Mainspring) -> None:
        @app.task(name="add")
        def add(a: int = 1) -> int:
            return a

        for wrong in ([add], "abc", [1], [None], [add.s(), add]):
            with pytest.raises(InvalidOption, match=r"(?s)is not a call.*\.s\("):
                app.enqueue_many(wrong)  # type: ignore[arg-type]
        for lone in (add.s(), None, 5, add):
            with pytest.raises(InvalidOption, match=r"(?s)must be several calls.*enqueue_many\(\["):
                app.enqueue_many(lone)  # type: ignore[arg-type]
        assert app.jobs.count().total == 0

        def broken() -> Iterator[Any]:
            yield add.s()
            raise TypeError("mine")

        with pytest.raises(TypeError, match="mine"):
            app.enqueue_many(broken())

    @pytest.mark.parametrize("rate", [float("inf"), float("nan"), True, 0, -1, "5", 10**400])
    def test_a_rate_of_retries_must_be_a_number_of_jobs(self, app: Mainspring, rate: Any) -> None:
        with pytest.raises(InvalidOption, match="rate="):
            app.jobs.retry(Query.everything(), rate=rate)
        with pytest.raises(InvalidOption, match="rate="):
            app.dead.retry(Query.everything(), rate=rate)

    @pytest.mark.parametrize("cursor", [5, "", b"ab", "ß"])
    def test_a_cursor_must_come_from_a_page(self, app: Mainspring, cursor: Any) -> None:
        with pytest.raises(InvalidOption, match="cursor="):
            app.jobs.list(cursor=cursor)
        with pytest.raises(InvalidOption, match="cursor="):
            app.dead.list(cursor=cursor)

    @pytest.mark.parametrize("hours", [-12, 14])
    def test_a_run_at_beyond_the_calendar_is_refused(self, app: Mainspring, hours: int) -> None:
        zone = timezone(timedelta(hours=hours))
        moment = datetime(9999, 12, 31, 23, tzinfo=zone) if hours < 0 else datetime(1, 1, 1, tzinfo=zone)
        with pytest.raises(InvalidOption, match=r"run_at=.*calendar"):
            app.call("x").options(run_at=moment)
        last = datetime(9999, 12, 31, 23, 59, tzinfo=UTC)
        assert app.call("x").options(run_at=last).enqueue().info().due == last

    def test_the_reason_of_a_cancel_must_be_text_that_every_store_can_keep(self, app: Mainspring) -> None:
        job = app.call("x").enqueue()
        for reason in (None, 5, b"x", "a\0b", "\ud800", "x" * 1001):
            with pytest.raises(InvalidOption, match="reason="):
                job.cancel(reason)  # type: ignore[arg-type]
            with pytest.raises(InvalidOption, match="reason="):
                app.jobs.cancel(Query.of(job.id), reason)  # type: ignore[arg-type]
        assert job.info().state is State.READY
        assert job.cancel("ß" * 1000)
        assert job.info().note == "ß" * 1000

    @pytest.mark.parametrize("after", [2**70, -1, "x", None, True, 1.5])
    def test_after_must_be_the_number_of_a_log_line(self, app: Mainspring, after: Any) -> None:
        with pytest.raises(InvalidOption, match="after="):
            app.call("x").enqueue().logs(after)

    @pytest.mark.parametrize(
        "query",
        [
            {"states": "ready"}, {"states": ("gone",)}, {"states": ()}, {"queues": "ab"}, {"queues": (5,)},
            {"marks": ["a"]}, {"marks": ("\ud800",)}, {"tasks": None}, {"errors": ("a\0b",)}, {"ids": (b"short",)},
            {"ids": "x"}, {"since": "today"}, {"until": 2**70}, {"ended_before": 1.5}, {"all": 1}, {"reasons": ("x",)},
        ],
        ids=repr,
    )  # fmt: skip
    def test_a_query_made_without_where_is_checked_too(self, app: Mainspring, query: dict[str, Any]) -> None:
        if query == {"states": ()}:
            assert app.jobs.list(Query(**query)).jobs == ()
            return
        with pytest.raises(InvalidOption, match=f"{next(iter(query))}="):
            app.jobs.list(Query(**query))


@pytest.mark.stores("sqlite", "postgres", "redis")
class TestByName:
    def test_a_worker_also_serves_the_default_queue(self, app: Mainspring) -> None:
        @app.task(name="mail", queue="email")
        def mail(n: int) -> int:
            return n

        assert app.tasks.queues() == ("default", "email")
        job = publisher(app).call("mail", 3).enqueue()
        with app.worker():
            assert job.result(LIMIT) == 3

    @pytest.mark.option("task.ack")
    @pytest.mark.parametrize("colour", ["async", "def"])
    def test_an_ack_early_job_that_failed_is_not_started_again(self, app: Mainspring, colour: str) -> None:
        began: list[int] = []

        def body() -> None:
            began.append(1)
            raise ValueError("no")

        async def abody() -> None:
            body()

        app.task(name="once", ack="early", backoff="10ms")(abody if colour == "async" else body)
        with app.worker():
            info = publisher(app).call("once").enqueue().join(LIMIT)
        assert (info.state, began) == (State.DEAD, [1])

    def test_an_ack_early_job_whose_process_died_is_not_started_again(self, crew: Crew, tasks: CrewTasks) -> None:
        first = crew.start()
        job = publisher(tasks.app).call("crew.once").options(queue="canary").enqueue()
        first.wait(LIMIT)
        info = job.join(LIMIT)
        assert (info.state, info.error and info.error.type) == (State.DEAD, "mainspring.errors.WorkerCrashed")
        crew.start()
        tasks.canary.enqueue().result(LIMIT)  # the queue goes on, and the job had its chance
        assert len((tasks.folder / "began").read_text().splitlines()) == 1

    def test_an_ack_early_job_that_was_stopped_is_not_started_again(self, app: Mainspring) -> None:
        began = threading.Event()

        @app.task(name="slow", ack="early")
        async def slow() -> None:
            began.set()
            await asyncio.sleep(LIMIT)

        job = publisher(app).call("slow").enqueue()
        with app.worker(drain=0):
            assert began.wait(LIMIT)
        info = job.info()
        assert (info.state, info.error and info.error.type) == (
            State.DEAD,
            "mainspring.worker.run.classify.Interrupted",
        )

    @pytest.mark.parametrize("by_place", [True, False])
    @pytest.mark.option("task.sensitive")
    def test_a_worker_hides_the_sensitive_arguments_of_a_job_by_name(self, app: Mainspring, by_place: bool) -> None:
        @app.task(name="pay", sensitive=["pin"], retries=0)
        def pay(order: int, pin: str, codes: list[str]) -> None:
            raise ValueError(f"{order}: {pin} {codes} is wrong")

        pub = publisher(app)
        args = (7, "123456", ["987654"])
        call = pub.call("pay", *args) if by_place else pub.call("pay", order=7, pin="123456", codes=["987654"])
        with app.worker():
            error = call.enqueue().join(LIMIT).error
        assert error is not None
        assert "7: *** ['987654'] is wrong" in error.message
        assert "123456" not in str(error)


class TestDepends:
    def test_a_partial_is_read_like_its_function(self, app: Mainspring) -> None:
        closed: list[int] = []

        async def aget(n: int) -> int:
            return n

        def gget(n: int) -> Iterator[int]:
            yield n
            closed.append(n)

        async def agget(n: int) -> AsyncIterator[int]:
            yield n
            closed.append(n)

        @app.task(name="sum")
        async def total(
            a: int = Depends(functools.partial(aget, 1)),
            b: int = Depends(functools.partial(gget, 2)),
            c: int = Depends(functools.partial(agget, 4)),
        ) -> int:
            return a + b + c

        with app.worker():
            assert total.enqueue().result(LIMIT) == 7
        assert closed == [4, 2]
        with pytest.raises(BadSignature, match="depends on aget, which is async"):

            @app.task(name="wrong")
            def wrong(a: int = Depends(functools.partial(aget, 1))) -> None: ...

    def test_a_dependency_that_returns_a_coroutine_or_generator_fails_the_job(self, app: Mainspring) -> None:
        @app.task(name="late", retries=0)
        async def late(a: Any = Depends(lambda: asyncio.sleep(0))) -> None: ...

        @app.task(name="plain", retries=0)
        def plain(a: Any = Depends(lambda: map_of([]))) -> None: ...

        with app.worker():
            for task, what in ((late, "coroutine"), (plain, "generator")):
                error = task.enqueue().join(LIMIT).error
                assert error is not None
                assert f"returned a {what}" in error.message
