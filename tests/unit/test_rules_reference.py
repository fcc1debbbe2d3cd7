"""Cron against a walk over every minute; with MAINSPRING_SOAK, as ``./dev soak --only rules`` sets it, much more."""

from __future__ import annotations

import os
from bisect import bisect_right
from datetime import UTC, datetime
from itertools import islice, pairwise, takewhile
from zoneinfo import available_timezones

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import UnsatisfiedAssumption

from mainspring.errors import InvalidOption
from mainspring.schedules.rules import Cron
from tests.unit.cron_reference import expressions, minute_of, segments, ticks

LONG = bool(os.environ.get("MAINSPRING_SOAK"))
MANY = 5_000 if LONG else 500
"""So many ticks are compared one by one, from each beginning."""
SOME = settings(deadline=None, derandomize=not LONG, suppress_health_check=list(HealthCheck), database=None)
YEARS = minute_of(datetime(2020, 1, 1, tzinfo=UTC)), minute_of(datetime(2030, 1, 1, tzinfo=UTC))
TWO_YEARS = minute_of(datetime(2024, 1, 1, tzinfo=UTC)), minute_of(datetime(2026, 1, 1, tzinfo=UTC))
FIRST, LAST = (1972, 2038) if LONG else (2007, 2020)
HISTORY = minute_of(datetime(FIRST, 6, 1, tzinfo=UTC)), minute_of(datetime(LAST, 1, 1, tzinfo=UTC))
DAY = 24 * 60
SEEN: set[tuple[int, int, int]] = set()
"""Changes of clocks: at what time of the day, from which offset, to which."""

UNUSUAL = [
    "Africa/Cairo", "Africa/Casablanca", "America/Asuncion", "America/Havana", "America/New_York", "America/Nuuk",
    "America/Santiago", "America/Scoresbysund", "America/St_Johns", "Antarctica/Troll", "Antarctica/Vostok",
    "Asia/Almaty", "Asia/Beirut", "Asia/Gaza", "Asia/Kathmandu", "Australia/Lord_Howe", "Europe/Berlin",
    "Europe/Dublin", "Europe/London", "Pacific/Chatham", "Pacific/Kiritimati", "Etc/GMT+12",
]  # fmt: skip
"""Changes at midnight, of half an hour, of two hours, backwards in summer, at odd offsets, more than two, or none."""
TURNED = [
    "Pacific/Apia", "America/Caracas", "Asia/Pyongyang", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Tehran",
]  # fmt: skip
NASTY = [
    "* * * * *", "*/7 * * * *", "*/10 2 * * *", "*/10 3 * * *", "30 * * * *", "0 */2 * * *", "15,45 1 * * *",
    "30 2 * * *", "0 0 * * *", "59 23 * * *", "0-59 0-23 * * *", "*/20 0 * * SUN", "30 0,1,2,3 * * *",
    "0 30 2 * * *", "*/30 30 1 * * *", "0 0 1 * *", "*/15 0 L * *", "30 23 LW * *",
]  # fmt: skip


def accepted(expression: str, zone: str) -> Cron:
    """The rule, if the expression ever comes: days such as 30 February are drawn too."""
    try:
        return Cron.of(expression, tz=zone)
    except InvalidOption as error:
        why = error.why
    assert "never comes" in why or "not possible" in why, why
    assert next(ticks(expression, zone, *YEARS), None) is None
    raise UnsatisfiedAssumption


def compare(rule: Cron, begin: int, end: int) -> None:
    """Every occurrence in [begin, end), in minutes; of many, the first, and those near each change of clocks."""
    expected = list(islice(ticks(rule.expression, rule.tz, begin, end), MANY))
    until = end * 60 if len(expected) < MANY else expected[-1] + 1
    assert found(rule, begin * 60, until) == expected
    for edge, _, _ in segments(rule.tz, begin, end)[1:]:
        low, high = edge - DAY // 4, edge + DAY // 4
        near = list(ticks(rule.expression, rule.tz, low, high + DAY))
        until = high * 60
        assert found(rule, low * 60, until) == [tick for tick in near if tick < until]
        for distance in (-7_200, -3_601, -1_800, -61, -1, 0, 1, 60, 1_799, 3_600, 5_000):
            check_next(rule, edge * 60 + distance, near)


def found(rule: Cron, begin: int, end: int) -> list[int]:
    """What the rule itself says, in seconds."""
    walk = takewhile(lambda tick: tick < end * 1_000_000, rule.walk(begin * 1_000_000 - 1))
    return [tick // 1_000_000 for tick in walk]


def check_next(rule: Cron, after: int, expected: list[int]) -> None:
    place = bisect_right(expected, after)
    if place < len(expected):
        assert rule.next(after * 1_000_000) == expected[place] * 1_000_000, f"{rule} after {after}"
        assert rule.next(after * 1_000_000 + 999_999) == expected[place] * 1_000_000, f"{rule} after {after}.9"


@pytest.mark.row("S1")
@settings(SOME, max_examples=100 if LONG else 8)
@given(expression=expressions())
def test_cron_in_utc_agrees_with_a_walk_over_ten_years(expression: str) -> None:
    """The walk visits every minute. Of expressions with many occurrences it checks the beginning of each year."""
    rule = accepted(expression, "UTC")
    begin, end = YEARS
    for since in range(begin, end, 366 * DAY):
        expected = list(islice(ticks(expression, "Etc/UTC", since, end), MANY))
        until = end * 60 if len(expected) < MANY else expected[-1] + 1
        assert found(rule, since * 60, until) == expected
        if len(expected) < MANY:
            break


@pytest.mark.row("S1", "S4")
@pytest.mark.parametrize("zone", sorted(available_timezones() - {"localtime"}) if LONG else UNUSUAL)
@settings(SOME, max_examples=4 if LONG else 2)
@given(expression=expressions(seconds=LONG))
def test_cron_in_every_zone_agrees_with_a_walk_over_two_years(zone: str, expression: str) -> None:
    """A fixed time comes once a day, and repeated times whenever the wall clock shows them."""
    compare(accepted(expression, zone), *TWO_YEARS)


@pytest.mark.row("S4")
@pytest.mark.parametrize("zone", sorted(available_timezones() - {"localtime"}) if LONG else TURNED)
def test_cron_agrees_with_a_walk_at_every_change_of_clocks(zone: str) -> None:
    """Skipped days, changes of half an hour, abandoned rules: all changes since 1972."""
    known = segments(zone, *HISTORY)
    for place, ((_, change, before), (_, _, later)) in enumerate(list(pairwise(known))[0 if LONG else -4 :]):
        kind = (change + before) % DAY, before, later
        if not LONG or kind not in SEEN:  # most come every year, or in many zones
            SEEN.add(kind)
            for expression in NASTY if LONG else NASTY[place % 4 :: 4]:
                compare(Cron(expression, zone), change - 3 * DAY, change + 2 * DAY)


@pytest.mark.row("S1")
@settings(SOME, max_examples=300 if LONG else 20)
@given(st.sampled_from(UNUSUAL), expressions(), st.integers(0, 2**41 * 1_000))
def test_the_next_occurrence_is_later_than_the_given_moment(zone: str, expression: str, after: int) -> None:
    """For any moment, also within the second of an occurrence."""
    rule = accepted(expression, zone)
    first = rule.next(after)
    assert first is None or (first > after and first % 1_000_000 == 0 and rule.next(first - 1) == first)
