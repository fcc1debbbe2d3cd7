"""One story for an outage that many parts of a process meet."""

from __future__ import annotations

import logging
import threading

import pytest

from mainspring.errors import StoreConflict, StoreUnavailable
from mainspring.worker import retry_log as module
from mainspring.worker.retry_log import CALM, Outage, RetryLog

LOG = logging.getLogger("mainspring.tests")
AWAY = StoreUnavailable("away")


class Hours:
    """The clock of the test."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> Hours:
    hours = Hours()
    monkeypatch.setattr(module, "time", hours)
    return hours


class Said:
    """What was logged so far."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    @property
    def lines(self) -> list[str]:
        return [record.getMessage() for record in self._caplog.records]


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Said:
    return Said(caplog)


def parts(outage: Outage, n: int = 6) -> list[RetryLog]:
    return [RetryLog(f"part {number}", LOG, outage) for number in range(n)]


def test_an_outage_is_logged_at_its_begin_every_30_seconds_and_at_its_end(hours: Hours, said: Said) -> None:
    """However many operations fail, and however often."""
    crew = parts(Outage(LOG))
    for _ in range(60):
        for part in crew:
            part.record_failure(AWAY)
        hours.now += 1
    hours.now += CALM
    for part in crew:
        part.record_success()
    assert said.lines == [
        "the store failed while part 0; retrying: away",
        "the store has been failing for 30 s, last while part 0: away",
        "the store works again after 59.0 s and 360 failures",
    ]


def test_an_outage_is_over_when_every_failed_operation_has_succeeded(hours: Hours, said: Said) -> None:
    """Heartbeats can succeed while turns fail."""
    beats, turns = parts(Outage(LOG), 2)
    beats.record_failure(AWAY)
    turns.record_failure(AWAY)
    for _ in range(5):
        hours.now += 2
        beats.record_success()
    assert len(said.lines) == 1
    assert turns.record_success()
    assert len(said.lines) == 2


def test_a_store_that_fails_now_and_then_is_one_outage(hours: Hours, said: Said) -> None:
    """One failure each half second, followed by a success."""
    (part,) = parts(Outage(LOG), 1)
    for _ in range(40):
        part.record_failure(AWAY)
        assert part.record_success()
        hours.now += CALM / 2
    hours.now += CALM
    part.record_success()
    assert len(said.lines) == 2


def test_an_operation_without_retries_keeps_no_outage_open(hours: Hours, said: Said) -> None:
    outage = Outage(LOG)
    turns, reports = RetryLog("turns", LOG, outage), RetryLog("reports", LOG, outage, until_success=False)
    turns.record_failure(AWAY)
    reports.record_failure(AWAY)
    hours.now += CALM
    turns.record_success()
    assert said.lines[1:] == ["the store works again after 0.0 s and 2 failures"]


def test_other_errors_are_logged_by_their_own_retry_log(said: Said) -> None:
    first, second = parts(Outage(LOG), 2)
    first.record_failure(StoreConflict("odd"))
    assert not second.record_success()
    assert first.record_success()
    assert [word.partition(":")[0] for word in said.lines] == [
        "part 0 failed; retrying",
        "part 0 works again after 0.0 s and 1 failures",
    ]


def test_others_fail_ignores_the_operation_itself(hours: Hours) -> None:
    outage = Outage(LOG)
    beats, turns = parts(outage, 2)
    turns.record_failure(AWAY)
    assert not outage.others_fail(turns.operation)
    beats.record_failure(AWAY)
    assert outage.others_fail(turns.operation)
    beats.record_success()
    assert not outage.others_fail(turns.operation)


def test_failures_in_many_threads_are_one_outage(said: Said) -> None:
    outage = Outage(LOG)
    crew = parts(outage, 8)
    threads = [
        threading.Thread(target=lambda part=part: [part.record_failure(AWAY) for _ in range(200)]) for part in crew
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said.lines) == 1
