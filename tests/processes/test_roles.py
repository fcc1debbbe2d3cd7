"""C2: roles. Each process opens and does only what its role needs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mainspring.jobs.outcomes import Outcome
from mainspring.states import State
from tests.processes.fleet import ROOT, Fleet, alive, children_of, until

APP = """
import os
from pathlib import Path
from mainspring import Mainspring
from tests.processes.playground import gate

app = Mainspring(os.environ["MAINSPRING_URL"], {settings})

@app.lifespan
def life():
    with Path({lived!r}).open("a") as file:
        file.write(f"{{os.getpid()}}\\n")
    yield

@app.task(name="roles.work")
async def work() -> int:
    return os.getpid()

@app.task(name="roles.wait")
async def wait(path: str) -> int:
    await gate(path)
    return os.getpid()
"""

pytestmark = pytest.mark.row("C2")


class Place:
    """An app in a file, and the processes whose lifespans ran."""

    def __init__(self, folder: Path, settings: str = "") -> None:
        self._lived = folder / "lived"
        path = folder / "roles_app.py"
        path.write_text(APP.format(lived=str(self._lived), settings=settings))
        self.target = f"{path}:app"

    def lived(self) -> list[int]:
        return [int(pid) for pid in self._lived.read_text().split()] if self._lived.exists() else []


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def said(fleet: Fleet, pid: int) -> dict[str, Any]:
    """What a worker says of itself."""
    (row,) = [row for row in fleet.workers() if json.loads(row.info)["pid"] == pid]
    return {"queues": row.queues, "tasks": row.tasks, **json.loads(row.info)}


def test_a_scheduler_has_no_slots_no_queues_and_no_lifespans(fleet: Fleet, place: Place) -> None:
    job = fleet.tasks.app.call("roles.work").enqueue()
    later = fleet.tasks.app.call("roles.work").options(delay="300ms").enqueue()
    (scheduler,) = fleet.start(target=place.target, roles="scheduler").wait_ready()
    until(lambda: later.info().state is State.READY, what="the scheduler promotes what is due")
    introduced = said(fleet, scheduler)
    assert (introduced["queues"], introduced["tasks"]) == ((), ())
    assert (introduced["async_slots"], introduced["thread_slots"]) == (0, 0)
    assert introduced["roles"] == ["scheduler"]
    assert job.info().state is State.READY, "it was there before the scheduler"
    assert place.lived() == []
    (worker,) = fleet.start(target=place.target, roles=["worker"]).wait_ready()
    assert {job.result(60), later.result(60)} == {worker}
    assert place.lived() == [worker]
    assert said(fleet, worker)["roles"] == ["worker"]


def test_a_scheduler_rescues_the_jobs_of_a_lost_worker(fleet: Fleet, place: Place, tmp_path: Path) -> None:
    doomed = fleet.start(target=place.target, roles="worker")
    doomed.wait_ready()
    job = fleet.tasks.app.call("roles.wait", str(tmp_path / "gate")).enqueue()
    until(lambda: job.info().state is State.RUNNING, what="it runs")
    fleet.start(target=place.target, roles="scheduler").wait_ready()
    doomed.kill_whole()
    until(lambda: job.info().state is State.READY, what="it was taken back")
    assert job.info().attempts[0].outcome in (Outcome.CRASHED, Outcome.LOST)


def test_a_scheduler_prunes_and_a_worker_does_not(fleet: Fleet, tmp_path: Path) -> None:
    place = Place(tmp_path, 'keep="1ms"')
    job = fleet.tasks.app.call("roles.work").enqueue()
    fleet.start(target=place.target, roles="worker", until_empty=True).wait()
    assert job.info().state is State.SUCCEEDED
    worker = fleet.start(target=place.target, roles="worker")
    worker.wait_ready()
    for _ in range(2):  # its services have had their first turn
        fleet.ended([fleet.tasks.app.call("roles.work").options(delay="50ms").enqueue()])
    assert job.info().state is State.SUCCEEDED
    fleet.start(target=place.target, roles="scheduler").wait_ready()
    until(lambda: fleet.count(State.SUCCEEDED) == 0, what="all of them are deleted")


def test_role_all_is_worker_and_scheduler(fleet: Fleet, place: Place) -> None:
    (pid,) = fleet.start(target=place.target, roles="all").wait_ready()
    assert {"scheduler", "worker"} <= set(said(fleet, pid)["roles"])
    job = fleet.tasks.app.call("roles.work").options(delay="100ms").enqueue()
    assert job.result(60) == pid
    assert place.lived() == [pid]


def test_a_scheduler_ends_in_good_order(fleet: Fleet, place: Place) -> None:
    scheduler = fleet.start(target=place.target, roles="scheduler")
    (pid,) = scheduler.wait_ready()
    scheduler.signal(signal.SIGTERM)
    assert scheduler.wait() == 0
    assert not alive(pid)
    assert fleet.workers() == []


API = """
import os, sys, threading
from mainspring import Mainspring
from mainspring.errors import InvalidOption

app = Mainspring(os.environ["MAINSPRING_URL"], roles="api")

@app.task(name="roles.work")
async def work() -> int: ...

before = threading.active_count()
job = work.enqueue()
app.call("roles.work").enqueue()
print("threads", threading.active_count() - before)
print("loop", "mainspring.worker.worker" in sys.modules)
for start in (app.worker, app.run):
    try:
        start()
    except InvalidOption as error:
        print("refused", "roles" in str(error))
print("threads", threading.active_count() - before)
print("more", sys.stdin.read())
"""


def test_an_api_process_enqueues_without_threads_and_refuses_workers(fleet: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "api_app.py"
    path.write_text(API)
    program = subprocess.Popen(
        [sys.executable, "-u", str(path)], cwd=ROOT, env={**os.environ, "MAINSPRING_URL": fleet.url},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert program.stdout is not None
    lines = [program.stdout.readline().strip() for _ in range(5)]
    assert lines == ["threads 0", "loop False", "refused True", "refused True", "threads 0"]
    assert children_of(program.pid) == []
    program.communicate("", timeout=60)
    assert fleet.count(State.READY) == 2
