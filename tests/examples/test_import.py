"""examples/import does what its README says: a producer is killed and goes on, and each row is imported once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "import"


@pytest.mark.row("F4")
def test_the_import_example(tmp_path: Path, store_url: str) -> None:
    home = shutil.copytree(EXAMPLE, tmp_path / "import")
    env = dict(os.environ) | {"MAINSPRING_URL": store_url}
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=home, env=env, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    [killed] = [re.fullmatch(r"killed the producer after (\d+) rows", line) for line in lines if "killed" in line]
    assert killed is not None
    assert 300 <= int(killed[1]) < 1000
    pieces = [re.fullmatch(r"rows from (\d+): (\d+) added", line) for line in lines if line.startswith("rows from")]
    numbers = [(int(each[1]), int(each[2])) for each in pieces if each is not None]
    again = numbers.index((0, 0))
    assert numbers[0] == (0, 50)
    assert numbers[again + 5] == (250, 0), "the second producer starts over, and adds no row twice"
    added = sum(n for _, n in numbers[again : again + 20])
    assert 1000 - added in (int(killed[1]), int(killed[1]) + 50), "the server may finish what the killed one has sent"
    assert "rows.csv: 1000 rows, 993 imported, 7 errors" in lines
    assert "corrected.csv: 7 rows, 7 imported, 0 errors" in lines
    first = [line for line in lines if line.startswith("import of rows.csv:")]
    assert first == [
        "import of rows.csv: alert", "import of rows.csv: finished 993 of 1000 rows imported, 7 errors",
    ]  # fmt: skip
    second = sorted(line for line in lines if line.startswith("import of corrected.csv:"))
    assert second == [
        "import of corrected.csv: finished 7 of 7 rows imported, 0 errors", "import of corrected.csv: succeeded",
    ]  # fmt: skip
