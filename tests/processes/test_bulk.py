"""Bulk tasks whose process dies or will not end: nothing is lost, and each job goes by its own policy."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from mainspring.jobs.outcomes import Outcome
from mainspring.states import Reason, State
from tests.processes.bulking import Bulking
from tests.processes.fleet import Fleet, overlaps

pytestmark = pytest.mark.row("W16")

TARGET = "tests.processes.bulking:app"


def test_the_guilty_item_of_a_bulk_call_that_kills_its_process_is_found(fleet: Fleet) -> None:
    """After a crash with several suspects, each job runs alone."""
    tasks = Bulking(fleet.tasks.app)
    items = [f"good {n}" for n in range(5)] + ["poison"] + [f"good {n}" for n in range(5, 10)]
    jobs = tasks.poisoned.enqueue_many(tasks.poisoned.s(item) for item in items)
    fleet.start(target=TARGET).wait_ready()
    infos = fleet.ended(jobs)
    for item, job, info in zip(items, jobs, infos, strict=True):
        if item == "poison":
            assert (info.state, info.reason, info.crashes) == (State.DEAD, Reason.CRASHED, 2)
        else:
            assert (info.state, info.attempt) == (State.SUCCEEDED, 1)
            assert job.result() == 1, "it was alone"
    assert overlaps(fleet.journal()) == []


def test_after_kill_9_every_item_runs_again(fleet: Fleet, tmp_path: Path) -> None:
    tasks = Bulking(fleet.tasks.app)
    path = str(tmp_path / "first")
    jobs = tasks.awaited.enqueue_many(tasks.awaited.s(path) for _ in range(15))
    [pid] = fleet.start(target=TARGET).wait_ready()
    fleet.started(*jobs)
    os.kill(pid, signal.SIGKILL)
    for info, job in zip(fleet.ended(jobs), jobs, strict=True):
        assert (info.state, info.attempt, info.crashes) == (State.SUCCEEDED, 1, 1)
        assert [attempt.outcome for attempt in info.attempts] == [Outcome.CRASHED]
        assert job.result() > 1, "one crash makes no suspects of three"
        assert len(fleet.journal(job, word="END")) == 1


@pytest.mark.stores("sqlite")
def test_all_items_of_a_bulk_call_that_does_not_end_time_out(fleet: Fleet, tmp_path: Path) -> None:
    tasks = Bulking(fleet.tasks.app)
    jobs = tasks.stuck.enqueue_many(tasks.stuck.s(str(tmp_path / "first")) for _ in range(5))
    fleet.start(target=TARGET, drain="1s").wait_ready()
    for info, job in zip(fleet.ended(jobs), jobs, strict=True):
        assert (info.state, info.attempt, info.crashes) == (State.SUCCEEDED, 2, 0)
        assert [attempt.outcome for attempt in info.attempts] == [Outcome.TIMED_OUT]
        assert job.result() == "second"
