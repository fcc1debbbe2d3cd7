"""Traps of the Python API that used to be silent, or to answer with Python's own error: each has a sentence now."""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from mainspring import AsyncContext, Concurrency, Context, Depends, Event, Mainspring, Rate, Retry
from mainspring.errors import (
    ArgumentNotSerializable,
    BadSignature,
    InvalidOption,
    JobDead,
    UnknownArgument,
    UnknownOption,
    WrongArgument,
)
from mainspring.states import Reason, State
from tests.rows.crew import until

LIMIT = 60
rate: Any = Rate  # Any: a type checker finds the wrong calls below first
concurrency: Any = Concurrency


@dataclass
class Base:
    a: int = 1


@dataclass
class Derived(Base):
    b: int = 2


def declared(app: Mainspring, code: str, **options: Any) -> Any:
    """The task of a function that is written without annotations, which the linters do not allow here."""
    names: dict[str, Any] = {"__name__": __name__, "Context": Context, "Depends": Depends}
    exec(textwrap.dedent(code), names)
    return app.task(**options)(names["f"])


# ---- the context -----------------------------------------------------------------------------------


@pytest.mark.stores("sqlite")
class TestAContextWithoutAnnotation:
    @pytest.mark.parametrize("name", ["ctx", "context", "self", "cls"])
    @pytest.mark.parametrize("rest", ["", ", x=0", ", *rest"])
    def test_is_refused_at_the_declaration(self, app: Mainspring, name: str, rest: str) -> None:
        says = (
            rf"task 'f': argument '{name}' has no annotation: .* not the context\n  For the context write ctx: Context;"
        )
        with pytest.raises(BadSignature, match=says):
            declared(app, f"def f({name}{rest}): return 1", name="f")

    def test_names_the_context_of_an_async_def(self, app: Mainspring) -> None:
        with pytest.raises(BadSignature, match="write ctx: AsyncContext;"):
            declared(app, "async def f(ctx): return 1", name="f")

    def test_is_explained_to_users_of_celery(self, app: Mainspring) -> None:
        with pytest.raises(BadSignature, match=r"Celery's bind=True and self are the context here\.$"):
            declared(app, "def f(self, x): return 1", name="f")

    def test_is_refused_in_bulk_tasks_and_schedules(self, app: Mainspring) -> None:
        with pytest.raises(BadSignature, match="argument 'ctx' has no annotation"):
            app.bulk_task(size=2, name="bulk")(lambda ctx, items: items)
        with pytest.raises(BadSignature, match="argument 'ctx' has no annotation"):
            app.schedule(every="1h")(partial(lambda ctx: None))

    @pytest.mark.parametrize(
        "code",
        [
            "def f(ctx: Context, x=0): return x",
            "def f(ctx: str): return ctx",
            "def f(x, ctx=0): return x",
            "def f(context=Depends(dict)): return 1",
            "def f(*self): return 1",
        ],
    )
    def test_other_functions_are_tasks(self, app: Mainspring, code: str) -> None:
        assert declared(app, code, name="f").name == "f"


# ---- options ---------------------------------------------------------------------------------------


class TestRetriesOfEarlyAcks:
    @pytest.mark.stores("sqlite")
    def test_are_refused_on_the_task_and_for_a_job(self, app: Mainspring) -> None:
        says = r"retries=5: cannot be given with ack=\"early\", .*\n  Leave retries out, or write retries=0"
        with pytest.raises(InvalidOption, match=says):
            app.task(name="once", ack="early", retries=5)(lambda: None)
        once = app.task(name="once", ack="early")(lambda: None)
        with pytest.raises(InvalidOption, match=says):
            once.options(retries=5)
        with pytest.raises(InvalidOption, match=says):
            once.s().options(retries=5)
        assert once.options(retries=0).name == "once"
        assert app.task(name="never", ack="early", retries=0)(lambda: None).name == "never"

    @pytest.mark.stores("sqlite")
    def test_the_default_number_holds_for_retry_of_the_task_itself(self, app: Mainspring) -> None:
        runs: list[int] = []

        @app.task(name="again", ack="early", backoff="1ms")
        def again(ctx: Context) -> int:
            runs.append(ctx.attempt)
            if ctx.attempt < 3:
                raise Retry(after=0)
            return ctx.attempt

        with app.test() as t:
            job = again.enqueue()
            t.drain()
            assert (job.result(), runs) == (3, [1, 2, 3])


