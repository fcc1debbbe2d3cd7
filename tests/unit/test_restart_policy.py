"""Seats: when a dead worker's place is filled again."""

from __future__ import annotations

import pytest

from mainspring.worker.supervise import restart_policy as module
from mainspring.worker.supervise.restart_policy import MAX_PAUSE, RestartPolicy


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(module, "boottime", lambda: now[0])
    monkeypatch.setattr("random.uniform", lambda _low, high: high)
    return now


def pauses(seats: RestartPolicy, time: list[float], deaths: int) -> list[float]:
    """The waits before a restart, after each of this many deaths in a row."""
    seen = []
    for _ in range(deaths):
        seats.record_start(0)
        seats.record_end(0, orderly=False)
        seen.append(max(0.0, seats._due[0] - time[0]))
        time[0] += seen[-1]
    return seen


def test_the_first_death_costs_no_wait_and_deaths_in_a_row_wait_longer(time: list[float]) -> None:
    assert pauses(RestartPolicy(1), time, 5) == [0.0, 0.5, 1.0, 2.0, 4.0]


def test_the_wait_before_a_restart_has_a_cap(time: list[float]) -> None:
    assert pauses(RestartPolicy(1), time, 20)[-1] == MAX_PAUSE


def test_a_worker_that_lived_a_while_resets_the_count(time: list[float]) -> None:
    seats = RestartPolicy(1)
    pauses(seats, time, 5)
    seats.record_start(0)
    time[0] += 11
    seats.record_end(0, orderly=False)
    assert seats.list_due(time[0], ()) == [0]


def test_an_orderly_end_is_not_counted_as_a_death(time: list[float]) -> None:
    seats = RestartPolicy(1)
    pauses(seats, time, 5)
    seats.record_start(0)
    time[0] += 2
    seats.record_end(0, orderly=True)
    assert seats.list_due(time[0], ()) == [0]


def test_workers_that_end_right_after_their_start_are_restarted_with_a_wait(time: list[float]) -> None:
    seats = RestartPolicy(1)
    for _ in range(3):
        seats.record_start(0)
        seats.record_end(0, orderly=True)
    assert seats.list_due(time[0], ()) == []


def test_after_three_failed_starts_the_supervisor_gives_up(time: list[float]) -> None:
    seats = RestartPolicy(1)
    told = [seats.record_failed_start(0, "ImportError: no module named shop") for _ in range(3)]
    assert seats.gives_up
    assert [bool(text) for text in told] == [True, False, False]


def test_failed_starts_are_retried_after_a_worker_has_started(time: list[float]) -> None:
    seats = RestartPolicy(1)
    seats.record_start(0)
    seats.record_end(0, orderly=True)
    for _ in range(10):
        seats.record_failed_start(0, "ImportError")
    assert not seats.gives_up
    assert 0 < seats.next_due() - time[0] <= MAX_PAUSE


def test_finished_workers_are_not_replaced(time: list[float]) -> None:
    seats = RestartPolicy(2)
    seats.record_finish(0)
    assert seats.list_due(time[0], ()) == [1]
    seats.record_finish(1)
    assert seats.all_finished
