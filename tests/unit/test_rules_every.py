"""Intervals and moments: exact, without drift, and stored once."""

from __future__ import annotations

import random
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.common.clock import from_datetime
from mainspring.errors import InvalidOption
from mainspring.schedules.rules import Cron, Every, Once, Rule, RuleWindow, decode, encode, make_rule, next_occurrences

NOW = from_datetime(datetime(2026, 6, 10, 12, tzinfo=UTC))
SECOND, HOUR, DAY = 1_000_000, 3_600_000_000, 86_400_000_000
moments = st.integers(0, 2**52)
periods = st.integers(1_000, 400 * DAY)


@pytest.mark.row("S2")
def test_an_interval_does_not_drift() -> None:
    """1,000 ticks that are each seen to too late lie at their exact places."""
    every = Every.of("90s").anchored(NOW, immediate=True)
    late, at = random.Random(7), NOW - 1
    for tick in range(1_000):
        due = every.next(at)
        assert due == NOW + tick * 90 * SECOND
        at = due + late.randrange(89 * SECOND)  # whoever asks next does so from the moment at which it ran


@pytest.mark.row("S2")
def test_immediate_is_now_else_after_one_period() -> None:
    assert Every.of("90s").anchored(NOW, immediate=True).next(NOW - 1) == NOW
    assert Every.of("90s").anchored(NOW).next(NOW - 1) == NOW + 90 * SECOND


@pytest.mark.row("S2")
@given(periods, moments, moments)
def test_the_anchor_is_given_once(period: int, now: int, later: int) -> None:
    """What is stored keeps its phase when it is declared again, and is known as the same."""
    declared = Every(period)
    stored = decode(encode(declared.anchored(now)))
    assert stored.anchored(later) == stored
    assert stored.declared == declared


@given(periods, moments, moments)
def test_an_interval_is_arithmetic(period: int, anchor: int, after: int) -> None:
    found = Every(period, anchor).next(after)
    assert found > after
    assert found >= anchor
    assert (found - anchor) % period == 0
    assert found == anchor or found - period <= after


@pytest.mark.parametrize("value", [0, "0s", -5, "-1s", "500us", "often", True, None, "", float("nan"), "200000w"])
def test_a_wrong_interval_is_refused(value: Any) -> None:
    with pytest.raises(InvalidOption):
        make_rule(every=value)


def test_a_moment_needs_a_zone() -> None:
    with pytest.raises(InvalidOption, match=r"(?s)^at=.*no time zone.*ZoneInfo"):
        make_rule(at=datetime(2030, 1, 1))  # noqa: DTZ001 - that is what is refused
    with pytest.raises(InvalidOption, match="before 1970"):
        make_rule(at=datetime(1969, 1, 1, tzinfo=UTC))
    with pytest.raises(InvalidOption, match="must be a datetime"):
        make_rule(at="2030-01-01")  # type: ignore[arg-type]


def test_once_is_once() -> None:
    once = make_rule(at=datetime(2026, 6, 10, 12, tzinfo=UTC))
    assert (once.next(NOW - 1), once.next(NOW), next_occurrences(once, 0, 5)) == (NOW, None, [NOW])


def test_a_delay_becomes_a_moment_when_it_is_first_stored() -> None:
    """And stays it: whoever declares it again finds what is stored."""
    declared = make_rule(after="10m")
    stored = decode(encode(declared.anchored(NOW)))
    assert stored.anchored(NOW + DAY) == stored
    assert next_occurrences(stored, 0, 5) == [NOW + 600 * SECOND]
    assert stored.declared == declared
    assert make_rule(after=0).anchored(NOW).next(NOW - 1) == NOW


