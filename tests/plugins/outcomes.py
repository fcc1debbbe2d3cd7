"""Pytest plugin: `--outcomes FILE` writes the outcome of every test to FILE, as JSON. `./dev test` reads the file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tools import outcomes


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", metavar="FILE", help="write the outcome of every test to FILE, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    target = config.getoption("--outcomes")
    if target and not hasattr(config, "workerinput"):  # reports of all xdist workers arrive in the first process
        config.pluginmanager.register(Recorder(config, Path(target)), "outcomes-recorder")


class Recorder:
    """Keeps the worst outcome of the three phases of every test, and the message of the first failure."""

    def __init__(self, config: pytest.Config, target: Path) -> None:
        self.config = config
        self.target = target
        self.tests: dict[str, outcomes.Tested] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        said = [(str(name), str(value)) for name, value in report.user_properties]
        rows = [value for name, value in said if name == "row"]
        test = self._test(report.nodeid)
        test["rows"], test["store"] = rows, dict(said).get("store", "any")
        self._note(test, outcome_of(report), report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported counts as one failed test."""
        if report.failed:
            self._note(self._test(report.nodeid), "failed", report)

    def pytest_sessionfinish(self) -> None:
        self.target.parent.mkdir(parents=True, exist_ok=True)
        record = outcomes.Record(summary=self._summary(), tests=list(self.tests.values()))
        self.target.write_text(json.dumps(record, indent=1))

    def _test(self, nodeid: str) -> outcomes.Tested:
        new = outcomes.Tested(id=nodeid, rows=[], store="any", outcome="passed", message="", load=0.0)
        return self.tests.setdefault(nodeid, new)

    def _note(self, test: outcomes.Tested, outcome: str, report: pytest.TestReport | pytest.CollectReport) -> None:
        if outcome == "failed" and test["outcome"] != "failed":
            test["message"] = message_of(report)
            test["load"] = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else 0.0
        test["outcome"] = max(test["outcome"], outcome, key=outcomes.SEVERITY.index)

    def _summary(self) -> str:
        """The figures of pytest's closing line, such as "1 failed, 12 passed"."""
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        parts = terminal.build_summary_stats_line()[0] if terminal is not None else []
        return ", ".join(text for text, _ in parts)


def outcome_of(report: pytest.TestReport) -> str:
    """passed, failed, skipped or xfailed."""
    return "xfailed" if report.skipped and hasattr(report, "wasxfail") else report.outcome


def message_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The place and the error of a failure, in one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        place, text = f"{Path(crash.path).name}:{crash.lineno}: ", str(crash.message)
    else:  # a crashed xdist worker or a file that cannot be imported
        place, text = "", str(report.longrepr)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no message"]
    errors = [line.removeprefix("E ").strip() for line in lines if line.startswith("E ")]
    return f"{place}{(errors or lines)[0]}"[:300]
