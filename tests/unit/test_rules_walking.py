"""Windows, jitter and what was missed: exact, and without walking for ever."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.common.clock import from_datetime
from mainspring.errors import InvalidOption
from mainspring.schedules.rules import (
    Cron,
    Every,
    MissedOccurrences,
    Once,
    Rule,
    check_jitter,
    find_missed,
    jitter_delay,
    make_rule,
    make_window,
    next_occurrences,
)

NOW = from_datetime(datetime(2026, 6, 10, 12, tzinfo=UTC))
SECOND, HOUR, DAY = 1_000_000, 3_600_000_000, 86_400_000_000
moments = st.integers(0, 2**52)
periods = st.integers(1_000, 400 * DAY)


# ---- windows ---------------------------------------------------------------------------------------


def test_a_window_includes_its_start_and_not_its_end() -> None:
    hourly = make_window(make_rule(cron="@hourly"), NOW, NOW + 3 * HOUR)
    assert next_occurrences(hourly, 0, 9) == [NOW, NOW + HOUR, NOW + 2 * HOUR]
    assert hourly.next(NOW) == NOW + HOUR
    assert hourly.next(NOW + 2 * HOUR) is None
    assert find_missed(hourly, 0, NOW + DAY, 2) == MissedOccurrences(3, (NOW + HOUR, NOW + 2 * HOUR))


def test_an_interval_begins_with_its_window() -> None:
    """Also when the rule was stored earlier. In a window that has begun, the interval counts from the time it was
    stored.
    """
    ahead = make_window(make_rule(every="1h"), NOW + 5, NOW + DAY).anchored(NOW)
    assert ahead.next(0) == NOW + 5
    assert make_window(make_rule(every="1h"), NOW - 5).anchored(NOW).next(0) == NOW + HOUR
    assert ahead.declared == make_window(make_rule(every="1h"), NOW + 5, NOW + DAY)


def test_an_empty_window_is_refused() -> None:
    with pytest.raises(InvalidOption, match="not later than start"):
        make_window(make_rule(every="1h"), NOW, NOW)
    with pytest.raises(InvalidOption, match="leaves no occurrence"):
        make_window(make_rule(cron="0 0 1 1 *"), NOW, NOW + DAY)
    with pytest.raises(InvalidOption, match="leaves no occurrence"):
        make_window(make_rule(at=datetime(2026, 1, 1, tzinfo=UTC)), NOW)


# ---- jitter ----------------------------------------------------------------------------------------


@given(st.text(max_size=10), moments, periods)
def test_jitter_is_the_same_in_every_process_and_below_its_bound(name: str, occurrence: int, jitter: int) -> None:
    assert 0 <= jitter_delay(name, occurrence, jitter) < jitter
    assert jitter_delay(name, occurrence, jitter) == jitter_delay(name, occurrence, jitter)


def test_jitter_is_the_same_for_ever() -> None:
    """These values must never change: half of a fleet can run the earlier version."""
    assert jitter_delay("report", NOW, 60 * SECOND) == 39_451_896
    assert jitter_delay("report", NOW, 0) == 0


def test_jitter_spreads_evenly() -> None:
    """A hundred schedules with one time fill the range, and so do the occurrences of one schedule."""
    by_name = sorted(jitter_delay(f"job-{n}", NOW, 100) for n in range(1_000))
    by_moment = sorted(jitter_delay("job", NOW + n * HOUR, 100) for n in range(1_000))
    for found in (by_name, by_moment):
        assert len(set(found)) > 95
        assert 40 < found[500] < 60


def test_jitter_is_not_longer_than_its_interval() -> None:
    assert check_jitter("30s", Every.of("30s")) == 30 * SECOND
    assert check_jitter(None, Every.of("30s")) == 0
    assert check_jitter("1h", Cron("* * * * *")) == HOUR
    with pytest.raises(InvalidOption, match="longer than the interval"):
        check_jitter("31s", Every.of("30s"))


# ---- missed ----------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    st.integers(0, 5 * HOUR),
    st.integers(-HOUR, 5 * HOUR),
    st.integers(0, 20),
    st.sampled_from(["every", "cron", "once"]),
)
def test_missed_occurrences_agree_with_a_walk(since: int, length: int, cap: int, kind: str) -> None:
    after, until = NOW + since, NOW + since + length
    rules: dict[str, Rule] = {
        "every": Every(7 * 60 * SECOND, NOW + HOUR),
        "cron": Cron("*/7 * * * *"),
        "once": Once(NOW + HOUR),
    }
    walked = [moment for moment in islice(rules[kind].walk(after), 100) if moment <= until]
    assert find_missed(rules[kind], after, until, cap) == MissedOccurrences(
        len(walked), tuple(walked[len(walked) - min(cap, len(walked)) :])
    )


def test_a_year_of_missed_seconds_is_not_walked() -> None:
    """The count is exact for an interval. For cron it returns the newest ones and that there are more."""
    seconds = find_missed(Every(SECOND, 5), NOW - 365 * DAY, NOW, 3)
    assert seconds == MissedOccurrences(365 * 86_400, (NOW - 3 * SECOND + 5, NOW - 2 * SECOND + 5, NOW - SECOND + 5))
    for cap in (0, 1, 3, 1_000):
        many = find_missed(Cron("* * * * * *", "Europe/Kyiv"), NOW - 365 * DAY, NOW, cap)
        assert (many.count, many.exact) == (1_000, False)
        assert many.last == tuple(NOW - n * SECOND for n in reversed(range(cap)))


def test_the_newest_missed_occurrences_are_found_when_they_lie_far_apart() -> None:
    """Dense once a month, and none since."""
    monthly = find_missed(Cron("* * 3 1 * *"), NOW - 365 * DAY, NOW, 5)
    last = from_datetime(datetime(2026, 6, 1, 3, 59, 59, tzinfo=UTC))
    assert monthly.last == tuple(last - n * SECOND for n in reversed(range(5)))
