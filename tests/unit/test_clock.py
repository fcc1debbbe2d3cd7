"""Time is whole microseconds in UTC; a test's clock moves only when the test moves it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.common.clock import Clock, MovableClock, SystemClock, boottime, from_datetime, to_datetime
from mainspring.errors import InvalidOption
from mainspring.worker.run.attempt import RunEnvironment

MOMENT = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def test_the_system_clock_returns_the_wall_time() -> None:
    clock: Clock = SystemClock()
    assert abs(clock.now_us() - time.time() * 1e6) < 5e6


def test_a_movable_clock_stands_still_until_it_is_moved() -> None:
    clock = MovableClock(MOMENT)
    start = clock.now_us()
    assert clock.now_us() == start
    assert clock.advance("1h30m") == start + 5_400_000_000
    assert clock.set(MOMENT) == start
    assert "2030-01-02" in repr(clock)


def test_a_movable_clock_starts_now_by_default() -> None:
    clock: Clock = MovableClock()
    assert abs(clock.now_us() - time.time() * 1e6) < 5e6


def test_a_movable_clock_does_not_advance_backwards() -> None:
    with pytest.raises(InvalidOption, match="negative"):
        MovableClock().advance(-1)


def test_boottime_only_grows() -> None:
    readings = [boottime() for _ in range(100)]
    assert readings == sorted(readings)


@given(
    st.datetimes(
        timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45)), timezone(-timedelta(hours=9))])
    )
)
def test_a_datetime_comes_back_as_the_same_moment(moment: datetime) -> None:
    try:
        moment.astimezone(UTC)
    except OverflowError:
        return
    assert to_datetime(from_datetime(moment)) == moment
    assert to_datetime(from_datetime(moment)).tzinfo is UTC


def test_a_naive_datetime_is_refused_with_the_fix() -> None:
    with pytest.raises(InvalidOption, match=r"run_at=.*no time zone") as caught:
        from_datetime(datetime(2030, 1, 1), what="run_at")  # noqa: DTZ001 - the mistake under test
    assert "tzinfo" in caught.value.hint


def test_a_value_that_is_not_a_datetime_is_refused() -> None:
    with pytest.raises(InvalidOption, match="not str"):
        from_datetime("tomorrow")  # type: ignore[arg-type]  # the mistake under test


def test_a_worker_never_gives_a_time_before_the_last_reply_of_its_store() -> None:
    """Replies that arrive late make the worker believe that the store's clock is behind."""
    environment = RunEnvironment("code")
    environment.store_ahead, environment.store_replied = -10_000, int(boottime() * 1e6) + 3_600_000_000
    assert environment.store_now() == environment.store_replied
