"""Seats: when a dead worker's place is filled again."""

from __future__ import annotations

import pytest

from mainspring.worker.supervise import restart_policy as module
from mainspring.worker.supervise.restart_policy import CAP, RestartPolicy


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(module, "boottime", lambda: now[0])
    monkeypatch.setattr("random.uniform", lambda _low, high: high)
    return now


def pauses(seats: RestartPolicy, time: list[float], deaths: int) -> list[float]:
    """How long the seat waits after each of so many deaths in a row."""
    seen = []
    for _ in range(deaths):
        seats.started(0)
        seats.left(0, orderly=False)
        seen.append(max(0.0, seats._due[0] - time[0]))
        time[0] += seen[-1]
    return seen


def test_the_first_death_costs_no_wait_and_deaths_in_a_row_wait_longer(time: list[float]) -> None:
    assert pauses(RestartPolicy(1), time, 5) == [0.0, 0.5, 1.0, 2.0, 4.0]


def test_the_wait_has_a_cap(time: list[float]) -> None:
    assert pauses(RestartPolicy(1), time, 20)[-1] == CAP


def test_a_worker_that_lived_a_while_starts_the_count_anew(time: list[float]) -> None:
    seats = RestartPolicy(1)
    pauses(seats, time, 5)
    seats.started(0)
    time[0] += 11
    seats.left(0, orderly=False)
    assert seats.due(time[0], ()) == [0]


def test_an_orderly_end_is_no_death(time: list[float]) -> None:
    seats = RestartPolicy(1)
    pauses(seats, time, 5)
    seats.started(0)
    time[0] += 2
    seats.left(0, orderly=True)
    assert seats.due(time[0], ()) == [0]


def test_workers_that_end_as_soon_as_they_started_do_not_spin(time: list[float]) -> None:
    seats = RestartPolicy(1)
    for _ in range(3):
        seats.started(0)
        seats.left(0, orderly=True)
    assert seats.due(time[0], ()) == []


def test_after_three_failed_starts_there_is_no_hope(time: list[float]) -> None:
    seats = RestartPolicy(1)
    told = [seats.failed(0, "ImportError: no module named shop") for _ in range(3)]
    assert seats.hopeless
    assert [bool(text) for text in told] == [True, False, False]


def test_failed_starts_are_borne_once_somebody_has_started(time: list[float]) -> None:
    seats = RestartPolicy(1)
    seats.started(0)
    seats.left(0, orderly=True)
    for _ in range(10):
        seats.failed(0, "ImportError")
    assert not seats.hopeless
    assert 0 < seats.next_due() - time[0] <= CAP


def test_finished_seats_stay_empty(time: list[float]) -> None:
    seats = RestartPolicy(2)
    seats.finished(0)
    assert seats.due(time[0], ()) == [1]
    seats.finished(1)
    assert seats.settled