@pytest.mark.stores("sqlite")
class TestOptionsAmongTheArguments:
    def test_the_error_shows_where_options_go(self, app: Mainspring) -> None:
        @app.task(name="shop.add")
        def add(a: int, b: int) -> int:
            return a + b

        anything: Any = add
        with pytest.raises(
            UnknownArgument, match=r"no argument 'delay'\n  .*: add\.options\(delay=3\)\.enqueue\(\.\.\.\)"
        ):
            anything.enqueue(1, 2, delay=3)
        with pytest.raises(UnknownArgument, match=r"add\.options\(meta=\.\.\.\)\.enqueue"):
            anything.s(1, 2, meta={"a": 1})
        with pytest.raises(UnknownArgument, match=r"countdown=60 is delay=60 here"):
            anything.enqueue(1, 2, countdown=3)
        with pytest.raises(UnknownArgument, match=r"Arguments: a, b\.$"):
            anything.enqueue(1, 2, c=3)

    def test_a_parameter_with_the_name_of_an_option_is_an_argument(self, app: Mainspring) -> None:
        assert app.task(name="wait")(lambda delay: delay).s(delay=3).arguments == {"delay": 3}


@pytest.mark.stores("sqlite")
class TestLimits:
    @pytest.mark.parametrize(
        ("call", "error", "says"),
        [
            (lambda: rate(100), InvalidOption, r'Rate: per=\.\.\.: is missing\n  .*Rate\(100, per="1m"\)'),
            (lambda: rate("100/m"), InvalidOption, r'Rate: per=\.\.\.: is missing\n  .*Rate\(100, per="1m"\)'),
            (lambda: rate("100/m", per="1s"), InvalidOption, r'n=\'100/m\': must be .*\n  Write Rate\(100, per="1m"\)'),
            (lambda: rate(100, "1s", 5), InvalidOption, r"Rate=5: is one argument too many"),
            (lambda: rate(100, per="1s", brust=3), UnknownOption, r"'brust' does not exist; did you mean 'burst'"),
            (Rate, InvalidOption, r"n=\.\.\.: is missing"),
            (Concurrency, InvalidOption, r"Concurrency: n=\.\.\.: is missing\n  Example: Concurrency\(5\)"),
            (lambda: concurrency(5, per="1s"), UnknownOption, r"is a rate: Rate\(100"),
        ],
    )
    def test_a_wrong_call_says_what_is_expected(self, call: Any, error: type[Exception], says: str) -> None:
        with pytest.raises(error, match=says):
            call()


# ---- hooks -----------------------------------------------------------------------------------------


class TestHooks:
    @pytest.mark.stores("sqlite")
    def test_a_hook_must_take_the_event(self, app: Mainspring) -> None:
        def nothing() -> None: ...
        def two(event: Event, more: int) -> None: ...
        def optional(event: Event, more: int = 0) -> None: ...

        on: Any = app.on("failed")
        for wrong in (nothing, two):
            with pytest.raises(
                InvalidOption, match=r"must take one argument, the event\n  Write def \w+\(event: Event\)"
            ):
                on(wrong)
        rights: list[Any] = [optional, print, [].append, lambda *events: None]
        for right in rights:
            assert on(right) is right

    @pytest.mark.stores("sqlite")
    def test_a_wrong_keyword_and_a_task_are_explained(self, app: Mainspring) -> None:
        on: Any = app.on
        with pytest.raises(UnknownOption, match=r"app\.on: option 'queue' does not exist\n  .*Compare event\.queue"):
            on("dead", queue="email")
        task = app.task(name="shop.add")(lambda: None)
        with pytest.raises(InvalidOption, match=r"must be the name of a task or a pattern\n  Write task='shop\.add'\."):
            on("dead", task=task)

    @pytest.mark.parametrize(("task", "near"), [("add", "shop.add"), ("shop.ad", "shop.add"), ("mail.*", None)])
    def test_a_worker_warns_of_a_hook_whose_task_it_does_not_have(
        self, app: Mainspring, caplog: pytest.LogCaptureFixture, task: str, near: str | None
    ) -> None:
        job = app.task(name="shop.add")(lambda: None).enqueue()

        def added(event: Event) -> None: ...

        app.on("succeeded", "dead", task=task)(added)
        app.on("succeeded", task="shop.*")(added)
        app.on("dead")(added)
        with caplog.at_level(logging.WARNING, "mainspring.worker"), app.worker():
            job.result(timeout=LIMIT)
        guess = f"; did you mean {near!r}?" if near else ""
        said = f"app.on(..., task={task!r}): this app has no such task, added is not called{guess}"
        assert [text for text in caplog.messages if "app.on" in text] == [said]


