"""Pytest plugin: `@pytest.mark.row("W3")` ties a test to rows of the mission; `--store` chooses one store's tests.

`@pytest.mark.stores("sqlite")` keeps a test that asks for `store_name` to the named stores: for what only they have, or
for what does not depend on the store.

The results of a run go to the file named by MAINSPRING_TEST_RESULTS, for `./dev mission`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tools import mission


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "run only the tests of this store"
    parser.addoption("--store", action="append", choices=mission.STORES, default=[], help=text)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "stores(*names): the stores that this test runs on; else on all of them")
    target = os.environ.get("MAINSPRING_TEST_RESULTS")
    if target and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(target)), "mission-recorder")


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store_name" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("stores")
        metafunc.parametrize("store_name", mark.args if mark else mission.STORES, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known = {row.id for row in mission.parse(mission.TABLE.read_text())}
    for item in items:
        rows = rows_of(item)
        if unknown := set(rows) - known:
            raise pytest.UsageError(f"{item.nodeid}: no such row in {mission.TABLE.name}: {sorted(unknown)}")
        item.user_properties += [("store", store_of(item)), *(("row", row) for row in rows)]
    if chosen := config.getoption("--store"):
        dropped = [item for item in items if store_of(item) not in chosen]
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if store_of(item) in chosen]


def rows_of(item: pytest.Item) -> list[str]:
    """Every row the test carries, from its own marks and those around it."""
    return [str(row) for mark in item.iter_markers("row") for row in mark.args]


def store_of(item: pytest.Item) -> str:
    """The store that the test runs on, or "any"."""
    callspec = getattr(item, "callspec", None)
    return str(callspec.params.get("store_name", "any")) if callspec else "any"


class Recorder:
    """Keeps the worst outcome of every test that carries a row; lives where the reports arrive."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.tests: dict[str, mission.Tested] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        said = [(str(name), str(value)) for name, value in report.user_properties]
        rows = [value for name, value in said if name == "row"]
        if not rows:
            return
        fresh = mission.Tested(id=report.nodeid, rows=rows, store=dict(said)["store"], outcome="passed")
        test = self.tests.setdefault(report.nodeid, fresh)
        test["outcome"] = max(test["outcome"], outcome_of(report), key=mission.SEVERITY.index)

    def pytest_sessionfinish(self) -> None:
        self.target.parent.mkdir(parents=True, exist_ok=True)
        record = mission.Record(commit=mission.commit(), tests=list(self.tests.values()))
        self.target.write_text(json.dumps(record, indent=1))


def outcome_of(report: pytest.TestReport) -> str:
    """passed, failed, skipped or xfailed."""
    return "xfailed" if report.skipped and hasattr(report, "wasxfail") else report.outcome
