"""One story for an outage that many parts of a process meet."""

from __future__ import annotations

import logging
import threading

import pytest

from mainspring.errors import StoreConflict, StoreUnavailable
from mainspring.worker.loop import outage as module
from mainspring.worker.loop.outage import CALM, Outage
from mainspring.worker.loop.retry_log import RetryLog

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


def test_a_minute_of_outage_is_said_when_it_begins_each_thirty_seconds_and_when_it_is_over(
    hours: Hours, said: Said
) -> None:
    """However many parts meet it, and however often."""
    crew = parts(Outage(LOG))
    for _ in range(60):
        for part in crew:
            part.failed(AWAY)
        hours.now += 1
    hours.now += CALM
    for part in crew:
        part.over()
    assert said.lines == [
        "the store failed, trying again: part 0: away",
        "the store has been failing for 30 s: part 0: away",
        "the store works again after 59.0 s and 360 failures",
    ]


def test_it_is_over_when_everybody_who_failed_has_worked_again(hours: Hours, said: Said) -> None:
    """The beats alone may work while the turns do not."""
    beats, turns = parts(Outage(LOG), 2)
    beats.failed(AWAY)
    turns.failed(AWAY)
    for _ in range(5):
        hours.now += 2
        beats.over()
    assert len(said.lines) == 1
    assert turns.over()
    assert len(said.lines) == 2


def test_a_store_that_fails_now_and_then_is_one_story(hours: Hours, said: Said) -> None:
    """A failure each half of a second, each mended at once."""
    (part,) = parts(Outage(LOG), 1)
    for _ in range(40):
        part.failed(AWAY)
        assert part.over()
        hours.now += CALM / 2
    hours.now += CALM
    part.over()
    assert len(said.lines) == 2


def test_a_part_that_does_not_try_again_keeps_no_outage_open(hours: Hours, said: Said) -> None:
    outage = Outage(LOG)
    turns, reports = RetryLog("turns", LOG, outage), RetryLog("reports", LOG, outage, tries=False)
    turns.failed(AWAY)
    reports.failed(AWAY)
    hours.now += CALM
    turns.over()
    assert said.lines[1:] == ["the store works again after 0.0 s and 2 failures"]


def test_what_is_no_outage_is_the_trouble_of_its_part(said: Said) -> None:
    first, second = parts(Outage(LOG), 2)
    first.failed(StoreConflict("odd"))
    assert not second.over()
    assert first.over()
    assert [word.partition(":")[0] for word in said.lines] == [
        "part 0 failed, trying again",
        "part 0 works again after 0.0 s and 1 failures",
    ]


def test_whether_others_fail_too(hours: Hours) -> None:
    outage = Outage(LOG)
    beats, turns = parts(outage, 2)
    turns.failed(AWAY)
    assert not outage.beside(turns.what)
    beats.failed(AWAY)
    assert outage.beside(turns.what)
    beats.over()
    assert not outage.beside(turns.what)


def test_parts_in_many_threads_tell_one_story(said: Said) -> None:
    outage = Outage(LOG)
    crew = parts(outage, 8)
    threads = [threading.Thread(target=lambda part=part: [part.failed(AWAY) for _ in range(200)]) for part in crew]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said.lines) == 1