# ---- follow-up jobs --------------------------------------------------------------------------------


@pytest.mark.stores("sqlite")
def test_a_follow_up_without_annotation_is_shown_the_signature(app: Mainspring) -> None:
    after = declared(app, "def f(job): return job", name="after")
    says = r"must take one argument, the UUID .*\n  Write def f\(job: UUID\), with from uuid .*on_success=f\.s"
    with pytest.raises(InvalidOption, match=says):
        app.task(name="one", on_success=after)(lambda: None).enqueue()
    with pytest.raises(InvalidOption, match=says):
        app.task(name="two", on_success="after")(lambda: None).enqueue()

    @app.task(name="right")
    def right(job: UUID) -> str:
        return str(job)

    with app.test() as t:
        job = app.task(name="three", on_success=right)(lambda: None).enqueue()
        t.drain()
        assert app.jobs.list(task="right")[0].args == {"job": str(job.id)}


# ---- arguments and results -------------------------------------------------------------------------


@pytest.mark.stores("sqlite")
class TestValues:
    @pytest.mark.parametrize(
        ("kind", "value", "error", "says"),
        [
            (
                Any,
                {(1, 2): 3},
                ArgumentNotSerializable,
                r"'x' is a dict with the key \(1, 2\); a tuple cannot be a key",
            ),
            (Any, {"a": [{(1, 2): 3}]}, ArgumentNotSerializable, r"\"x\['a'\]\[0\]\" is a dict with the key \(1, 2\)"),
            (
                dict[tuple[int, int], int],
                {(1, 2): 3},
                BadSignature,
                r"list\[tuple\[tuple\[int, int\], int\]\]",
            ),
            (dict[str, int], {1: 3}, WrongArgument, r"'x key 1' expected str, got int"),
            (dict[str, int], {"a": 1, "b": "c"}, WrongArgument, r"\"x\['b'\]\" expected int, got str"),
            (list[Base], [3], WrongArgument, r"'x\[0\]' expected Base, got int"),
            (
                list[Base],
                [Derived()],
                ArgumentNotSerializable,
                r"'x\[0\]' is a Derived .* as a Base.*\n.*x: list\[Derived\]",
            ),
            (int | None, (1,), WrongArgument, r"'x' expected int \| None, got tuple"),
            (list[str], None, WrongArgument, r"'x' expected list\[str\], got None"),
            (tuple[int, str], [1, 2], WrongArgument, r"'x\[1\]' expected str, got int"),
            (
                Any,
                math.nan,
                ArgumentNotSerializable,
                r"'x' is nan; .*\n  Pass None\.$",
            ),
        ],
    )
    def test_an_argument_is_described_in_python_terms(
        self, app: Mainspring, kind: Any, value: Any, error: type[Exception], says: str
    ) -> None:
        def work(x: Any) -> None: ...

        work.__annotations__["x"] = kind
        with pytest.raises(error, match=says):
            app.task(name="work")(work).s(value)

    @pytest.mark.parametrize(
        ("kind", "value", "says"),
        [
            (
                Any,
                [{(1, 2): 3}],
                r"result\[0\] is a dict with the key \(1, 2\); a tuple cannot be a key .*\n  Return pairs",
            ),
            (Any, {None: 1}, r"result is a dict with the key None; None cannot be a key"),
            (Any, {"a": [math.inf]}, r"result\['a'\]\[0\] is inf; JSON has no NaN and no infinity\n  Return None\."),
            (float, math.nan, r"result is nan; JSON has no NaN and no infinity\n  Return None, and allow it"),
            (Base, Derived(), r"as Base\(a=1\)\n  Declare Derived in the task's return type, or return a plain Base"),
            (list[Base], [3], r"the declared type: result\[0\] expected Base, got int\n  Return a value"),
        ],
    )
    def test_a_result_is_described_in_python_terms(self, app: Mainspring, kind: Any, value: Any, says: str) -> None:
        def work() -> Any:
            return value

        work.__annotations__["return"] = kind
        with app.test() as t:
            job = app.task(name="work")(work).enqueue()
            t.drain()
            with pytest.raises(JobDead, match=says):
                job.result()
            assert job.info().reason is Reason.NOT_RETRYABLE

    def test_a_datetime_keeps_its_moment_and_offset_but_not_its_zone(self, app: Mainspring) -> None:
        """As the guide of tasks says."""
        got: list[datetime] = []

        @app.task(name="at")
        def at(when: datetime) -> None:
            got.append(when)

        summer = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Kyiv"))
        with app.test() as t:
            at.enqueue(summer)
            t.drain()
        assert (got[0], got[0].utcoffset()) == (summer, timedelta(hours=3))
        assert not isinstance(got[0].tzinfo, ZoneInfo)


