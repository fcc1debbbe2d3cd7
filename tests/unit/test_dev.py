"""The repository's own tools: the mission table and its JSON, requirements, records of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import environment, mission, outcomes, tests

ROOT = environment.ROOT
EACH = mission.Row("W3", "works", mission.STORES, ("sqlite",))
ONE = mission.Row("E2", "works", ("any",), ())


def noted(outcome: str, store: str, *rows: str) -> outcomes.Tested:
    name = f"t[{store}-{outcome}]"
    return outcomes.Tested(id=name, rows=list(rows), store=store, outcome=outcome, message="", load=0.0)


class TestMissionTable:
    def test_the_table_has_every_row_once_and_owes_only_needed_stores(self) -> None:
        rows = {row.id: row for row in mission.parse(mission.TABLE.read_text())}
        assert len(rows) == len(mission.parse(mission.TABLE.read_text())) == 142
        assert rows["E2"].needs == ("any",)
        assert rows["W3"].needs == mission.STORES
        assert rows["W3"].owed == mission.STORES
        assert rows["S1"].owed == ("any",)
        assert rows["P1"].owed == ()

    def test_a_debt_on_a_store_that_is_not_needed_is_refused(self) -> None:
        with pytest.raises(environment.Failed, match="E2"):
            mission.parse("| E2 | text | one | sqlite |")

    def test_the_worst_result_wins(self) -> None:
        found = mission.judge(EACH, [noted("passed", "sqlite", "W3"), noted("failed", "sqlite", "W1", "W3")])
        assert found == {"sqlite": "failed", "postgres": "missing", "redis": "missing"}

    def test_a_skipped_test_is_no_pass(self) -> None:
        assert (
            mission.judge(EACH, [noted("skipped", "redis", "W3"), noted("passed", "redis", "W3")])["redis"] == "skipped"
        )

    def test_a_test_without_a_store_proves_nothing_for_a_store_but_can_fail_it(self) -> None:
        assert set(mission.judge(EACH, [noted("passed", "any", "W3")]).values()) == {"missing"}
        assert set(mission.judge(EACH, [noted("failed", "any", "W3")]).values()) == {"failed"}

    def test_a_flaky_test_passes_and_is_marked(self) -> None:
        found = mission.judge(EACH, [noted(outcomes.FLAKY, "sqlite", "W3"), noted("passed", "sqlite", "W3")])
        assert found == {"sqlite": "passed (flaky)", "postgres": "missing", "redis": "missing"}
        assert set(mission.judge(EACH, [noted(outcomes.FLAKY, "any", "W3")]).values()) == {"missing"}

    def test_a_row_that_needs_one_run_takes_any_store(self) -> None:
        assert mission.judge(ONE, [noted("passed", "postgres", "E2")]) == {"any": "passed"}
        assert mission.judge(ONE, []) == {"any": "missing"}


class TestMissionCommand:
    def test_json_names_the_commit_and_every_row(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        record = tmp_path / "results.json"
        record.write_text(json.dumps({"commit": "abc", "tests": [noted("passed", "sqlite", "W3")]}))
        monkeypatch.setattr(tests, "RESULTS", record)
        code = mission.command(["--json"])
        said = capsys.readouterr()
        shown = json.loads(said.out)
        assert shown["commit"] == "abc"
        assert shown["rows"]["W3"] == {"sqlite": "passed", "postgres": "missing", "redis": "missing"}
        assert shown["rows"]["E2"] == {"any": "missing"}
        assert len(shown["rows"]) == 142
        assert code == 1
        assert "E2 on any" in said.err
        assert "W3 on sqlite" not in said.err
        assert "W3 on postgres, W3 on redis" in said.err

    def test_without_a_recorded_run_the_command_names_the_fix(self, tmp_path: Path) -> None:
        with pytest.raises(environment.Failed, match=r"\./dev test"):
            mission.load(tmp_path / "none.json")

    def test_an_owed_row_may_be_flaky(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        record = tmp_path / "results.json"
        record.write_text(json.dumps({"commit": "abc", "tests": [noted(outcomes.FLAKY, "sqlite", "W3")]}))
        monkeypatch.setattr(tests, "RESULTS", record)
        mission.command([])
        said = capsys.readouterr()
        assert "sqlite passed (flaky)" in said.out
        assert "W3 on sqlite" not in said.err

    def test_unknown_flags_are_refused(self) -> None:
        with pytest.raises(environment.Failed, match="--jsno"):
            mission.command(["--jsno"])


class TestRecord:
    """The plugin, in a pytest of its own."""

    CONFTEST = 'pytest_plugins = ["tests.plugins.mission", "tests.plugins.outcomes"]\n'
    MODULE = """
