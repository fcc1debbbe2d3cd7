"""Stopping: drain, hand back at the limit, stop at the second signal, never hang, the right exit code."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from mainspring.states import State
from mainspring.worker.lease.shared_state import Phase
from mainspring.worker.supervise.signals import Exit
from tests.plugins.outside import Outside
from tests.processes.fleet import Fleet, alive, overlaps, phase_of, until


@pytest.mark.row("X1")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_drain_finishes_running_jobs_and_claims_no_more(fleet: Fleet, tmp_path: Path, number: signal.Signals) -> None:
    supervised = fleet.start(async_slots=2, drain="60s")
    (pid,) = supervised.wait_ready()
    gate = tmp_path / "gate"
    running = [fleet.tasks.wait_for.enqueue(str(gate)) for _ in range(2)]
    fleet.started(*running)
    waiting = [fleet.tasks.quick.enqueue() for _ in range(3)]
    supervised.signal(number)
    until(lambda: phase_of(pid) is Phase.DRAINING)
    gate.touch()
    assert supervised.wait() == Exit.CLEAN
    assert not alive(pid)
    assert {job.info().state for job in running} == {State.SUCCEEDED}
    assert fleet.count(State.READY) == 3
    assert fleet.journal(*waiting) == []
    assert fleet.workers() == []


@pytest.mark.row("X2")
def test_at_the_limit_jobs_are_handed_back_without_a_crash(fleet: Fleet, tmp_path: Path) -> None:
    supervised = fleet.start(drain="500ms")
    supervised.wait_ready()
    gate = tmp_path / "gate"
    jobs = [fleet.tasks.wait_for.enqueue(str(gate)) for _ in range(3)]
    fleet.started(*jobs)
    supervised.signal(signal.SIGTERM)
    assert supervised.wait() == Exit.HANDED_BACK
    infos = [job.info() for job in jobs]
    assert {(info.state, info.attempt, info.crashes) for info in infos} == {(State.READY, 0, 0)}
    gate.touch()
    fleet.start()
    assert {info.state for info in fleet.ended(jobs)} == {State.SUCCEEDED}
    assert overlaps(fleet.journal()) == []


@pytest.mark.row("X3")
def test_the_second_signal_stops_at_once_and_hands_jobs_back(fleet: Fleet, tmp_path: Path) -> None:
    supervised = fleet.start(drain="10m")
    (pid,) = supervised.wait_ready()
    jobs = [fleet.tasks.wait_for.enqueue(str(tmp_path / "never")) for _ in range(3)]
    fleet.started(*jobs)
    supervised.signal(signal.SIGTERM)
    supervised.signal(signal.SIGINT)
    assert supervised.wait() == Exit.STOPPED
    assert not alive(pid)
    assert {(info.state, info.attempt) for info in (job.info() for job in jobs)} == {(State.READY, 0)}


@pytest.mark.row("X3")
@pytest.mark.parametrize("task", ["doze", "block_loop", "hold_gil"])
def test_a_body_that_does_not_end_cannot_delay_the_exit(fleet: Fleet, task: str) -> None:
    supervised = fleet.start(drain="500ms", grace="500ms")
    (pid,) = supervised.wait_ready()
    job = getattr(fleet.tasks, task).enqueue(600.0)
    fleet.started(job)
    supervised.signal(signal.SIGTERM)
    assert supervised.wait() in (Exit.HANDED_BACK, Exit.KILLED)
    assert not alive(pid)
    info = job.info()
    assert (info.state, info.attempt, info.crashes) == (State.READY, 0, 0)


@pytest.mark.row("X3")
@pytest.mark.own_server
def test_a_store_that_is_away_cannot_delay_the_exit(fleet: Fleet, tmp_path: Path, outside: Outside) -> None:
    supervised = fleet.start(drain="500ms", grace="500ms")
    (pid,) = supervised.wait_ready()
    gate = tmp_path / "gate"
    jobs = [fleet.tasks.wait_for.enqueue(str(gate)) for _ in range(3)]
    fleet.started(*jobs)
    with outside.hold():
        supervised.signal(signal.SIGTERM)
        supervised.wait()
        assert not alive(pid)
    gate.touch()
    fleet.start()
    assert {info.state for info in fleet.ended(jobs)} == {State.SUCCEEDED}
    assert overlaps(fleet.journal()) == []


@pytest.mark.stores("sqlite")
def test_a_signal_to_a_worker_alone_replaces_it(fleet: Fleet) -> None:
    """Operators restart workers one by one in this way."""
    supervised = fleet.start()
    (pid,) = supervised.wait_ready()
    os.kill(pid, signal.SIGTERM)
    until(lambda: not alive(pid))
    assert supervised.wait_ready() != [pid]
    assert fleet.ended([fleet.tasks.quick.enqueue()])[0].state is State.SUCCEEDED


@pytest.mark.stores("sqlite")
def test_sigquit_prints_stacks_and_ends_nothing(fleet: Fleet, capfd: pytest.CaptureFixture[str]) -> None:
    supervised = fleet.start()
    (pid,) = supervised.wait_ready()
    job = fleet.tasks.block_loop.enqueue(2.0)
    fleet.started(job)
    supervised.signal(signal.SIGQUIT)
    shown = ""

    def dumped() -> bool:
        nonlocal shown
        shown += capfd.readouterr().err
        return "in block_loop" in shown

    until(dumped, what="the stack of the blocking job")
    assert fleet.ended([job])[0].state is State.SUCCEEDED
    assert alive(pid)


@pytest.mark.row("X5")
def test_a_rolling_restart_of_three_processes_under_load(fleet: Fleet) -> None:
    running = [fleet.start() for _ in range(3)]
    for supervised in running:
        supervised.wait_ready()
    calls = [fleet.tasks.nap.s(0.05) for _ in range(750)]
    jobs = [*fleet.tasks.app.enqueue_many(calls), *fleet.tasks.app.enqueue_many(calls)]
    for supervised in running:
        fleet.start().wait_ready()
        supervised.signal(signal.SIGTERM)
        assert supervised.wait() == Exit.CLEAN
        jobs += fleet.tasks.app.enqueue_many([fleet.tasks.nap.s(0.05) for _ in range(500)])
    until(lambda: fleet.count(State.SUCCEEDED) == len(jobs), what="every job succeeded")
    begun = [line.job for line in fleet.journal(word="START")]
    assert len(begun) == len(set(begun)) == len(jobs), "none lost, none doubled"
