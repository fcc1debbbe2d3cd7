"""Outcomes of a test run, the second run of failed tests, and the verdict over both runs.

A test that fails in the first run and passes in the second run, alone, is flaky. A run is green with at most
`MOST_FLAKY` flaky tests and no test that failed twice.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict

from tools import environment

FLAKY = "passed (flaky)"
PASSED = ("passed", FLAKY)
SEVERITY = ("passed", FLAKY, "missing", "xfailed", "skipped", "failed")
"""Outcomes, best first: the worst outcome of its phases is that of a test, the worst of its tests that of a row."""
MOST_FLAKY = 3
MOST_REPEATED = 30
"""Failed tests above which there is no second run: so many failures have one cause, and the run is red anyway."""
TESTS_FAILED = 1
"""Exit code of pytest when it ran to its end and tests failed. Larger codes: it was interrupted or did not start."""


class Tested(TypedDict):
    """One test: its outcome, and for a failure the first message and the load average at that time."""

    id: str
    rows: list[str]
    store: str
    outcome: str
    message: str
    load: float


class Record(TypedDict):
    """One run of pytest."""

    summary: str
    tests: list[Tested]


class Results(TypedDict):
    """The tests of the last full run that carry a row of the mission."""

    commit: str | None
    tests: list[Tested]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of the first run and the second run together."""

    code: int
    tests: list[Tested]
    flaky: list[Tested]
    first: Record

    @property
    def failed(self) -> list[Tested]:
        """The tests that failed twice, or that failed and had no second run."""
        return [test for test in self.tests if test["outcome"] == "failed"]


def load(path: Path) -> Record:
    """The record that pytest wrote; an empty one when pytest ended before it could write."""
    try:
        record: Record = json.loads(path.read_text())
    except FileNotFoundError:
        return Record(summary="", tests=[])
    return record


def judge(code: int, first: Record, repeat: Callable[[list[str]], Record]) -> Verdict:
    """Run failed tests a second time with ``repeat`` and combine both runs. ``code`` is that of the first run."""
    failed = [test["id"] for test in first["tests"] if test["outcome"] == "failed"]
    again: set[str] = set()
    if code == TESTS_FAILED and 0 < len(failed) <= MOST_REPEATED:
        again = {test["id"] for test in repeat(failed)["tests"] if test["outcome"] == "passed"}
    tests = [Tested(**{**test, "outcome": FLAKY}) if test["id"] in again else test for test in first["tests"]]
    flaky = [test for test in tests if test["outcome"] == FLAKY]
    if code == TESTS_FAILED and len(flaky) == len(failed) and 0 < len(flaky) <= MOST_FLAKY:
        code = 0
    return Verdict(code, tests, flaky, first)


def append_flaky(flaky: Iterable[Tested], path: Path) -> None:
    """One line of JSON for each flaky test."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for test in flaky:
            line = {"test": test["id"], "time": now, "message": test["message"], "load": test["load"]}
            file.write(json.dumps(line) + "\n")


def write_results(tests: Iterable[Tested], path: Path) -> None:
    """Write the file that `./dev mission` reads."""
    results = Results(commit=commit(), tests=[test for test in tests if test["rows"]])
    path.write_text(json.dumps(results, indent=1))


def commit() -> str | None:
    """The commit that is checked out, with `+` behind it when files differ from it; None outside a repository."""
    try:
        head, changes = [
            subprocess.run(
                ["git", *args], cwd=environment.ROOT, capture_output=True, text=True, check=True
            ).stdout.strip()
            for args in (["rev-parse", "HEAD"], ["status", "--porcelain"])
        ]
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if changes else "")


def describe(verdict: Verdict) -> str:
    """The closing lines of `./dev test`. The last line is `N passed, M failed`."""
    lines = []
    for test in verdict.flaky:
        lines += [f"FLAKY  {test['id']}", f"       first failure: {test['message']} (load average {test['load']:g})"]
    for test in verdict.failed:
        lines += [f"FAILED {test['id']}", f"       {test['message']}"]
    if len(verdict.flaky) > MOST_FLAKY:
        lines.append(f"{len(verdict.flaky)} flaky tests: a green run has at most {MOST_FLAKY}")
    if len(verdict.failed) > MOST_REPEATED:
        lines.append(f"more than {MOST_REPEATED} tests failed, so failed tests did not run a second time")
    if verdict.flaky or verdict.failed:
        lines.append(f"===== first run: {verdict.first['summary']} =====")
    passed = sum(test["outcome"] in PASSED for test in verdict.tests)
    lines.append(f"{passed} passed, {len(verdict.failed)} failed")
    return "\n".join(lines)
