"""kill -9 of a worker, of a supervisor, of both: nothing is lost, nothing overlaps, blame is proven."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.jobs.outcomes import Outcome
from mainspring.states import Reason, State
from tests.processes.fleet import Fleet, alive, kill, overlaps, until


@pytest.mark.row("W3", "B4")
def test_a_killed_worker_s_jobs_run_again_under_its_supervisor(fleet: Fleet, tmp_path: Path) -> None:
    supervised = fleet.start()
    (pid,) = supervised.wait_ready()
    gate = tmp_path / "gate"
    jobs = [fleet.tasks.wait_for.enqueue(str(gate)) for _ in range(20)]
    fleet.started(*jobs)
    kill(pid, signal.SIGKILL)
    again = fleet.started(*jobs[:1], times=2)
    assert not alive(pid)
    gate.touch()
    infos = fleet.ended(jobs)
    assert {info.state for info in infos} == {State.SUCCEEDED}
    assert {info.crashes for info in infos} == {1}
    assert {info.attempt for info in infos} == {1}, "a crash uses none of the retries"
    assert again[0].pid in supervised.worker_pids()
    assert overlaps(fleet.journal()) == []


@pytest.mark.row("W3", "B4")
def test_an_orphaned_worker_hands_back_and_ends(fleet: Fleet, tmp_path: Path) -> None:
    """Its supervisor was killed: the worker stops by itself and charges no job."""
    supervised = fleet.start()
    (pid,) = supervised.wait_ready()
    gate = tmp_path / "gate"
    jobs = [fleet.tasks.wait_for.enqueue(str(gate)) for _ in range(5)]
    fleet.started(*jobs)
    supervised.signal(signal.SIGKILL)
    until(lambda: not alive(pid), what="the worker ends")
    gate.touch()
    fleet.start()
    infos = fleet.ended(jobs)
    assert {info.state for info in infos} == {State.SUCCEEDED}
    assert {info.crashes for info in infos} == {0}
    assert [len(fleet.journal(job, word="START")) for job in jobs] == [2] * 5
    assert overlaps(fleet.journal()) == []


def test_an_orphaned_worker_says_that_another_worker_rescues_a_body_that_does_not_end(
    fleet: Fleet, capfd: pytest.CaptureFixture[str]
) -> None:
    supervised = fleet.start()
    (pid,) = supervised.wait_ready()
    job = fleet.tasks.doze.enqueue(600)
    fleet.started(job)
    supervised.signal(signal.SIGKILL)
    until(lambda: not alive(pid), what="the worker ends")
    said = capfd.readouterr().err
    assert f"job {job.id} (doze) does not end; the supervisor was killed" in said
    assert "the supervisor gives it back" not in said
    assert "stopped fast, running jobs were handed back, except 1 that does not end" in said
    fleet.start()
    fleet.started(job, times=2)


@pytest.mark.row("W3", "B4")
def test_a_witness_on_the_same_host_proves_the_death_of_a_whole_group(fleet: Fleet, tmp_path: Path) -> None:
    """Long before the lease is over: the lease is far longer than the test."""
    doomed = fleet.start(lease="10m")
    doomed.wait_ready()
    gate = tmp_path / "gate"
    jobs = [fleet.tasks.wait_for.enqueue(str(gate)) for _ in range(5)]
    fleet.started(*jobs)
    witness = fleet.start(lease="10m")
    witness.wait_ready()
    doomed.kill_whole()
    gate.touch()
    infos = fleet.ended(jobs)
    assert {info.state for info in infos} == {State.SUCCEEDED}
    assert {info.attempts[0].outcome for info in infos} == {Outcome.CRASHED}
    assert overlaps(fleet.journal()) == []


@pytest.mark.row("W3")
def test_without_a_proof_the_lease_decides(fleet: Fleet, tmp_path: Path) -> None:
    """A witness that cannot see the lock waits for the lease and charges no job."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    doomed = fleet.start(env={"XDG_RUNTIME_DIR": str(elsewhere)})
    doomed.wait_ready()
    gate = tmp_path / "gate"
    jobs = [fleet.tasks.wait_for.enqueue(str(gate)) for _ in range(5)]
    fleet.started(*jobs)
    fleet.start().wait_ready()
    doomed.kill_whole()
    gate.touch()
    infos = fleet.ended(jobs)
    assert {info.state for info in infos} == {State.SUCCEEDED}
    assert {info.crashes for info in infos} == {0}
    assert {info.attempts[0].outcome for info in infos} == {Outcome.LOST}


@pytest.mark.stores("sqlite")
def test_no_descendant_of_a_dead_worker_survives(fleet: Fleet, tmp_path: Path) -> None:
    """Not even a process with its own session. The job runs again only after that process has ended."""
    fleet.start().wait_ready()
    path = tmp_path / "child"
    job = fleet.tasks.leave_child.enqueue(str(path))
    (info,) = fleet.ended([job])
    assert info.state is State.SUCCEEDED
    assert not alive(int(path.read_text()))


