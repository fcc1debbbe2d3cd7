"""An ``async def`` body that blocks the event loop harms no other job, and the log says who it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mainspring.jobs.job import Job
from mainspring.jobs.outcomes import Outcome
from mainspring.states import Reason, State
from tests.processes.fleet import Fleet, overlaps, until
from tests.timing import patience


def start(fleet: Fleet, tmp_path: Path, **options: Any) -> Path:
    """A supervisor whose workers log to the returned file."""
    file = tmp_path / "worker.log"
    fleet.start(env={"MAINSPRING_LOG_FILE": str(file), "MAINSPRING_LOG_FORMAT": "text"}, **options)
    return file


@pytest.mark.row("R5", "W2")
def test_neighbours_of_a_body_that_blocks_the_loop_past_its_limit_run_once(fleet: Fleet, tmp_path: Path) -> None:
    """The ends of async and thread bodies are stored while the loop is blocked; only the blocking job is charged."""
    file = start(fleet, tmp_path, drain="30s")
    tasks, limit = fleet.tasks, patience(3.0)
    threads: list[Job[Any]] = [tasks.doze.enqueue(limit / 6 * n) for n in range(1, 4)]
    threads += [tasks.tell.enqueue(n, limit / 3) for n in range(2)]
    fleet.started(*threads)
    blocking_call = tasks.block_loop.s(600.0).options(timeout=limit, retries=0)
    *quick, blocking = tasks.app.enqueue_many([*(tasks.quick.s(n) for n in range(20)), blocking_call])
    neighbours = [*quick, *threads]
    infos = fleet.ended(neighbours)
    assert blocking.info().state is State.RUNNING, "the ends are stored before the worker is killed"
    (guilty,) = fleet.ended([blocking])
    assert (guilty.state, guilty.reason) == (State.DEAD, Reason.TIMED_OUT)
    assert [attempt.outcome for attempt in guilty.attempts] == [Outcome.TIMED_OUT]
    assert guilty.error is not None
    assert "and was ended at playground.py:" in guilty.error.message
    assert " in block_loop" in guilty.error.message
    assert {info.state for info in infos} == {State.SUCCEEDED}
    assert {(info.attempt, info.attempts) for info in infos} == {(1, ())}
    assert all(len(fleet.journal(job, word="START")) == 1 for job in neighbours)
    assert fleet.logs(neighbours[-1]) == ["number 1"]
    lines = file.read_text().splitlines()
    [place] = [n for n, line in enumerate(lines) if "has blocked the event loop for" in line]
    assert f"task 'block_loop' (job {blocking.id})" in lines[place]
    assert any("playground.py:" in line and "time.sleep(seconds)" in line for line in lines[place : place + 6])
    assert any("asyncio.to_thread" in line for line in lines[place : place + 6])


@pytest.mark.row("R5")
def test_a_body_that_waits_on_a_blocked_loop_is_not_charged_for_its_own_limit(fleet: Fleet, tmp_path: Path) -> None:
    tasks, limit = fleet.tasks, patience(4.0)
    gate = tmp_path / "gate"
    waiting = tasks.wait_first.options(timeout=limit / 4, retries=0).enqueue(str(gate))
    blocking = tasks.block_loop.options(timeout=limit, retries=0).enqueue(600.0)
    start(fleet, tmp_path)
    (guilty,) = fleet.ended([blocking])
    assert (guilty.state, guilty.reason) == (State.DEAD, Reason.TIMED_OUT)
    (info,) = fleet.ended([waiting])
    assert (info.state, info.attempt) == (State.SUCCEEDED, 1)
    assert [attempt.outcome for attempt in info.attempts] == [Outcome.INTERRUPTED]
    assert overlaps(fleet.journal()) == []


def test_a_loop_that_was_blocked_for_a_while_goes_on(fleet: Fleet, tmp_path: Path) -> None:
    """Acks that were stored meanwhile are sent again, and nothing else happens."""
    tasks = fleet.tasks
    jobs = [*tasks.app.enqueue_many(tasks.quick.s(n) for n in range(20)), tasks.block_loop.enqueue(patience(4.0))]
    jobs += [tasks.doze.enqueue(0.2), tasks.quick.enqueue(1)]
    file = start(fleet, tmp_path)
    infos = fleet.ended(jobs)
    later = fleet.ended([tasks.quick.enqueue(2)])
    assert {(info.state, info.attempt, info.attempts) for info in (*infos, *later)} == {(State.SUCCEEDED, 1, ())}
    until(lambda: "the event loop runs again" in file.read_text(), what="the end of the incident is logged")
    text = file.read_text()
    assert text.count("has blocked the event loop for") == 1
    assert "too late" not in text
