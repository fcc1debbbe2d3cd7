"""examples/cleanup does what its README says: each occurrence once over a fleet of three, of which one is killed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "cleanup"


def run(home: Path, program: str, **env: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, program], cwd=home, env=dict(os.environ) | env, capture_output=True, text=True, timeout=110,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return shutil.copytree(EXAMPLE, tmp_path / "cleanup")


@pytest.mark.row("S5", "S8")
def test_the_cleanup_example_runs_each_occurrence_once(home: Path, store_url: str) -> None:
    lines = run(home, "main.py", MAINSPRING_URL=store_url, SWEEP_TAKES="2")
    before, after = lines[: lines.index("")], lines[lines.index("") + 1 :][:3]
    assert [line.split()[0] for line in before] == ["hourly", "monthly", "nightly", "of-ann", "once", "weekly"]
    assert [line.split()[0] for line in after] == ["hourly", "nightly", "weekly"]
    assert ("Sunday" in before[-1], "Saturday" in after[-1]) == (True, True)
    said = {line.split()[0]: line for line in lines if re.match(r"(occurrences|jobs) ", line)}
    assert "killed one of three in the middle of a run" in lines
    many = int(said["occurrences"].split()[1])
    assert said["occurrences"].endswith("each 1.0 s after the one before")
    assert said["jobs"] == f"jobs {many} succeeded"
    [again] = [line for line in lines if line.startswith("begun twice")]
    twice, by_the_killed = (int(word) for word in again.split() if word.isdigit())
    assert twice == by_the_killed >= 1, "only the killed worker lost a run"
    noted = [line.split() for line in (home / "notes.txt").read_text().splitlines()]
    begun = Counter(job for word, what, job, *_ in noted if (word, what) == ("begins", "show"))
    assert (len(begun), begun.total()) == (many, many + twice)


@pytest.mark.row("S4")
def test_the_nights_example_runs_at_both_changes_of_clocks(home: Path, sqlite_url: str) -> None:
    lines = run(home, "nights.py", MAINSPRING_URL=sqlite_url)
    assert [line.removeprefix("nightly ") for line in lines if line.startswith("nightly")] == [
        "Sat 28 Mar 02:30 CET succeeded", "Sun 29 Mar 03:00 CEST succeeded", "Mon 30 Mar 02:30 CEST succeeded",
        "Sat 24 Oct 02:30 CEST succeeded", "Sun 25 Oct 02:30 CEST succeeded", "Mon 26 Oct 02:30 CET succeeded",
    ]  # fmt: skip
    assert lines.count("hourly 72 runs in 72 hours") == 2
