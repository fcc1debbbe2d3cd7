"""Hooks under a supervisor: another worker of the supervisor reports the jobs of a killed worker."""

from __future__ import annotations

import json
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mainspring.jobs.job import Job
from mainspring.states import Reason, State
from tests.processes.fleet import Fleet, kill, until

APP = """
import ctypes, json, os, signal, time
from mainspring import AsyncContext, Event, Mainspring
from tests.processes.playground import gate, is_first, note

app = Mainspring(os.environ["MAINSPRING_URL"], version="7")
HEARD = {heard!r}

@app.on("started", "succeeded", "failed", "retrying", "dead", "cancelled", "stalled")
def hear(event: Event) -> None:
    line = {{"name": event.name, "job": str(event.job), "reason": event.reason, "state": event.state,
            "attempt": event.attempt, "pid": os.getpid(), "worker": event.worker,
            "error": event.error and event.error.type, "code": event.error and event.error.code}}
    fd = os.open(HEARD, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, json.dumps(line).encode() + b"\\n")
    os.close(fd)

@app.task(name="news.poison", crashes=1)
async def poison(ctx: AsyncContext, path: str) -> None:
    note("START", ctx)
    os.kill(os.getpid(), signal.SIGKILL)

@app.task(name="wait")
async def wait(path: str) -> int:
    await gate(path)
    return os.getpid()

@app.task(name="begun", ack="early")
async def begun(path: str) -> None:
    open(path + ".begun", "w").close()
    await gate(path)

@app.task(name="holds", retries=0, timeout="500ms")
def holds() -> None:
    ctypes.PyDLL(None).usleep(600_000_000)
"""


@pytest.fixture
def target(tmp_path: Path) -> str:
    path = tmp_path / "hooked_app.py"
    path.write_text(APP.format(heard=str(tmp_path / "heard")))
    return f"{path}:app"


@pytest.fixture
def heard(tmp_path: Path) -> Callable[[Job[Any]], list[dict[str, Any]]]:
    def read(job: Job[Any]) -> list[dict[str, Any]]:
        path = tmp_path / "heard"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if line["job"] == str(job.id)]

    return read


Heard = Callable[[Job[Any]], list[dict[str, Any]]]


def enqueue(fleet: Fleet, name: str, path: str, **options: Any) -> Job[Any]:
    """A job of a task that the producer knows no more of than its name and these options."""

    @fleet.tasks.app.task(name=name, **options)
    async def task(path: str) -> None: ...

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it can run elsewhere, for there is a task of that name
        job: Job[Any] = task.enqueue(path)
        return job


def names(lines: list[dict[str, Any]]) -> list[str]:
    return [line["name"] for line in lines]


@pytest.mark.row("W12", "R6")
def test_hooks_get_one_dead_event_for_a_job_that_killed_its_worker(fleet: Fleet, target: str, heard: Heard) -> None:
    supervised = fleet.start(target=target)
    (first,) = supervised.wait_ready()
    job = enqueue(fleet, "news.poison", str(fleet.folder), crashes=1)
    (info,) = fleet.ended([job])
    assert (info.state, info.reason) == (State.DEAD, Reason.CRASHED)
    until(lambda: "dead" in names(heard(job)), what="the hook was told")
    stalled, dead = [line for line in heard(job) if line["name"] != "started"]
    assert (stalled["name"], dead["name"]) == ("stalled", "dead")
    assert (dead["reason"], dead["attempt"]) == ("crashed", 1)
    assert dead["worker"] == info.attempts[0].worker
    assert dead["pid"] != first
    assert dead["pid"] in supervised.worker_pids()
    marker = fleet.tasks.app.call("wait", str(fleet.folder)).enqueue()
    fleet.ended([marker])
    until(lambda: "succeeded" in names(heard(marker)), what="later events were told")
    assert names(heard(job)).count("dead") == 1


@pytest.mark.row("W12", "R6")
def test_a_sibling_reports_the_jobs_of_a_killed_worker(fleet: Fleet, target: str, heard: Heard, tmp_path: Path) -> None:
    supervised = fleet.start(2, target=target, async_slots=1, thread_slots=0)
    supervised.wait_ready(2)
    gate = str(tmp_path / "gate")
    late, early = fleet.tasks.app.call("wait", gate).enqueue(), enqueue(fleet, "begun", gate, ack="early")
    until(lambda: heard(late) and heard(early) and Path(gate + ".begun").exists(), what="both run")
    kill(heard(late)[0]["pid"], signal.SIGKILL)
    until(lambda: "stalled" in names(heard(late)), what="the other one tells of it")
    kill(heard(early)[0]["pid"], signal.SIGKILL)
    (info,) = fleet.ended([early])
    assert (info.state, info.reason) == (State.DEAD, Reason.CRASHED)
    Path(gate).touch()
    fleet.ended([late])
    until(lambda: "dead" in names(heard(early)) and "succeeded" in names(heard(late)), what="hooks were told")
    assert names(heard(early)) == ["started", "stalled", "dead"]
    assert sorted(names(heard(late))) == ["stalled", "started", "started", "succeeded"]
    assert next(line for line in heard(late) if line["name"] == "stalled")["state"] == "ready"


@pytest.mark.row("W12", "R6")
def test_a_time_limit_that_the_supervisor_enforced_is_reported_as_failed(
    fleet: Fleet, target: str, heard: Heard
) -> None:
    """The body kept the GIL, so the whole worker was killed for it."""
    fleet.start(target=target).wait_ready()
    job = fleet.tasks.app.call("holds").enqueue()
    (info,) = fleet.ended([job])
    assert (info.state, info.reason) == (State.DEAD, Reason.TIMED_OUT)
    until(lambda: "dead" in names(heard(job)), what="the hook was told")
    told = [line for line in heard(job) if line["name"] != "started"]
    assert names(told) == ["failed", "dead"]
    assert {(line["error"], line["code"]) for line in told} == {("mainspring.errors.HardTimeout", "7")}
