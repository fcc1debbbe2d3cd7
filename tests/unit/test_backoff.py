"""Delays between attempts: a table of the rules, the cap after jitter, and no job lost to a bad function."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.common.backoff import DEFAULT, Backoff, coerce
from mainspring.errors import InvalidOption


class Always:
    """A random source that draws one number."""

    def __init__(self, number: float) -> None:
        self.number = number

    def random(self) -> float:
        return self.number


@pytest.mark.row("R2")
@pytest.mark.parametrize(
    ("rule", "seconds"),
    [
        (Backoff.fixed("5s"), [5, 5, 5, 5]),
        (Backoff.fixed("2h"), [7200, 7200]),
        (Backoff.linear("5s", step="10s", jitter="none"), [5, 15, 25, 35]),
        (Backoff.linear("5s", jitter="none"), [5, 10, 15, 20]),
        (Backoff.linear("5s", step="10s", cap="20s", jitter="none"), [5, 15, 20, 20]),
        (Backoff.exponential("5s", factor=4, jitter="none"), [5, 20, 80, 320, 600, 600]),
        (Backoff.exponential("1s", factor=2, cap="5s", jitter="none"), [1, 2, 4, 5, 5]),
        (Backoff.exponential("20m", jitter="none"), [1200, 1200]),
        (Backoff.exponential(0, jitter="none"), [0, 0, 0]),
        (Backoff.of(lambda attempt, error: attempt * 7), [7, 14, 21]),
        (Backoff.of(lambda attempt, error: "1h", cap="1m"), [60, 60]),
        (Backoff.of(lambda attempt, error: timedelta(minutes=1)), [60, 60]),
    ],
)
def test_delays_by_attempt(rule: Backoff, seconds: list[float]) -> None:
    assert [rule.delay(n).total_seconds() for n in range(1, len(seconds) + 1)] == seconds


def test_the_default_is_5_s_times_4_up_to_10_min_with_full_jitter() -> None:
    longest = [DEFAULT.delay(n, rng=Always(0.0)).total_seconds() for n in range(1, 7)]
    assert longest == [5, 20, 80, 320, 600, 600]
    assert DEFAULT.jitter == 1.0
    assert str(DEFAULT) == "5s x 4, cap 10m, full jitter"


@pytest.mark.row("R2")
def test_full_jitter_is_spread_evenly_from_zero_to_the_delay() -> None:
    rng = random.Random(1)
    drawn = [Backoff.exponential("8s").delay(1, rng=rng).total_seconds() for _ in range(4000)]
    assert 0 <= min(drawn) < 0.1
    assert 7.9 < max(drawn) <= 8
    assert 3.8 < sum(drawn) / len(drawn) < 4.2


def test_a_fraction_of_jitter_subtracts_at_most_that_fraction() -> None:
    rule = Backoff.fixed("10s", jitter=0.2)
    assert rule.delay(1, rng=Always(0.0)) == timedelta(seconds=10)
    assert rule.delay(1, rng=Always(0.999999)) >= timedelta(seconds=8)


@pytest.mark.row("R2")
@given(
    attempt=st.integers(-5, 20_000),
    factor=st.floats(1, 1e6),
    base=st.floats(0, 600),
    jitter=st.floats(0, 1),
    drawn=st.floats(0, 1, exclude_max=True),
)
def test_the_cap_holds_after_jitter_at_every_attempt(
    attempt: int, factor: float, base: float, jitter: float, drawn: float
) -> None:
    for rule in (
        Backoff.exponential(base, factor=factor, cap="10m", jitter=jitter),
        Backoff.linear(base, step="1h", cap="10m", jitter=jitter),
        Backoff.of(lambda n, error: 1e6, cap="10m", jitter=jitter),
    ):
        assert timedelta(0) <= rule.delay(attempt, rng=Always(drawn)) <= timedelta(minutes=10)


def test_an_uncapped_rule_does_not_overflow_at_attempt_10_000() -> None:
    assert Backoff.exponential("1s", factor=10, jitter="none").delay(10_000) == timedelta(minutes=10)
    assert Backoff("exponential", base_us=1, factor=10.0).delay(10_000) < timedelta(days=40_000)
    assert Backoff("linear", base_us=10**15, step_us=10**15).delay(10_000) < timedelta(days=40_000)


def test_a_function_gets_the_attempt_and_the_error() -> None:
    seen: list[Any] = []

    def rule(attempt: int, error: BaseException | None) -> float:
        seen.append((attempt, error))
        return 1

    boom = ValueError("boom")
    Backoff.of(rule).delay(3, boom)
    assert seen == [(3, boom)]


def constant(value: Any) -> Any:
    return lambda attempt, error: value


def raising(attempt: int, error: BaseException | None) -> float:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    "function", [raising, *map(constant, (None, -1, float("nan"), "soon", [], True, 1e300, 10**40))]
)
def test_a_function_that_fails_falls_back_to_the_default_and_reports_the_problem(function: Any) -> None:
    """The job waits as by default, and the caller gets the problem."""
    delay, problem = Backoff.of(function, cap="1s").plan(2, rng=Always(0.0))
    assert delay == timedelta(seconds=20)
    assert isinstance(problem, (ZeroDivisionError, InvalidOption))


def test_a_good_plan_has_no_problem() -> None:
    assert Backoff.fixed("1s").plan(1) == (timedelta(seconds=1), None)


def test_valid_values_of_the_option() -> None:
    rule = Backoff.linear("1s")
    assert coerce(rule) is rule
    assert coerce("30s") == coerce(30) == coerce(30.0) == coerce(timedelta(seconds=30)) == Backoff.fixed("30s")
    assert coerce("exponential") == DEFAULT
    assert coerce("linear").kind == "linear"
    assert coerce("fixed").kind == "fixed"
    assert coerce(raising).fn is raising


async def waits(attempt: int, error: BaseException | None) -> float:
    return 1


@pytest.mark.parametrize("value", [None, True, [], "sometimes", -5, float("nan"), int, waits])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(InvalidOption, match="backoff"):
        coerce(value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Backoff.exponential("5s", factor=0.5),
        lambda: Backoff.exponential("5s", factor=float("nan")),
        lambda: Backoff.exponential("5s", factor=float("inf")),
        lambda: Backoff.fixed("5s", jitter=1.5),
        lambda: Backoff.fixed("5s", jitter="some"),  # type: ignore[arg-type]  # the mistake under test
        lambda: Backoff.fixed("5s", cap="1s"),
        lambda: Backoff.linear("5s", step=-1),
    ],
)
def test_bad_parameters_are_refused(make: Any) -> None:
    with pytest.raises(InvalidOption, match="backoff"):
        make()


def test_a_backoff_is_frozen() -> None:
    with pytest.raises(AttributeError):
        DEFAULT.base_us = 1  # type: ignore[misc]  # the mistake under test
