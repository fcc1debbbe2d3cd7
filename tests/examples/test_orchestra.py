"""examples/orchestra does what its README says: judged by what the parts wrote down when they began and ended."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "orchestra"
OTHERS = ("fetch-data", "process-data", "cleanup")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return shutil.copytree(EXAMPLE, tmp_path / "orchestra")


@pytest.mark.row("O2", "O3", "O4", "O5", "O6", "O8")
def test_the_orchestra_example(home: Path, store_url: str) -> None:
    env = dict(os.environ) | {"MAINSPRING_URL": store_url}
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=home, env=env, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()

    refused = [line for line in lines if line.startswith("not triggered: ")]
    assert refused[0].endswith("has not ended")
    assert refused[1].endswith("schedule 'process-data' was not triggered: it waits for 'fetch-data' to succeed")
    assert "it was disabled after 3 runs failed in a row: RuntimeError" in refused[2]
    first, second = (line for line in lines if line.startswith("report "))
    assert "disabled: 3 runs failed in a row: RuntimeError: the report cannot be written" in first
    assert second.split() == ["report", "last", "succeeded", "waits", "for", "nothing", "enabled"]
    assert lines[-4:] == [
        "process-data before its fetch-data: 0",
        "process-data beside cleanup: 0",
        "most of the group at once: 2",
        "first to begin: fetch-data report",
    ]
    judge([line.split() for line in (home / "score.txt").read_text().splitlines()])


def judge(score: list[list[str]]) -> None:
    """The same from the score, and not by the code of the example."""
    begins = {part: [at for at, line in enumerate(score) if line == ["begins", part]] for part in (*OTHERS, "report")}
    ends = {part: [at for at, line in enumerate(score) if line == ["ends", part]] for part in begins}
    assert all(fetched < at for fetched, at in zip(ends["fetch-data"], begins["process-data"], strict=False))
    assert len(ends["fetch-data"]) >= len(begins["process-data"])
    for begun, ended in zip(begins["cleanup"], ends["cleanup"], strict=True):
        between = [part for _, part in score[begun:ended]]
        assert "process-data" not in between
    off, on = score.index(["schedule_disabled", "report"]), score.index(["mended", "report"])
    assert sum(at < off for at in begins["report"]) == 3
    assert not any(off < at < on for at in begins["report"])
    assert any(at > on for at in ends["report"])
    assert ["schedule_enabled", "report"] in score[on:]
    assert all(sum(off < at < on for at in ends[part]) >= 3 for part in OTHERS), "the others go on"
