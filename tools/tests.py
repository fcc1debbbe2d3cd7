"""`./dev test`: the checks, then pytest; failed tests run a second time, alone. See `tools/outcomes.py`.

A full run leaves its results for `./dev mission`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from tools import checks, environment, outcomes

RESULTS = environment.DEV / "results.json"
FLAKY = "flaky.jsonl"
SERVERS = environment.DEV / "servers"
PARALLEL = ["-n", "6", "--dist", "worksteal"]  # most tests wait for processes more than they compute
ALONE = ["-n", "0"]
FAST = ["tests/unit", "tests/contract", "tests/rows/test_typing.py", "--store", "sqlite", "--store", "any"]
CACHED = {"PYTHONDONTWRITEBYTECODE": ""}  # thousands of processes are started: none shall compile the sources anew


def command(args: list[str]) -> int:
    """All checks and all tests; with a selection only the selected tests; with --fast the checks and quick tests."""
    if "--fast" in args:
        return checks.statics() or run_twice([*FAST, *(arg for arg in args if arg != "--fast")])
    if is_selection(args):
        return pytest([*PARALLEL, *args])
    return checks.statics() or run_twice(args, record=True)


def is_selection(args: list[str]) -> bool:
    """Whether these arguments choose tests, so that the run says nothing about the whole."""
    return any(
        arg.startswith(("-k", "-m", "--store", "--lf", "--last-failed")) or not arg.startswith("-") for arg in args
    )


def pytest(args: list[str]) -> int:
    """Run pytest; however it ends, no server stays."""
    python = environment.python()
    SERVERS.mkdir(parents=True, exist_ok=True)
    os.environ["MAINSPRING_TEST_DIR"] = str(SERVERS)
    try:
        return environment.run([python, "-m", "pytest", *args], **CACHED)
    finally:
        subprocess.run([python, "-m", "mainspring.testing.servers"], cwd=environment.ROOT, check=False)


def run_twice(
    args: list[str], *, record: bool = False, run: Callable[[list[str]], int] = pytest, folder: Path = environment.DEV
) -> int:
    """Run the tests, then run failed tests a second time, alone; print the verdict and return the exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    first, second = folder / "outcomes-first.json", folder / "outcomes-second.json"
    for file in (first, second):
        file.unlink(missing_ok=True)

    def repeat(failed: list[str]) -> outcomes.Record:
        print(f"\nsecond run of {len(failed)} failed tests, one at a time", flush=True)
        names = folder / "outcomes-failed.txt"  # a file, because a command line has a limit
        names.write_text("\n".join(failed) + "\n")
        run([*ALONE, "--quiet", "--tb=short", f"--outcomes={second}", f"@{names}"])
        return outcomes.load(second)

    code = run([*PARALLEL, f"--outcomes={first}", *args])
    verdict = outcomes.judge(code, outcomes.load(first), repeat)
    outcomes.append_flaky(verdict.flaky, folder / FLAKY)
    if record and verdict.tests:
        outcomes.write_results(verdict.tests, folder / RESULTS.name)
    print(outcomes.describe(verdict), flush=True)
    return verdict.code
