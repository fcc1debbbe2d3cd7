"""mainspring dev: workers that start anew when their code changes."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.stores.connect import sqlite_path
from tests.cli.conftest import LIMIT, Shop
from tests.cli.watching import Running

pytestmark = pytest.mark.stores("sqlite")

CODE = """
import time
from helper import NUMBER
from mainspring import Mainspring

app = Mainspring(lease="3s", sweep="500ms", poll="100ms", grace="1s")

@app.task(name="number")
def number() -> int:
    return NUMBER

@app.task(name="nap")
def nap(seconds: float) -> int:
    time.sleep(seconds)
    return NUMBER

@app.task(name="wait_for_change")
def wait_for_change() -> int:
    while NUMBER == 1:
        time.sleep(0.05)
    return NUMBER
"""


@pytest.fixture
def project(shop: Shop) -> Shop:
    (shop.folder / "app.py").write_text(CODE)
    say(shop, 1)
    return shop


def say(shop: Shop, number: int) -> None:
    (shop.folder / "helper.py").write_text(f"NUMBER = {number}\n" + "# so that it grows\n" * number)


def answer(shop: Shop) -> int:
    app = Mainspring(shop.url)
    try:
        value: int = app.call("number").enqueue().result(timeout=LIMIT)
    finally:
        app.close()
    return value


@pytest.mark.option("cli.dev.target")
def test_a_change_in_any_module_of_the_app_restarts_the_workers(project: Shop) -> None:
    with Running(project, "dev", "app.py") as dev:
        dev.says("serving")
        assert answer(project) == 1
        say(project, 2)
        dev.says("helper.py changed")
        dev.says("serving", 2)
        assert answer(project) == 2
        assert dev.end() == 0


def test_running_jobs_can_finish_before_the_new_code_starts(project: Shop) -> None:
    app = Mainspring(project.url)
    with Running(project, "dev", "app.py") as dev:
        dev.says("serving")
        job = app.call("nap", 1.5).enqueue()
        next(info for info in job.watch(timeout=LIMIT) if info.state == "running")
        say(project, 2)
        dev.says("serving", 2)
        assert job.result(timeout=LIMIT) == 1
        assert job.info().attempt == 1
    app.close()


@pytest.mark.option("cli.dev.drain")
def test_a_job_that_does_not_finish_in_time_runs_again_with_the_new_code(project: Shop) -> None:
    app = Mainspring(project.url)
    with Running(project, "dev", "app.py", "--drain", "100ms") as dev:
        dev.says("serving")
        job = app.call("wait_for_change").enqueue()
        next(info for info in job.watch(timeout=LIMIT) if info.state == "running")
        say(project, 2)
        dev.says("serving", 2)
        assert job.result(timeout=LIMIT) == 2
    app.close()


def test_an_import_error_keeps_the_old_workers_and_is_printed(project: Shop) -> None:
    with Running(project, "dev", "app.py") as dev:
        assert answer(project) == 1, "the workers have read the good code"
        (project.folder / "helper.py").write_text("NUMBER = 1 / 0\n")
        dev.says("the old code keeps running")
        dev.says("ZeroDivisionError: division by zero")
        assert 'helper.py", line 1' in dev.text
        assert answer(project) == 1
        say(project, 3)
        dev.says("serving", 2)
        assert answer(project) == 3


def test_code_that_is_broken_at_the_start_is_awaited(project: Shop) -> None:
    (project.folder / "helper.py").unlink()
    with Running(project, "dev", "app.py") as dev:
        dev.says("nothing runs until the code is fixed")
        dev.says("No module named 'helper'")
        (project.folder / "app.py").write_text("NUMBER = (\n")
        dev.says("'(' was never closed")
        say(project, 4)
        (project.folder / "app.py").write_text(CODE)
        dev.says("serving")
        assert answer(project) == 4


def test_the_workers_end_with_the_dev_command(project: Shop) -> None:
    """Also when the command is killed."""
    app = Mainspring(project.url)
    with Running(project, "dev", "app.py") as dev:
        dev.says("serving")
        assert answer(project) == 1
        assert len(app.workers.list()) == 1
        dev.end(signal.SIGKILL)
    job = app.call("number").enqueue()
    while app.workers.list():
        pass
    assert job.info().state in ("ready", "succeeded")
    app.close()


@pytest.mark.option("cli.dev.burst")
@pytest.mark.parametrize("flag", ["--burst", "--until-empty"])
def test_workers_that_ended_by_themselves_are_reported(project: Shop, flag: str) -> None:
    """``says`` fails if the line is not printed within its time limit."""
    with Running(project, "dev", "app.py", flag) as dev:
        dev.says("the workers ended with exit code 0; waiting for a change")
        say(project, 2)
        dev.says("the workers ended with exit code 0; waiting for a change", 2)


PROBE = """
import json, logging
from pathlib import Path
from mainspring import Mainspring

class Probe(Mainspring):
    def parts(self, **given):
        Path("told.json").write_text(json.dumps(given))
        return super().parts(**given)

app = Probe()

@app.task(name="log")
def log() -> None:
    logging.getLogger("mainspring.probe").debug("the level is debug")
