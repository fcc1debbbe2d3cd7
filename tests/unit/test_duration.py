"""Durations are read as people write them, exactly, or refused with the name of the option."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.common.duration import LONGEST_US, format_duration, to_seconds, to_timedelta, to_us
from mainspring.errors import InvalidOption


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("90s", 90_000_000),
        ("1h30m", 5_400_000_000),
        ("1h 30m", 5_400_000_000),
        ("500ms", 500_000),
        ("2d", 172_800_000_000),
        ("1.5h", 5_400_000_000),
        ("1w", 604_800_000_000),
        ("250us", 250),
        ("0.1s", 100_000),
        ("5 min", 300_000_000),
        ("2 hours", 7_200_000_000),
        ("30", 30_000_000),
        ("0s", 0),
        (1.5, 1_500_000),
        (90, 90_000_000),
        (0.1, 100_000),
        (timedelta(days=1, microseconds=1), 86_400_000_001),
    ],
)
def test_a_duration_is_text_seconds_or_a_timedelta(text: Any, us: int) -> None:
    assert to_us(text) == us


@pytest.mark.parametrize(
    "value",
    [
        "", " ", "s", "5 parsecs", "5M", "1h1h", "h5", "-5s", "--5s", "1e3s", "five", "5s,", "5..5s", "٥s",
        "9" * 40 + "s",
        -1, -0.5, timedelta(seconds=-1), float("nan"), float("inf"), -float("inf"), 1e300, 10**30,
        True, False, None, [], object(), b"5s", "101y", "40000d", "\x005s",
    ],
)  # fmt: skip
def test_a_value_that_is_not_a_duration_is_refused_with_the_option(value: Any) -> None:
    with pytest.raises(InvalidOption) as caught:
        to_us(value, what="timeout")
    assert caught.value.name == "timeout"
    assert "timeout=" in str(caught.value)


def test_a_negative_duration_passes_where_it_is_allowed() -> None:
    assert to_us("-5s", allow_negative=True) == -5_000_000
    assert to_us(-5, allow_negative=True) == -5_000_000


def test_an_unknown_unit_is_named() -> None:
    with pytest.raises(InvalidOption, match="unknown unit 'parsecs'"):
        to_us("5 parsecs")


def test_seconds_and_timedelta() -> None:
    assert to_seconds("1500ms") == 1.5
    assert to_timedelta("1h") == timedelta(hours=1)


@given(st.integers(0, LONGEST_US))
def test_formatted_durations_read_back_exactly(us: int) -> None:
    assert to_us(format_duration(timedelta(microseconds=us))) == us


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused_never_something_else(text: str) -> None:
    with contextlib.suppress(InvalidOption):
        assert 0 <= to_us(text) <= LONGEST_US


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (90, "1m30s"), (5400, "1h30m"), (0.5, "500ms"), (0.0015, "1.5ms"), (61.25, "1m1.25s"), (172800, "2d")],
)
def test_durations_are_shown_short(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
