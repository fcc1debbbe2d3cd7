"""Mistakes of the first hour around tasks and their arguments: refused early, with advice that works."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import mainspring
from mainspring import Backoff, Key, Mainspring, errors
from mainspring.errors import ArgumentNotSerializable, InvalidOption, KeyConflict, UnknownImport

# ---- what can be a task ----------------------------------------------------------------------------


class Shop:
    def send(self, to: str) -> str:
        return to

    @staticmethod
    def static(to: str) -> str:
        return to


@pytest.mark.stores("sqlite")
class TestFunctions:
    def test_a_lambda_without_a_name_is_refused(self, app: Mainspring) -> None:
        with pytest.raises(InvalidOption, match=r"is a lambda, and all lambdas .*\n  Write a def"):
            app.task(lambda: None)
        assert app.task(name="noop")(lambda: None).name == "noop"

    @pytest.mark.parametrize("fn", [Shop().send, Shop.send], ids=["bound", "unbound"])
    def test_a_method_is_refused(self, app: Mainspring, fn: Any) -> None:
        with pytest.raises(InvalidOption, match=r"is a method, and a worker has no object to call it on\n  Write"):
            app.task(fn)
        with pytest.raises(InvalidOption, match="is a method"):
            app.task(name="shop.send")(fn)

    def test_a_method_is_refused_inside_its_class(self, app: Mainspring) -> None:
        with pytest.raises(InvalidOption, match=r"task 'TestFunctions.*Bakery.bake': .*is a method"):

            class Bakery:
                @app.task
                def bake(self, n: int) -> int:
                    return n

    def test_a_static_method_and_a_local_function_are_tasks(self, app: Mainspring) -> None:
        def local(n: int) -> int:
            return n

        assert app.task(Shop.static)("a") == "a"
        assert app.task(local)(3) == 3


# ---- arguments -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        {1: 2},
        {1: "a", 2: "b"},
        {"a": (1, 2)},
        {"a": {1: 2}},
        (1, "a"),
        [(1, 2), (3, 4)],
        {"a": (1, 2), "b": (3, 4)},
        {(1, 2): 3},
        {"a": {1, 2}},
        {"a": (1, 2), "b": [3]},
        {1: 2, "a": 3},
    ],
    ids=repr,
)
@pytest.mark.stores("sqlite")
def test_the_advice_for_a_value_that_would_change_works(app: Mainspring, value: Any) -> None:
    """Either the named annotation stores the value as it is, or the advice says what to pass instead."""

    @app.task(name="first")
    def first(x: Any) -> None: ...

    with pytest.raises(ArgumentNotSerializable) as caught:
        first.s(value)
    declared = re.fullmatch(r"Declare its type in the task's signature: x: (.*)", caught.value.hint)
    if pairs := re.fullmatch(r"Pass pairs, list\(x.items\(\)\), declared as (.*), or a dict .*", caught.value.hint):
        declared, value = pairs, list(value.items())
    if declared is None:
        assert re.match("Pass lists instead of tuples and sets|Pass plain values", caught.value.hint)
        return
    got: list[Any] = []
    names: dict[str, Any] = {"got": got, "__name__": __name__}
    exec(f"def second(x: {declared[1]}) -> None: got.append(x)", names)  # the advice is text
    second = app.task(name="second")(names["second"])
    with app.test() as t:
        second.enqueue(value)
        t.drain()
    assert got == [value]


@pytest.mark.stores("sqlite")
def test_the_usual_cases_get_an_annotation(app: Mainspring) -> None:
    @app.task(name="first")
    def first(x: Any) -> None: ...

    for value, says in (({1: 2}, "dict[int, int]"), ({"a": (1, 2)}, "dict[str, tuple[int, int]]")):
        with pytest.raises(ArgumentNotSerializable, match=re.escape(f"x: {says}")):
            first.s(value)


# ---- calls and imports -----------------------------------------------------------------------------


@pytest.mark.stores("sqlite")
def test_a_worker_reports_annotations_that_cannot_be_resolved_when_it_starts(
    app: Mainspring, caplog: pytest.LogCaptureFixture
) -> None:
    """One sentence with the task, the parameter and the name, then the fix. Other tasks run."""

    @app.task(name="pay")
    def pay(amount: int, to: "list[Account]") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037

    @app.task(name="ask")
    def ask() -> "Account":  # type: ignore[name-defined]  # noqa: F821, UP037
        return 1

    @app.task(name="forget", result="ignore")
    def forget() -> "Account":  # type: ignore[name-defined]  # noqa: F821, UP037
        return 1

    @app.task(name="fine")
    def fine(n: int) -> int:
        return n

    with app.worker():
        assert fine.enqueue(3).result(timeout=60) == 3
    said = [each.getMessage() for each in caplog.records if "annotation" in each.getMessage()]
    assert [each.splitlines()[0] for each in said] == [
        "task 'pay': argument 'to' has an annotation that cannot be resolved: name 'Account' is not defined",
        "task 'ask': its return type has an annotation that cannot be resolved: name 'Account' is not defined",
    ]
    assert "Define or import the name at the top level of the task's module" in said[0]


def test_a_wrong_call_of_a_method_names_the_public_method(app: Mainspring) -> None:
    anything: Any = app
    with pytest.raises(TypeError, match=r"^Jobs\.list\(\) takes"):
        anything.jobs.list(1, 2, 3)
    job: Any = app.call("x").enqueue()
    with pytest.raises(TypeError, match=r"^Job\.result\(\) takes"):
        job.result(10, 20)
    with pytest.raises(TypeError, match=r"^Job\.cancel\(\) got an unexpected keyword argument 'terminate'"):
        job.cancel(terminate=True)


def test_errors_that_users_catch_are_exported() -> None:
    for name in ("SoftTimeout", "HardTimeout", "JobDead", "JobCancelled", "ResultTimeout", "KeyTaken", "QueueFull"):
        assert getattr(mainspring, name) is getattr(errors, name)
    exported = {name for name in mainspring.__all__ if isinstance(getattr(errors, name, None), type)}
    for name, kind in vars(errors).items():
        if inspect.isclass(kind) and issubclass(kind, errors.MainspringError) and name not in exported:
            with pytest.raises(UnknownImport, match=f"from mainspring.errors import {name}"):
                exec(f"from mainspring import {name}")  # the statement is the test


def test_an_included_module_that_does_not_exist_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import a_module_that_is_not_there")
    code = """
