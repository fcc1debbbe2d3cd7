"""Starting workers: a failed start is reported once, a dead worker is restarted, a finished worker is not."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from mainspring.errors import ConfigError
from mainspring.launch.child import load_target
from mainspring.states import State
from mainspring.worker.supervise.signals import Exit
from tests.processes.fleet import Fleet, alive, kill, until

pytestmark = pytest.mark.stores("sqlite")

BROKEN = """
import a_module_that_does_not_exist
"""
FILE_APP = """
import os
from mainspring import Mainspring

app = Mainspring(os.environ["MAINSPRING_URL"])

@app.task
async def greet() -> str:
    return __name__

if __name__ == "__main__":
    raise SystemExit("a worker must not run this")
"""


def test_an_app_that_cannot_be_imported_is_reported_once(
    fleet: Fleet, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken_app.py"
    path.write_text(BROKEN)
    supervised = fleet.start(2, target=f"{path}:app")
    assert supervised.wait() == Exit.FAILED
    shown = capfd.readouterr().err
    assert shown.count("ModuleNotFoundError: No module named 'a_module_that_does_not_exist'") == 1
    assert "boot.py" not in shown, "our own frames help nobody"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("tests.processes.playground:apq", "did you mean 'app'?"),
        ("tests.processes.playground:JOURNAL", "not an app"),
        ("no/such/file.py", "there is no such file"),
    ],
)
def test_a_wrong_target_is_reported_with_the_reason(target: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        load_target(target)


def test_wrong_options_are_reported_without_a_traceback(fleet: Fleet, capfd: pytest.CaptureFixture[str]) -> None:
    supervised = fleet.start(leese="3s")
    assert supervised.wait() == Exit.FAILED
    shown = capfd.readouterr().err
    assert shown.count("did you mean 'lease'?") == 1
    assert "Traceback" not in shown


def test_a_file_is_imported_under_its_stem(fleet: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "file_app.py"
    path.write_text(FILE_APP)
    fleet.start(target=str(path)).wait_ready()
    job = fleet.tasks.app.call("file_app.greet").enqueue()
    assert job.result(60) == "file_app"


def test_a_worker_that_dies_is_restarted_each_time(fleet: Fleet) -> None:
    supervised = fleet.start()
    seen = []
    for _ in range(3):
        (pid,) = supervised.wait_ready()
        seen.append(pid)
        kill(pid, signal.SIGKILL)
        until(lambda: not alive(seen[-1]) and seen[-1] not in fleet.registered_pids())
    supervised.wait_ready()
    assert len(set(seen)) == 3
    assert fleet.ended([fleet.tasks.quick.enqueue()])[0].state is State.SUCCEEDED


def test_until_empty_ends_when_nothing_is_left(fleet: Fleet) -> None:
    jobs = fleet.tasks.app.enqueue_many([fleet.tasks.nap.s(0.1) for _ in range(50)])
    supervised = fleet.start(2, until_empty=True)
    assert supervised.wait() == Exit.CLEAN
    assert {job.info().state for job in jobs} == {State.SUCCEEDED}


def test_all_processes_run_jobs(fleet: Fleet) -> None:
    supervised = fleet.start(3, async_slots=1)
    pids = supervised.wait_ready(3)
    jobs = fleet.tasks.app.enqueue_many([fleet.tasks.nap.s(0.3) for _ in range(12)])
    fleet.ended(jobs)
    assert {line.pid for line in fleet.journal()} == set(pids)