@pytest.mark.row("W5")
def test_a_poison_job_dies_alone(fleet: Fleet) -> None:
    fleet.start(async_slots=64).wait_ready()
    with_it = [fleet.tasks.nap.s(0.25) for _ in range(20)]
    *neighbours, poison = fleet.tasks.app.enqueue_many([*with_it, fleet.tasks.poison.s()])
    (dead,) = fleet.ended([poison])
    assert (dead.state, dead.reason, dead.crashes) == (State.DEAD, Reason.CRASHED, 3)
    assert len(fleet.journal(poison, word="START")) == 3
    infos = fleet.ended(neighbours)
    assert {info.state for info in infos} == {State.SUCCEEDED}
    assert max(info.crashes for info in infos) < 3, "nobody else came to a last crash"
    assert {info.attempt for info in infos} == {1}, "nobody's retries were used"
    assert overlaps(fleet.journal()) == []


@pytest.mark.row("W6")
@pytest.mark.option("task.ack")
def test_an_ack_early_job_that_was_killed_is_not_run_again(fleet: Fleet, tmp_path: Path) -> None:
    supervised = fleet.start()
    (pid,) = supervised.wait_ready()
    job = fleet.tasks.early.enqueue(str(tmp_path / "never"))
    fleet.started(job)
    kill(pid, signal.SIGKILL)
    (info,) = fleet.ended([job])
    assert (info.state, info.reason) == (State.DEAD, Reason.CRASHED)
    marker = fleet.tasks.quick.enqueue()  # the queue goes on, and the early job had its chance to run
    fleet.ended([marker])
    assert len(fleet.journal(job, word="START")) == 1


def test_an_ack_early_task_called_by_name_is_not_run_again_after_a_crash(fleet: Fleet, tmp_path: Path) -> None:
    """The store does not know that the task acks early. The supervisor of the worker that ran it does."""
    (pid,) = fleet.start().wait_ready()
    job = Mainspring(fleet.url).call("early", str(tmp_path / "never")).enqueue()
    fleet.started(job)
    kill(pid, signal.SIGKILL)
    (info,) = fleet.ended([job])
    assert (info.state, info.error and info.error.type) == (State.DEAD, "mainspring.errors.WorkerCrashed")
    fleet.ended([fleet.tasks.quick.enqueue()])
    assert len(fleet.journal(job, word="START")) == 1


@pytest.mark.row("W5")
@pytest.mark.parametrize("code", [0, 3])
@pytest.mark.stores("sqlite")
def test_a_job_that_ends_its_process_is_charged_whatever_the_exit_code(fleet: Fleet, code: int) -> None:
    """An exit code proves nothing: only a worker that reported its end has ended in good order."""
    fleet.start().wait_ready()
    (info,) = fleet.ended([fleet.tasks.leave.enqueue(code)])
    assert (info.state, info.reason, info.crashes) == (State.DEAD, Reason.CRASHED, 3)


@pytest.mark.stores("sqlite")
def test_a_leftover_asyncio_task_that_ends_the_loop_charges_its_job(fleet: Fleet) -> None:
    fleet.start().wait_ready()
    (info,) = fleet.ended([fleet.tasks.leak_exit.enqueue()])
    assert (info.state, info.reason, info.crashes) == (State.DEAD, Reason.CRASHED, 3)


@pytest.mark.row("W3", "B4")
def test_a_dead_workers_jobs_run_again_side_by_side(fleet: Fleet, tmp_path: Path) -> None:
    """They all start again while the gate of the test is still closed, so none waits for another to end."""
    gate = str(tmp_path / "gate")
    supervised = fleet.start()
    (pid,) = supervised.wait_ready()
    jobs = [fleet.tasks.wait_for.enqueue(gate) for _ in range(12)]
    fleet.started(*jobs)
    kill(pid, signal.SIGKILL)
    fleet.started(*jobs, times=2)
    Path(gate).touch()
    assert {info.state for info in fleet.ended(jobs)} == {State.SUCCEEDED}


@pytest.mark.stores("sqlite")
def test_a_signal_to_the_child_process_of_a_job_does_not_reach_the_worker(fleet: Fleet, tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    fleet.start().wait_ready()
    neighbour = fleet.tasks.wait_for.enqueue(gate)
    fleet.started(neighbour)
    assert fleet.tasks.end_child.enqueue().result(timeout=60) == -signal.SIGTERM
    Path(gate).touch()
    (info,) = fleet.ended([neighbour])
    assert (info.state, info.attempts) == (State.SUCCEEDED, ())


@pytest.mark.stores("sqlite")
def test_a_time_limit_leaves_no_lock_of_the_process_locked(fleet: Fleet) -> None:
    """An exception raised inside logging would leave the lock of logging held, and every other thread that logs
    would block.
    """
    supervised = fleet.start(thread_slots=4)
    (pid,) = supervised.wait_ready()
    infos = fleet.ended([fleet.tasks.chatter.enqueue() for _ in range(24)])
    assert {info.reason for info in infos} == {Reason.TIMED_OUT}
    assert {line.pid for line in fleet.journal()} == {pid}, "the worker was never replaced"