import pytest
@pytest.fixture
def store_name(request):
    return request.param
@pytest.mark.row("W3", "W4")
@pytest.mark.stores("sqlite", "redis")
def test_stores(store_name):
    assert store_name == "sqlite"
@pytest.mark.row("E2")
def test_once():
    pass
"""

    def run(self, folder: Path, module: str, *args: str) -> tuple[str, list[outcomes.Tested]]:
        (folder / "conftest.py").write_text(self.CONFTEST)
        (folder / "test_it.py").write_text(module)
        results = folder / "results.json"
        env = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        command = [sys.executable, "-m", "pytest", "-p", "xdist", "-c", os.devnull, "--rootdir", str(folder), "-q"]
        done = subprocess.run(
            [*command, f"--outcomes={results}", *args, str(folder)],
            cwd=folder, env={**os.environ, **env}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        kept: list[outcomes.Tested] = json.loads(results.read_text())["tests"] if results.exists() else []
        return done.stdout + done.stderr, kept

    @pytest.mark.parametrize("workers", ["0", "1"])
    def test_rows_stores_and_outcomes_are_recorded_also_from_xdist_workers(self, tmp_path: Path, workers: str) -> None:
        output, kept = self.run(tmp_path, self.MODULE, "-n", workers)
        noted = {(row, test["store"], test["outcome"]) for test in kept for row in test["rows"]}
        assert noted == {
            ("W3", "sqlite", "passed"),
            ("W4", "sqlite", "passed"),
            ("W3", "redis", "failed"),
            ("W4", "redis", "failed"),
            ("E2", "any", "passed"),
        }, output

    def test_without_the_stores_mark_a_test_runs_on_each_store(self, tmp_path: Path) -> None:
        output, kept = self.run(tmp_path, self.MODULE.replace('@pytest.mark.stores("sqlite", "redis")', ""))
        assert {test["store"] for test in kept} == {*mission.STORES, "any"}, output

    def test_the_store_option_selects_tests(self, tmp_path: Path) -> None:
        output, kept = self.run(tmp_path, self.MODULE, "--store", "sqlite")
        assert {test["store"] for test in kept} == {"sqlite"}, output

    def test_an_unknown_row_is_an_error(self, tmp_path: Path) -> None:
        output, _ = self.run(tmp_path, self.MODULE.replace("W3", "W99"))
        assert "W99" in output
        assert "no such row" in output


class TestRequirements:
    @pytest.mark.parametrize("name", ["dev", "uv"])
    def test_requirements_name_versions_and_hashes_and_no_index(self, name: str) -> None:
        lines = (environment.REQUIREMENTS / f"{name}.txt").read_text().splitlines()
        assert not [line for line in lines if "://" in line or line.startswith("-") or " @ " in line]
        pins = [number for number, line in enumerate(lines) if not line.startswith(" ")]
        assert pins
        assert all("==" in lines[number] and "--hash=sha256:" in lines[number + 1] for number in pins)

    def test_a_selection_of_tests_differs_from_a_full_run(self) -> None:
        assert not tests.is_selection([])
        assert not tests.is_selection(["-x", "-v"])
        assert tests.is_selection(["--store", "redis"])
        assert tests.is_selection(["-k", "servers"])
        assert tests.is_selection(["tests/unit"])