"""
FLAGS = {
    "queues": "a,b", "processes": 1, "async_slots": 3, "thread_slots": 4, "process_slots": 1,
    "concurrency": {"a": 2}, "lease": "4s", "drain": "6s", "until_empty": True,
    "poll": "200ms", "sweep": "300ms", "grace": "2s", "roles": "worker",
    "labels": "gpu,big",
}  # fmt: skip
WORDS = [
    "-Q", "a,b", "-p", "1", "--async-slots", "3", "-t", "4", "--process-slots", "1",
    "--concurrency", "a=2", "--lease", "4s", "--drain", "6s",
    "--until-empty", "--poll", "200ms", "--sweep", "300ms", "--grace", "2s", "--roles", "worker",
    "--labels", "gpu,big",
]  # fmt: skip


@pytest.fixture
def probe(shop: Shop) -> Shop:
    (shop.folder / "app.py").unlink()
    (shop.folder / "probe.py").write_text(PROBE)
    return shop


@pytest.mark.row("C2")
@pytest.mark.option("cli.worker.target", "cli.worker.queues", "cli.worker.processes", "cli.worker.async_slots")
@pytest.mark.option("cli.worker.thread_slots", "cli.worker.concurrency", "cli.worker.lease", "cli.worker.drain")
@pytest.mark.option("cli.worker.until_empty", "cli.worker.poll", "cli.worker.sweep", "cli.worker.grace")
@pytest.mark.option("cli.worker.roles", "cli.worker.labels", "cli.worker.process_slots")
def test_flags_of_worker_reach_the_app(probe: Shop) -> None:
    ran = probe.call("worker", "probe.py", *WORDS)
    assert ran.code == 0, ran.err
    assert json.loads((probe.folder / "told.json").read_text()) == FLAGS


@pytest.mark.option("cli.worker.concurrency")
def test_a_number_is_the_concurrency_of_all_queues(probe: Shop) -> None:
    words = [word for word in WORDS if word not in ("--concurrency", "a=2")]
    for flag in ("--concurrency", "-c"):
        (probe.folder / "told.json").unlink(missing_ok=True)
        ran = probe.call("worker", "probe.py", *words, flag, "4")
        assert ran.code == 0, ran.err
        assert json.loads((probe.folder / "told.json").read_text()) == {**FLAGS, "concurrency": 4}
    ran = probe.call("worker", "probe.py", *words, "--concurrency", "4", "--concurrency", "a=2")
    assert ran.code == 2
    assert "concurrency='4': is not QUEUE=N" in ran.err
    assert "--concurrency 4 for all jobs, or --concurrency email=5" in ran.err


@pytest.mark.option("cli.dev.queues", "cli.dev.processes", "cli.dev.async_slots", "cli.dev.thread_slots")
@pytest.mark.option("cli.dev.concurrency", "cli.dev.lease", "cli.dev.until_empty", "cli.dev.poll", "cli.dev.sweep")
@pytest.mark.option("cli.dev.grace", "cli.dev.roles", "cli.dev.labels", "cli.dev.app", "cli.dev.log_level")
@pytest.mark.option("cli.dev.process_slots")
def test_flags_of_dev_reach_the_app(probe: Shop) -> None:
    """The log is that of the worker, not that of the import check before it."""
    app = Mainspring(probe.url)
    app.call("log").options(queue="a").enqueue()
    with Running(probe, "dev", "-A", "probe.py", "-l", "debug", *WORDS) as dev:
        dev.says("the level is debug")
        dev.says("the workers ended with exit code 0")
    assert json.loads((probe.folder / "told.json").read_text()) == FLAGS
    app.close()


@pytest.mark.option("cli.worker.app", "cli.worker.log_level")
def test_the_log_level_flag_reaches_the_workers(probe: Shop) -> None:
    app = Mainspring(probe.url)
    app.call("log").enqueue()
    quiet = probe.call("worker", "-A", "probe.py", "--until-empty")
    app.call("log").enqueue()
    loud = probe.call("worker", "-A", "probe.py", "--until-empty", "-l", "debug")
    assert ("the level is debug" in quiet.err, "the level is debug" in loud.err) == (False, True)
    app.close()


@pytest.mark.row("C4")
def test_worker_and_dev_find_the_app_of_the_project(probe: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a folder below the project. The modules of the project can be imported."""
    (probe.folder / "mainspring.toml").write_text('app = "probe:app"\n')
    below = probe.folder / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    ran = Shop(below, probe.url).call("worker", "--until-empty")
    assert ran.code == 0, ran.err
    assert Path(below / "told.json").is_file()


# ---- .gitignore --------------------------------------------------------------------------------------

ADD = "add this line to .gitignore, for the files of the SQLite store: "


def git(project: Shop, ignored: str | None) -> Path:
    """A repository around the project and its store; returns its .gitignore."""
    root = Path(sqlite_path(project.url)).parent
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    if ignored is not None:
        (root / ".gitignore").write_text(ignored)
    return root / ".gitignore"


@pytest.mark.parametrize("ignored", ["", "*.db\n", "*.db\n*.db-wal\n*.db-shm\n"])
def test_dev_says_once_what_gitignore_lacks_and_changes_nothing(project: Shop, ignored: str) -> None:
    file = git(project, ignored)
    name = Path(sqlite_path(project.url)).name
    with Running(project, "dev", "app.py") as dev:
        dev.says(f"{ADD}{name}*")
        dev.says("started: store")
        say(project, 2)
        dev.says("started: store", 2)
        assert dev.end() == 0
    assert dev.text.count(ADD) == 1
    assert file.read_text() == ignored


@pytest.mark.parametrize("ignored", [None, "*.db*\n", "/{name}*\n"])
def test_dev_is_silent_where_gitignore_lacks_nothing(project: Shop, ignored: str | None) -> None:
    git(project, None if ignored is None else ignored.format(name=Path(sqlite_path(project.url)).name))
    with Running(project, "dev", "app.py") as dev:
        dev.says("started: store")
        assert dev.end() == 0
    assert ADD not in dev.text
