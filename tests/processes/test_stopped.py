"""SIGSTOP past the lease, then SIGCONT: a worker whose job was rescued changes nothing, and no job runs twice."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from mainspring.jobs.job import Job
from mainspring.jobs.outcomes import Outcome
from mainspring.states import State
from tests.processes.fleet import Fleet, Supervised, until


def row_ids(fleet: Fleet, pid: int) -> list[str]:
    """The living rows of a process."""
    return [row.id for row in fleet.workers() if not row.lost and json.loads(row.info).get("pid") == pid]


def beats_of(fleet: Fleet, worker: str) -> int:
    return next((row.number for row in fleet.workers() if row.id == worker and not row.lost), -1)


def assert_second_owner_stands(fleet: Fleet, job: Job[Any]) -> None:
    """State, result, progress and log are those of the last token alone."""
    first, second = (line.token for line in fleet.journal(job, word="START"))
    info = job.info()
    assert (info.state, info.token) == (State.SUCCEEDED, second)
    assert job.result() == second
    assert info.progress is not None
    assert info.progress["note"] == f"by {second}"
    assert fleet.logs(job) == [f"done by {second}"]
    assert [(a.token, a.outcome) for a in info.attempts] == [(first, Outcome.LOST)]


def stopped_then_resumed(fleet: Fleet, tmp_path: Path, *, supervisor_too: bool) -> None:
    stopped = fleet.start()
    (pid,) = stopped.wait_ready()
    gate = tmp_path / "gate"
    job = fleet.tasks.wait_first.enqueue(str(gate))
    fleet.started(job)
    (old,) = row_ids(fleet, pid)
    fleet.start().wait_ready()
    frozen = (stopped.pid, pid) if supervisor_too else (pid,)
    fleet.freeze(*frozen)
    assert fleet.ended([job])[0].state is State.SUCCEEDED
    gate.touch()
    fleet.thaw(*reversed(frozen))
    new = until(lambda: [row for row in row_ids(fleet, pid) if row != old], what="the resumed worker takes a new id")
    assert len(new) == 1
    assert_second_owner_stands(fleet, job)
    after = fleet.tasks.nap.options(queue="default").enqueue(0.0)
    assert fleet.ended([after])[0].state is State.SUCCEEDED
    assert_second_owner_stands(fleet, job)
    assert pid in stopped.worker_pids(), "nobody had a reason to kill it"


@pytest.mark.row("W4")
def test_a_worker_stopped_past_its_lease_cannot_write_when_it_goes_on(fleet: Fleet, tmp_path: Path) -> None:
    stopped_then_resumed(fleet, tmp_path, supervisor_too=False)


@pytest.mark.row("W4")
def test_supervisor_and_worker_stopped_past_the_lease(fleet: Fleet, tmp_path: Path) -> None:
    stopped_then_resumed(fleet, tmp_path, supervisor_too=True)


@pytest.mark.row("W2")
def test_a_stopped_supervisor_makes_no_job_run_twice(fleet: Fleet, tmp_path: Path) -> None:
    """Its worker sends its own heartbeats, and finishes."""
    stopped = fleet.start()
    (pid,) = stopped.wait_ready()
    gate = tmp_path / "gate"
    job = fleet.tasks.wait_for.enqueue(str(gate))
    fleet.started(job)
    (worker,) = row_ids(fleet, pid)
    fleet.start().wait_ready()
    fleet.freeze(stopped.pid)
    beats = beats_of(fleet, worker)
    until(lambda: beats_of(fleet, worker) > beats + 9, what="three leases of beats")
    gate.touch()
    (info,) = fleet.ended([job])
    fleet.thaw(stopped.pid)
    assert info.state is State.SUCCEEDED
    assert info.attempts == ()
    assert len(fleet.journal(job, word="START")) == 1
    ends_well(stopped)


def ends_well(supervised: Supervised) -> None:
    supervised.signal(signal.SIGTERM)
    assert supervised.wait() == 0
