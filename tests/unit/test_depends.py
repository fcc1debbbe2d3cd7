"""Depends: what a plan supplies, in which order it is ended, and what is refused at declaration."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from mainspring.errors import BadSignature, InvalidOption
from mainspring.tasks.dependencies import DependencyPlan, Depends, plan_of
from mainspring.worker.run.context import AsyncContext, Context


def plan(fn: Callable[..., Any]) -> DependencyPlan:
    made = plan_of(fn, task="t")
    assert made is not None
    return made


def one() -> int:
    return 1


class TestSupplied:
    def test_a_function_without_dependencies_has_no_plan(self) -> None:
        def plain(a: int, b: int = 2) -> None: ...

        assert plan_of(plain, task="t") is None

    def test_values_are_passed_by_name(self) -> None:
        def task(a: int, b: int = Depends(one)) -> tuple[int, int]:
            return a, b

        assert plan(task).names == ("b",)
        assert plan(task).call(task, None, (5,), {}) == (5, 1)

    @pytest.mark.parametrize("call", [((5, 7), {}), ((5,), {"b": 7})], ids=["by place", "by name"])
    def test_a_given_value_is_not_made(self, call: Any) -> None:
        def never() -> int:
            raise AssertionError

        def task(a: int, b: int = Depends(never)) -> int:
            return a + b

        args, kwargs = call
        assert plan(task).call(task, None, args, kwargs) == 12

    def test_a_nested_dependency_is_made_once_for_all_dependents(self) -> None:
        made: list[str] = []

        def base() -> str:
            made.append("base")
            return "base"

        def left(base: str = Depends(base)) -> str:
            return f"left of {base}"

        def right(base: str = Depends(base)) -> str:
            return f"right of {base}"

        def task(a: str = Depends(left), b: str = Depends(right), c: str = Depends(base)) -> tuple[str, str, str]:
            return a, b, c

        assert plan(task).call(task, None, (), {}) == ("left of base", "right of base", "base")
        assert made == ["base"]
        plan(task).call(task, None, (), {})
        assert made == ["base", "base"], "the next attempt has its own"

    def test_without_the_cache_each_dependent_has_its_own(self) -> None:
        made: list[int] = []

        def number() -> int:
            made.append(len(made))
            return made[-1]

        def task(a: int = Depends(number, cache=False), b: int = Depends(number, cache=False)) -> tuple[int, int]:
            return a, b

        assert plan(task).call(task, None, (), {}) == (0, 1)

    def test_the_context_is_the_first_parameter(self) -> None:
        def who(ctx: Context, suffix: str = "!") -> str:
            return ctx.task + suffix

        def task(a: str = Depends(who)) -> str:
            return a

        assert plan(task).call(task, Context.local("shop.task"), (), {}) == "shop.task!"

    def test_classes_and_methods_are_dependencies_too(self) -> None:
        class Clock:
            def __init__(self, start: int = Depends(one)) -> None:
                self.start = start

            def twice(self) -> int:
                return 2 * self.start

        clock = Clock(21)

        def task(
            a: Clock = Depends(Clock), b: int = Depends(clock.twice), c: int = Depends(clock.twice)
        ) -> tuple[int, int, int]:
            return a.start, b, c

        assert plan(task).call(task, None, (), {}) == (1, 42, 42)

    async def test_an_async_task_accepts_every_kind_of_dependency(self) -> None:
        async def returned() -> str:
            return "returned"

        async def yielded(before: str = Depends(returned)) -> AsyncIterator[str]:
            yield f"yielded after {before}"

        def spanned() -> Iterator[str]:
            yield "spanned"

        async def task(
            a: str = Depends(returned), b: str = Depends(yielded), c: str = Depends(spanned), d: int = Depends(one)
        ) -> tuple[str, str, str, int]:
            return a, b, c, d

        assert await plan(task).acall(task, None, (), {}) == ("returned", "yielded after returned", "spanned", 1)


class TestEnded:
    def test_the_last_dependency_is_closed_first(self) -> None:
        happened: list[str] = []

        def first() -> Iterator[str]:
            happened.append("first opened")
            yield "first"
            happened.append("first closed")

        def second(first: str = Depends(first)) -> Iterator[str]:
            happened.append("second opened")
            yield "second"
            happened.append("second closed")

        def task(a: str = Depends(second), b: str = Depends(first)) -> None:
            happened.append("body")

        plan(task).call(task, None, (), {})
        assert happened == ["first opened", "second opened", "body", "second closed", "first closed"]

    def test_the_error_of_the_body_is_raised_at_the_yield_and_cannot_be_swallowed(self) -> None:
        seen: list[BaseException] = []

        def swallows() -> Iterator[int]:
            try:
                yield 1
            except ValueError as error:
                seen.append(error)

        def task(a: int = Depends(swallows)) -> None:
            raise ValueError("of the body")

        with pytest.raises(ValueError, match="of the body"):
            plan(task).call(task, None, (), {})
        assert [str(error) for error in seen] == ["of the body"]

    async def test_the_error_of_the_body_is_raised_in_an_async_dependency_too(self) -> None:
        seen: list[BaseException] = []

        async def swallows() -> AsyncIterator[int]:
            try:
                yield 1
            except ValueError as error:
                seen.append(error)

        async def task(a: int = Depends(swallows)) -> None:
            raise ValueError("of the body")

        with pytest.raises(ValueError, match="of the body"):
            await plan(task).acall(task, None, (), {})
        assert len(seen) == 1

    def test_an_error_while_closing_is_an_error_of_the_call_and_the_others_are_closed(self) -> None:
        closed: list[str] = []

        def outer() -> Iterator[int]:
            yield 1
            closed.append("outer")

        def commits(outer: int = Depends(outer)) -> Iterator[int]:
            yield 1
            raise OSError("the commit failed")

        def task(a: int = Depends(commits)) -> str:
            return "done"

        with pytest.raises(OSError, match="the commit failed"):
            plan(task).call(task, None, (), {})
        assert closed == [], "an error was raised at its yield, which it did not catch"

        def tidy() -> Iterator[int]:
            try:
                yield 1
            finally:
                closed.append("tidy")

        def other(a: int = Depends(tidy), b: int = Depends(commits)) -> None: ...

        with pytest.raises(OSError, match="the commit failed"):
            plan(other).call(other, None, (), {})
        assert closed == ["tidy"]

    def test_a_dependency_that_fails_closes_the_earlier_ones_and_the_body_never_runs(self) -> None:
        closed: list[str] = []

        def opened() -> Iterator[int]:
            try:
                yield 1
            finally:
                closed.append("opened")

        def fails(opened: int = Depends(opened)) -> int:
            raise ConnectionError("no database")

        def task(a: int = Depends(fails)) -> None:
            raise AssertionError

        with pytest.raises(ConnectionError):
            plan(task).call(task, None, (), {})
        assert closed == ["opened"]

    def test_a_generator_that_yields_nothing_or_twice_is_an_error(self) -> None:
        def nothing() -> Iterator[int]:
            yield from ()

        def twice() -> Iterator[int]:
            yield 1
            yield 2

        for wrong in (nothing, twice):

            def task(a: int = Depends(wrong)) -> None: ...

            with pytest.raises(RuntimeError):
                plan(task).call(task, None, (), {})

    def test_entered_dependencies_are_closed_by_the_stack(self) -> None:
        closed: list[str] = []

        def opened() -> Iterator[int]:
            yield 1
            closed.append("closed")

        def task(a: int = Depends(opened)) -> None: ...

        with ExitStack() as stack:
            assert plan(task).enter(stack, None) == {"a": 1}
            assert closed == []
        assert closed == ["closed"]


class TestRefused:
    def test_an_object_that_cannot_be_called_is_refused(self) -> None:
        with pytest.raises(InvalidOption, match="not Depends"):
            Depends(one())  # type: ignore[call-overload]  # that is the mistake

    def test_an_async_dependency_of_a_sync_task_is_refused(self) -> None:
        async def later() -> int:
            return 1

        async def spans() -> AsyncIterator[int]:
            yield 1

        def between(a: int = Depends(later)) -> int:
            return a

        wrongs: list[Callable[..., Any]] = [later, spans, between]
        for wrong in wrongs:

            def task(a: int = Depends(wrong)) -> None: ...

            with pytest.raises(BadSignature, match=r"argument 'a' depends on \w+, which is async"):
                plan_of(task, task="t")

    def test_a_parameter_without_default_of_a_dependency_is_refused(self) -> None:
        def needs(url: str) -> str:
            return url

        def task(db: str = Depends(needs)) -> None: ...

        with pytest.raises(BadSignature, match="depends on needs, whose parameter 'url' has no default"):
            plan_of(task, task="t")

    def test_an_async_context_in_a_dependency_of_a_sync_task_is_refused(self) -> None:
        def needs(ctx: AsyncContext) -> str:
            return ctx.task

        def task(db: str = Depends(needs)) -> None: ...

        with pytest.raises(BadSignature, match="AsyncContext"):
            plan_of(task, task="t")

    def test_a_dependency_before_an_argument_is_refused(self) -> None:
        def task(db: int = Depends(one), a: int = 2) -> None: ...

        def rest(db: int = Depends(one), *numbers: int) -> None: ...

        def behind(db: int = Depends(one), *, a: int = 2) -> int:
            return db + a

        for wrong in (task, rest):
            with pytest.raises(BadSignature, match="must come after"):
                plan_of(wrong, task="t")
        assert plan(behind).call(behind, None, (), {}) == 3

    def test_a_positional_only_dependency_is_refused(self) -> None:
        def task(db: int = Depends(one), /) -> None: ...

        with pytest.raises(BadSignature, match="positional-only"):
            plan_of(task, task="t")
