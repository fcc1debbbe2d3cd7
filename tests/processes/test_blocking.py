"""Bodies that block the loop or keep the GIL for several leases run once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from mainspring.states import State
from tests.plugins.outside import Outside
from tests.processes.fleet import Fleet, alive, overlaps, until
from tests.timing import patience


def runs_once(fleet: Fleet, task: str, seconds: float, **options: Any) -> None:
    """Two supervisors, one job that makes its worker mute: the other one must not take it."""
    fleet.start(**options).wait_ready()
    fleet.start(**options).wait_ready()
    job = getattr(fleet.tasks, task).enqueue(seconds)
    (info,) = fleet.ended([job], limit=max(60.0, 3 * seconds))
    assert info.state is State.SUCCEEDED
    assert info.attempts == ()
    assert [line.word for line in fleet.journal(job)] == ["START", "END"]


@pytest.mark.row("W2", "B4")
@pytest.mark.parametrize("task", ["block_loop", "hold_gil"])
def test_a_worker_with_a_blocked_loop_keeps_its_job(fleet: Fleet, task: str) -> None:
    lease = patience(1.5)
    runs_once(fleet, task, 4 * lease, lease=lease)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.row("W2", "B4")
@pytest.mark.parametrize(("task", "seconds"), [("block_loop", 60.0), ("hold_gil", 40.0)])
def test_a_worker_with_a_blocked_loop_keeps_its_job_with_the_default_lease(
    fleet: Fleet, task: str, seconds: float
) -> None:
    runs_once(fleet, task, seconds, lease="15s", sweep="3s", poll="1s", grace="5s", drain="25s")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_worker_without_jobs_whose_loop_is_blocked_is_replaced(fleet: Fleet) -> None:
    supervised = fleet.start()
    (pid,) = supervised.wait_ready()
    job = fleet.tasks.wedge.enqueue()
    assert fleet.ended([job])[0].state is State.SUCCEEDED
    until(lambda: not alive(pid), limit=200, what="the wedged worker is killed")
    assert fleet.ended([fleet.tasks.quick.enqueue()])[0].state is State.SUCCEEDED


@pytest.mark.row("B22")
@pytest.mark.option("task.fence")
@pytest.mark.own_server
def test_a_strict_body_ends_with_its_lease_and_is_handed_back(fleet: Fleet, tmp_path: Path, outside: Outside) -> None:
    """The store is away for longer than the lease and the body holds the GIL: the supervisor must end it."""
    fleet.start().wait_ready()
    gate = tmp_path / "gate"
    job = fleet.tasks.strict.enqueue(str(gate))
    (first,) = fleet.started(job)
    with outside.hold():
        until(lambda: not alive(first.pid), what="the fenced worker is killed")
    gate.touch()
    (info,) = fleet.ended([job])
    assert info.state is State.SUCCEEDED
    assert (info.attempt, info.crashes) == (1, 0)
    assert overlaps(fleet.journal()) == []


@pytest.mark.row("B22")
@pytest.mark.own_server
def test_an_ordinary_body_outlives_an_outage(fleet: Fleet, tmp_path: Path, outside: Outside) -> None:
    """No job is rescued, charged or interrupted, and the ack arrives afterwards."""
    first, second = fleet.start(), fleet.start()
    first.wait_ready()
    second.wait_ready()
    gate = tmp_path / "gate"
    jobs = [fleet.tasks.wait_for.enqueue(str(gate)) for _ in range(8)]
    fleet.started(*jobs)
    with outside.hold():
        gate.touch()
        until(lambda: len(fleet.journal(word="END")) == 8, what="the bodies end during the outage")
        wait_out_a_lease(fleet)
    infos = fleet.ended(jobs)
    assert {info.state for info in infos} == {State.SUCCEEDED}
    assert [info.attempts for info in infos] == [()] * 8
    assert len(fleet.journal(word="START")) == 8


def wait_out_a_lease(fleet: Fleet) -> None:
    """Until no worker's lease can be good any more."""
    began, enough = time.monotonic(), 1.5 * patience(3)  # the lease of `short_settings`
    assert not fleet.writable()
    until(lambda: time.monotonic() - began > enough, what="one and a half leases")