from mainspring import Mainspring
for name in ("nosuch.mod", "broken"):
    app = Mainspring("sqlite://", include=[name])
    try:
        app.call("x")
    except Exception as error:
        print(type(error).__name__, error, *getattr(error, "__notes__", ()), sep="|")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    first, hint, second = done.stdout.splitlines()
    assert first == "InvalidOption|app: include='nosuch.mod': cannot be imported: No module named 'nosuch'"
    assert "Mainspring(include=[...])" in hint
    assert second == (
        "ModuleNotFoundError|No module named 'a_module_that_is_not_there'"
        "|Mainspring imports 'broken', because the app includes it."
    )


# ---- keys and backoff ------------------------------------------------------------------------------


def test_a_job_by_name_accepts_a_key_that_is_kept(app: Mainspring) -> None:
    key = Key("request-7", keep="1d")
    first = app.call("shop.pay", amount=5).options(key=key).enqueue()
    again = app.call("shop.pay", amount=5).options(key=key).enqueue()
    assert (again.id, again.created) == (first.id, False)
    with pytest.raises(KeyConflict):
        app.call("shop.pay", amount=6).options(key=key).enqueue()
    with pytest.raises(KeyConflict):
        app.call("shop.pay", 5).options(key=key).enqueue()
    by_argument = Key.arguments("order", keep="1d")
    one = app.call("shop.ship", order=1, to="a").options(key=by_argument).enqueue()
    assert app.call("shop.ship", order=1, to="a").options(key=by_argument).enqueue().id == one.id
    assert app.call("shop.ship", order=2, to="a").options(key=by_argument).enqueue().id != one.id


def test_a_backoff_function_is_used_as_it_returns(app: Mainspring) -> None:
    @app.task(name="fail", retries=5, backoff=lambda attempt, error: attempt * 100)
    def fail() -> None:
        raise ValueError

    @app.task(name="spread", retries=5, backoff=Backoff.of(lambda attempt, error: 1000, jitter="full"))
    def spread() -> None:
        raise ValueError

    with app.test() as t:
        jobs = [fail.enqueue() for _ in range(5)]
        spreads = [spread.enqueue() for _ in range(5)]
        t.drain()
        for info in [job.info() for job in jobs]:
            assert info.due is not None
            assert info.due - info.attempts[-1].ended == timedelta(seconds=100)
        waits = {info.due - info.attempts[-1].ended for info in (job.info() for job in spreads) if info.due}
        assert len(waits) > 1