# ---- passwords in URLs -----------------------------------------------------------------------------


def test_passwords_in_url_arguments_are_shown_nowhere(app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
    url, web = "postgres://user:hunter2-canary@host/db", "https://host/in?token=hunter2-canary&day=1"
    events: list[Event] = []
    got: list[Any] = []

    @app.task(name="copy", retries=0, limit=Concurrency(1, by="source"))
    def copy(source: str, targets: dict[str, list[str]]) -> None:
        got.append((source, targets))
        raise ValueError(f"cannot use {source}, password {source[16:30]}")

    call = copy.s(url, {"to": [web]}).options(meta={"url": url})
    shown = {"source": "postgres://user:***@host/db", "targets": {"to": ["https://host/in?token=***&day=1"]}}
    app.on("failed")(events.append)
    job = call.enqueue()
    assert job.info().args == shown
    assert app.jobs.list(task="copy")[0].args == shown
    with app.worker():
        job.join(timeout=LIMIT)
        until(lambda: events, what="the event")
    info = job.info()
    assert (info.state, info.meta, events[0].args) == (State.DEAD, {"url": shown["source"]}, shown)
    texts = [repr(call), repr(info), repr(events), str(job.why()), repr(job.logs()), caplog.text]
    assert all("hunter2-canary" not in text for text in texts), texts
    assert got == [(url, {"to": [web]})]  # the task itself gets them


# ---- waiting at import -----------------------------------------------------------------------------


def test_a_wait_for_a_job_during_the_import_of_a_worker_is_refused(store_url: str, tmp_path: Path) -> None:
    code = """
        import os
        from mainspring import Mainspring
        app = Mainspring(os.environ["SHOP_STORE"])
        @app.task(name="shop.add")
        def add(a: int, b: int) -> int:
            return a + b
        print("sum:", add.enqueue(2, 3).result())
    """
    (tmp_path / "shop.py").write_text(textwrap.dedent(code))
    ran = subprocess.run(
        [sys.executable, "-m", "mainspring", "worker", "shop:app"], cwd=tmp_path, capture_output=True, text=True,
        timeout=LIMIT, check=False, env={**os.environ, "SHOP_STORE": store_url},
    )  # fmt: skip
    assert ran.returncode == 1
    assert ran.stderr.count("WouldDeadlock: the code waits for a job of task 'shop.add' while a worker imports it") == 1
    assert 'under if __name__ == "__main__":' in ran.stderr


@pytest.mark.stores("sqlite")
async def test_async_context_is_found_as_before(app: Mainspring) -> None:
    @app.task(name="attempt")
    async def attempt(ctx: AsyncContext) -> int:
        return ctx.attempt

    assert await attempt() == 1
