"""Hard limits of bodies that do not yield: the worker is replaced, only the guilty one is charged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mainspring.jobs.outcomes import Outcome
from mainspring.states import State
from tests.processes.fleet import Fleet, alive, overlaps, until

pytestmark = pytest.mark.stores("sqlite")


@pytest.mark.row("R5")
@pytest.mark.parametrize("task", ["stuck", "stuck_loop"])
def test_only_the_body_that_does_not_end_is_charged(fleet: Fleet, tmp_path: Path, task: str) -> None:
    supervised = fleet.start(drain="1s")
    (pid,) = supervised.wait_ready()
    gate = tmp_path / "gate"
    neighbours = [fleet.tasks.wait_for.enqueue(str(gate)) for _ in range(3)]
    fleet.started(*neighbours)
    job = getattr(fleet.tasks, task).enqueue(str(tmp_path / "first"))
    fleet.started(job)
    fleet.started(job, times=2)
    assert not alive(pid), "no second copy while the first lives"
    fleet.started(*neighbours, times=2)
    gate.touch()
    (info,) = fleet.ended([job])
    assert info.state is State.SUCCEEDED
    assert job.result() == "second"
    assert [attempt.outcome for attempt in info.attempts] == [Outcome.TIMED_OUT]
    assert info.attempts[0].error is not None
    assert info.attempts[0].error.type.endswith("HardTimeout")
    assert f" in {task}" in info.attempts[0].error.message, "the place of the body"
    assert (info.attempt, info.crashes) == (2, 0)
    others = fleet.ended(neighbours)
    assert {other.state for other in others} == {State.SUCCEEDED}
    assert {(other.attempt, other.crashes) for other in others} == {(1, 0)}
    assert overlaps(fleet.journal()) == []


@pytest.mark.row("R5")
def test_other_jobs_of_a_worker_with_a_stuck_thread_finish_in_the_drain_time(
    fleet: Fleet, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    supervised = fleet.start(drain="10m")  # neither the gate nor a stall of the machine ends the drain
    (pid,) = supervised.wait_ready()
    gate = tmp_path / "gate"
    neighbour = fleet.tasks.wait_for.enqueue(str(gate))
    job = fleet.tasks.stuck.enqueue(str(tmp_path / "first"))
    fleet.started(neighbour, job)
    until(lambda: pid_of_a_new_job(fleet) != pid, what="the successor works while the old worker drains")
    gate.touch()
    (info,) = fleet.ended([neighbour])
    assert info.attempts == ()
    assert [(line.word, line.pid) for line in fleet.journal(neighbour)] == [("START", pid), ("END", pid)]
    (late,) = fleet.ended([job])
    assert late.state is State.SUCCEEDED
    assert not alive(pid)
    log = capfd.readouterr().err
    assert re.search(rf"job {job.id} \(stuck\) ran longer than its timeout of \S+ and does not end at .* in stuck", log)
    assert re.search(rf"an attempt of job {job.id} ended with its worker .*, retry in \S+: .*HardTimeout", log)


def pid_of_a_new_job(fleet: Fleet) -> int:
    """The process that runs a job which is enqueued now."""
    (line,) = fleet.started(fleet.tasks.quick.enqueue())
    return line.pid
