"""Time is whole microseconds in UTC; a test's clock moves only when the test moves it."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.common.clock import Clock, MovableClock, SystemClock, boottime, from_datetime, to_datetime
from mainspring.errors import InvalidOption
from mainspring.jobs.outcomes import Lease
from mainspring.worker.records import Claim
from mainspring.worker.run.attempt import RunEnvironment, RunningAttempt
from mainspring.worker.run.context_reports import report_line
from mainspring.worker.run.progress import ReportSender
from tests.jobs.world import World

MOMENT = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
SLACK = 5_000_000  # microseconds: the clock of the machine may be set meanwhile


def test_the_system_clock_returns_the_wall_time() -> None:
    clock: Clock = SystemClock()
    before = time.time_ns() // 1000
    now = clock.now_us()
    assert before - SLACK <= now <= time.time_ns() // 1000 + SLACK


def test_a_movable_clock_stands_still_until_it_is_moved() -> None:
    clock = MovableClock(MOMENT)
    start = clock.now_us()
    assert clock.now_us() == start
    assert clock.advance("1h30m") == start + 5_400_000_000
    assert clock.set(MOMENT) == start
    assert "2030-01-02" in repr(clock)


def test_a_movable_clock_starts_now_by_default() -> None:
    before = time.time_ns() // 1000
    clock: Clock = MovableClock()
    assert before - SLACK <= clock.now_us() <= time.time_ns() // 1000 + SLACK


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


def test_a_log_line_is_never_older_than_its_job() -> None:
    """The time of a turn is that of its start. The turn may claim a job that was enqueued a moment later."""
    world = World("sqlite://")
    spec = world.tasks[world.task(print, name="work")]
    environment = RunEnvironment("code")
    environment.reports = cast(ReportSender, set[Any]())  # like a sender, it only gets the attempt
    enqueued = environment.store_now() + 3_600_000_000
    claim = Claim(b"j" * 16, 1, "work", "default", "default/thread", 0, 1, 1, 0, False, enqueued, None, b"", 1)
    attempt = RunningAttempt(claim, spec, Lease(claim.id, claim.token), 0.0, environment)
    report_line(attempt, logging.LoggerAdapter(logging.getLogger("test"), {}), "text", "info", {})
    assert [line.at for line in attempt.logs or ()] == [enqueued]
