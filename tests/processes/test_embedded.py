"""A worker inside another program: its helper keeps the lease and gives back what a dead host held."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mainspring.jobs.outcomes import Outcome
from mainspring.states import State
from tests.processes.fleet import ROOT, Fleet, descendants_of, kill, overlaps
from tests.processes.playground import JOURNAL
from tests.timing import patience, short_settings

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def host(fleet: Fleet) -> Iterator[Start]:
    """Starts a program with a worker inside; the worker claims when this returns."""
    started: list[subprocess.Popen[str]] = []

    def start(**options: Any) -> subprocess.Popen[str]:
        program = subprocess.Popen(
            [sys.executable, "-m", "tests.processes.hosting", json.dumps({**short_settings(), **options})],
            cwd=ROOT,
            env={**os.environ, "MAINSPRING_URL": fleet.url, JOURNAL: str(fleet.journal_path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(program)
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        return program

    yield start
    for program in started:
        for pid in [*descendants_of(program.pid), program.pid]:
            kill(pid, signal.SIGKILL)
        program.communicate()


@pytest.mark.row("W2", "B4")
@pytest.mark.parametrize("task", ["block_loop", "hold_gil"])
def test_a_host_that_holds_the_gil_keeps_its_job(fleet: Fleet, host: Start, task: str) -> None:
    lease = patience(1.5)
    program = host(lease=lease)
    job = getattr(fleet.tasks, task).enqueue(3 * lease)
    fleet.started(job)
    fleet.start(lease=lease).wait_ready()
    (info,) = fleet.ended([job])
    assert info.state is State.SUCCEEDED
    assert info.attempts == ()
    assert [line.word for line in fleet.journal(job)] == ["START", "END"]
    program.communicate("")
    assert program.returncode == 0


@pytest.mark.row("W3", "B4")
def test_a_killed_host_s_jobs_are_given_back_at_once(fleet: Fleet, host: Start, tmp_path: Path) -> None:
    """The lease is far longer than the test."""
    program = host(lease="10m")
    gate = tmp_path / "gate"
    jobs = [fleet.tasks.wait_for.enqueue(str(gate)) for _ in range(5)]
    fleet.started(*jobs)
    kill(program.pid, signal.SIGKILL)
    gate.touch()
    fleet.start(lease="10m")
    infos = fleet.ended(jobs)
    assert {info.state for info in infos} == {State.SUCCEEDED}
    assert {info.attempts[0].outcome for info in infos} == {Outcome.CRASHED}
    assert overlaps(fleet.journal()) == []
