"""`./dev test` runs failed tests a second time, alone: what is printed, recorded and returned."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import environment, mission, outcomes, tests

CONFTEST = 'pytest_plugins = ["tests.plugins.mission", "tests.plugins.outcomes"]\n'
MODULE = """
import pytest
from pathlib import Path

def fail_once(name):
    mark = Path(__file__).with_name(name)
    if not mark.exists():
        mark.touch()
        raise ValueError(f"the first run of {name}\\nand more")

@pytest.mark.row("W1")
def test_good():
    pass

@pytest.mark.parametrize("text", ["a b::c", "[x]"])
@pytest.mark.row("W3")
def test_flaky(text):
    fail_once("flaky" + text[1])

@pytest.fixture
def late():
    yield
    fail_once("late")

def test_late(late):
    pass
"""
BAD = "\ndef test_bad():\n    assert 1 == 2\n"


class Project:
    """A folder with tests, and what `./dev test` made of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls: list[list[str]] = []
        self.workers = "0"
        (folder / "conftest.py").write_text(CONFTEST)

    def pytest(self, args: list[str]) -> int:
        """As `tests.pytest`, in the folder."""
        self.calls.append(args)
        env = {**os.environ, "PYTHONPATH": str(environment.ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        options = ["-p", "xdist", "-p", "no:cacheprovider", "-c", os.devnull, "-o", "markers=row"]
        options += ["--rootdir", str(self.folder)]
        chosen = [] if any(arg.startswith("@") for arg in args) else [str(self.folder)]
        args = [self.workers if arg == "6" else arg for arg in args]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *args, *chosen], cwd=self.folder, env=env, check=False
        )
        return done.returncode

    def run(self, module: str) -> int:
        (self.folder / "test_it.py").write_text(module)
        return tests.run_twice([], record=True, run=self.pytest, folder=self.folder / ".dev")

    def flaky(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in (self.folder / ".dev/flaky.jsonl").read_text().splitlines()]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_run_without_failures_is_not_repeated(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    assert project.run("def test_good(): pass") == 0
    assert len(project.calls) == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[-1] == "1 passed, 0 failed"
    assert "1 passed in" in lines[-2]


def test_tests_that_pass_alone_are_flaky_and_the_run_is_green(
    project: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    assert project.run(MODULE) == 0
    first, second = project.calls
    assert first[:2] == ["-n", "6"]
    assert second[:2] == ["-n", "0"]
    said = capfd.readouterr().out
    assert said.splitlines()[-2:] == ["===== first run: 2 failed, 2 passed, 1 error =====", "4 passed, 0 failed"]
    assert said.count("FLAKY  test_it.py::") == 3
    assert "FLAKY  test_it.py::test_late\n       first failure: test_it.py:9: ValueError: the first run of late" in said
    recorded = {line["test"]: line["message"] for line in project.flaky()}
    assert recorded == {
        "test_it.py::test_flaky[a b::c]": "test_it.py:9: ValueError: the first run of flaky",
        "test_it.py::test_flaky[[x]]": "test_it.py:9: ValueError: the first run of flakyx",
        "test_it.py::test_late": "test_it.py:9: ValueError: the first run of late",
    }
    assert all(line.keys() == {"test", "time", "message", "load"} for line in project.flaky())


def test_a_test_that_fails_twice_is_a_failure(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    assert project.run(MODULE + BAD) == 1
    said = capfd.readouterr().out
    assert "FAILED test_it.py::test_bad\n       test_it.py:29: assert 1 == 2" in said
    assert said.splitlines()[-1] == "4 passed, 1 failed"
    assert len(project.flaky()) == 3, "flaky tests of a red run are recorded too"


def test_more_than_three_flaky_tests_are_red(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    more = "\ndef test_fourth(): fail_once('fourth')\n"
    assert project.run(MODULE + more) == 1
    said = capfd.readouterr().out.splitlines()
    assert "4 flaky tests: a green run has at most 3" in said
    assert said[-1] == "5 passed, 0 failed"


def test_the_mission_shows_flaky_tests(project: Project) -> None:
    project.run(MODULE + BAD)
    results = mission.load(project.folder / ".dev/results.json")
    kept = {(row, test["outcome"]) for test in results["tests"] for row in test["rows"]}
    assert kept == {("W1", "passed"), ("W3", "passed (flaky)")}


def test_a_file_that_cannot_be_imported_is_a_failure_without_a_second_run(
    project: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    assert project.run("import nothing_of_this_name") == 2
    assert len(project.calls) == 1
    said = capfd.readouterr().out
    assert "FAILED test_it.py\n       ModuleNotFoundError: No module named 'nothing_of_this_name'" in said
    assert said.splitlines()[-1] == "0 passed, 1 failed"


def test_a_file_that_cannot_be_imported_fails_also_when_xdist_runs_the_other_files(
    project: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    project.workers = "1"
    (project.folder / "test_other.py").write_text("def test_good(): pass")
    assert project.run("import nothing_of_this_name") == 1
    assert capfd.readouterr().out.splitlines()[-1] == "1 passed, 1 failed"


def test_an_xdist_worker_that_crashed_counts_as_a_failure_of_its_test(project: Project) -> None:
    project.workers = "1"
    crash = "    import os; os._exit(3)\n"
    assert project.run(f"from pathlib import Path\ndef test_x():\n    if mark(): return\n{crash}" + MARK) == 0
    (line,) = project.flaky()
    assert "crashed while running" in line["message"]


MARK = """
def mark():
    path = Path(__file__).with_name("mark")
    there = path.exists()
    path.touch()
    return there
"""


def test_very_many_failures_are_not_run_again(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    many = outcomes.MOST_REPEATED + 1
    assert project.run(f"import pytest\n@pytest.mark.parametrize('n', range({many}))\ndef test_x(n): assert False") == 1
    assert len(project.calls) == 1
    said = capfd.readouterr().out.splitlines()
    assert "more than 30 tests failed, so failed tests did not run a second time" in said
    assert said[-1] == f"0 passed, {many} failed"
