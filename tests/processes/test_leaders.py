"""The worker that does the services for the fleet is killed: another worker does them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainspring.states import State
from tests.processes.fleet import Fleet, overlaps


@pytest.mark.row("B4", "W3")
def test_delayed_jobs_and_rescues_go_on_when_the_leader_is_killed(fleet: Fleet, tmp_path: Path) -> None:
    """SIGKILL of the leader and its supervisor at one instant, while it runs jobs and others wait for their moment."""
    leader = fleet.start()
    leader.wait_ready()
    fleet.ended([fleet.tasks.quick.options(delay="300ms").enqueue()])  # the only worker has promoted a job: it leads
    gate = tmp_path / "gate"
    held = [fleet.tasks.wait_for.enqueue(str(gate)) for _ in range(3)]
    fleet.started(*held)
    other = fleet.start()
    other.wait_ready()
    delayed = [fleet.tasks.quick.options(delay=f"{wait}ms").enqueue() for wait in (100, 400, 1500, 4000)]
    leader.kill_whole()
    delayed += [fleet.tasks.quick.options(delay=f"{wait}ms").enqueue() for wait in (50, 900)]
    gate.touch()
    infos = fleet.ended([*delayed, *held])
    assert {info.state for info in infos} == {State.SUCCEEDED}
    assert overlaps(fleet.journal()) == []


def test_each_worker_of_a_chain_of_killed_leaders_is_replaced(fleet: Fleet) -> None:
    for _ in range(3):
        leader = fleet.start()
        leader.wait_ready()
        fleet.ended([fleet.tasks.quick.options(delay="200ms").enqueue()])
        leader.kill_whole()
    fleet.start().wait_ready()
    infos = fleet.ended([fleet.tasks.quick.options(delay="200ms").enqueue()])
    assert {info.state for info in infos} == {State.SUCCEEDED}
