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
    """The scheduler is late at each of 1,000 occurrences, and each occurrence has its exact time."""
    every = Every.of("90s").anchored(NOW, immediate=True)
    late, at = random.Random(7), NOW - 1
    for tick in range(1_000):
        due = every.next(at)
        assert due == NOW + tick * 90 * SECOND
        at = due + late.randrange(89 * SECOND)  # whoever asks next does so from the moment at which it ran


@pytest.mark.row("S2")
def test_immediate_occurs_now_and_otherwise_after_one_interval() -> None:
    assert Every.of("90s").anchored(NOW, immediate=True).next(NOW - 1) == NOW
    assert Every.of("90s").anchored(NOW).next(NOW - 1) == NOW + 90 * SECOND


@pytest.mark.row("S2")
@given(periods, moments, moments)
def test_the_anchor_is_stored_once(period: int, now: int, later: int) -> None:
    """A stored rule keeps its phase when it is declared again, and compares equal."""
    declared = Every(period)
    stored = decode(encode(declared.anchored(now)))
    assert stored.anchored(later) == stored
    assert stored.declared == declared


@given(periods, moments, moments)
def test_occurrences_of_an_interval_are_computed_without_a_loop(period: int, anchor: int, after: int) -> None:
    found = Every(period, anchor).next(after)
    assert found > after
    assert found >= anchor
    assert (found - anchor) % period == 0
    assert found == anchor or found - period <= after


@pytest.mark.parametrize("value", [0, "0s", -5, "-1s", "500us", "often", True, None, "", float("nan"), "200000w"])
def test_a_wrong_interval_is_refused(value: Any) -> None:
    with pytest.raises(InvalidOption):
        make_rule(every=value)


def test_a_moment_needs_a_time_zone() -> None:
    with pytest.raises(InvalidOption, match=r"(?s)^at=.*no time zone.*ZoneInfo"):
        make_rule(at=datetime(2030, 1, 1))  # noqa: DTZ001 - that is what is refused
    with pytest.raises(InvalidOption, match="before 1970"):
        make_rule(at=datetime(1969, 1, 1, tzinfo=UTC))
    with pytest.raises(InvalidOption, match="must be a datetime"):
        make_rule(at="2030-01-01")  # type: ignore[arg-type]


def test_a_moment_occurs_once() -> None:
    once = make_rule(at=datetime(2026, 6, 10, 12, tzinfo=UTC))
    assert (once.next(NOW - 1), once.next(NOW), next_occurrences(once, 0, 5)) == (NOW, None, [NOW])


def test_a_delay_becomes_a_moment_when_it_is_first_stored() -> None:
    """A later declaration keeps the stored moment."""
    declared = make_rule(after="10m")
    stored = decode(encode(declared.anchored(NOW)))
    assert stored.anchored(NOW + DAY) == stored
    assert next_occurrences(stored, 0, 5) == [NOW + 600 * SECOND]
    assert stored.declared == declared
    assert make_rule(after=0).anchored(NOW).next(NOW - 1) == NOW


def test_a_rule_without_an_anchor_raises() -> None:
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
def test_two_rules_or_ignored_options_are_refused(options: dict[str, Any], said: str) -> None:
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
def test_the_stored_form_does_not_change(stored: Rule, text: str) -> None:
    """Databases hold this form: a change needs code that reads this one."""
    assert encode(stored).decode() == text
    assert decode(text) == stored


def test_the_stored_form_of_newer_versions_is_read() -> None:
    """Unknown fields are ignored. An unknown kind is refused with the fix."""
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
def test_a_clock_that_goes_back_repeats_no_occurrence(made: Every | Cron) -> None:
    """10,000 hours with a clock that is set back now and then: the next occurrence is always after the watermark, and
    each occurs exactly once.
    """
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


def test_import_loads_neither_cronsim_nor_zones() -> None:
    """Neither ``import mainspring`` nor a declaration in UTC without a calendar loads them.

    The assertions are in the program: its exit code fails the test.
    """
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


def test_a_leap_day_far_ahead_is_found_fast() -> None:
    """29 February on a Monday, in 28 years: found by months and days, not by minutes."""
    made = make_rule(cron="0 0 */28 2 MON#5")
    assert next_occurrences(made, NOW, 2) == [from_datetime(datetime(year, 2, 29, tzinfo=UTC)) for year in (2044, 2072)]
    assert timedelta(microseconds=made.next(NOW) or 0).days > 18 * 365