def test_what_is_not_anchored_says_so() -> None:
    for unstored in (make_rule(every="1h"), make_rule(after="1h")):
        with pytest.raises(ValueError, match="anchored"):
            unstored.next(NOW)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "has no rule that says when it runs"),
        ({"cron": "@daily", "every": "1h"}, "cannot be combined with cron="),
        ({"at": datetime(2030, 1, 1, tzinfo=UTC), "after": "1h"}, "cannot be combined with at="),
        ({"every": "1h", "tz": "Europe/Kyiv"}, "works with cron= only"),
        ({"cron": "@daily", "immediate": True}, "works with every= only"),
        ({"after": "-1s"}, "cannot be negative"),
    ],
)
def test_one_rule_and_nothing_that_would_be_ignored(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        make_rule(**options)


# ---- stored ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        (Cron("0 3 * * *", "Europe/Kyiv"), '{"kind":"cron","expression":"0 3 * * *","tz":"Europe/Kyiv"}'),
        (Cron("0 3 * * *"), '{"kind":"cron","expression":"0 3 * * *","tz":"UTC"}'),
        (Every(90 * SECOND), '{"kind":"every","period":90000000}'),
        (Every(90 * SECOND, 7), '{"kind":"every","period":90000000,"anchor":7}'),
        (Once(7), '{"kind":"once","moment":7}'),
        (Once(7, 5), '{"kind":"once","moment":7,"delay":5}'),
    ],
)
def test_the_stored_form_stays(stored: Rule, text: str) -> None:
    """Databases hold it: a change needs a reader of this one."""
    assert encode(stored).decode() == text
    assert decode(text) == stored


def test_what_newer_versions_add_is_read() -> None:
    """More fields are left out; a kind that is not known is refused, with the fix."""
    assert decode('{"kind":"every","period":5000,"colour":"red"}') == Every(5_000)
    for text in ('{"kind":"lunar"}', "{}", "nonsense", '{"kind":"every"}'):
        with pytest.raises(InvalidOption, match="newer version"):
            decode(text)


def test_a_window_can_be_stored() -> None:
    stored = RuleWindow(Cron("0 3 * * *"), 5, 7)
    assert msgspec.json.decode(encode(stored), type=RuleWindow) == stored


# ---- time that goes back ---------------------------------------------------------------------------


@pytest.mark.row("S2")
@pytest.mark.parametrize(
    "made",
    [
        Every(7 * 60 * SECOND, NOW - 3),
        Cron("10 */3 * * *", "America/New_York"),
        Cron("30 1,2 * * *", "America/New_York"),
        Cron("*/15 1-3 * * *", "Australia/Lord_Howe"),
    ],
    ids=str,
)
def test_a_clock_that_goes_back_repeats_nothing(made: Every | Cron) -> None:
    """10,000 hours by a clock that is set back now and then: what is later than the watermark is never before it,
    and everything comes exactly once."""
    clock, watermark, end = NOW, NOW, NOW + 10_000 * HOUR
    steps, done = random.Random(11), []
    due = made.next(watermark)
    while clock < end:
        clock += steps.choice([HOUR, 10 * HOUR, -3 * HOUR, 60 * SECOND, -30 * 60 * SECOND])
        while due is not None and due <= clock:
            assert due > watermark
            done.append(due)
            watermark, due = due, made.next(due)
    assert done == [moment for moment in islice(made.walk(NOW), len(done) + 1) if moment <= watermark]
    assert len(done) > 800


# ---- what it costs ---------------------------------------------------------------------------------


def test_neither_cronsim_nor_zones_are_loaded_by_import() -> None:
    """Not by ``import mainspring``, and not by declaring in UTC what needs no calendar."""
    code = """
import sys, mainspring
assert not {"mainspring.schedules.rules", "cronsim", "zoneinfo"} & set(sys.modules)
from mainspring.schedules import rules
rules.make_rule(every="90s")
assert not {"cronsim", "zoneinfo"} & set(sys.modules)
rules.make_rule(cron="0 3 * * *")
assert "zoneinfo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_leap_day_far_ahead_costs_little() -> None:
    """29 February on a Monday: 28 years on, found by months and days, not by minutes."""
    made = make_rule(cron="0 0 */28 2 MON#5")
    assert next_occurrences(made, NOW, 2) == [from_datetime(datetime(year, 2, 29, tzinfo=UTC)) for year in (2044, 2072)]
    assert timedelta(microseconds=made.next(NOW) or 0).days > 18 * 365
