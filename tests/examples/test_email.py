"""examples/email does what its README says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "email"


@pytest.mark.row("B1")
def test_the_email_example(tmp_path: Path, store_url: str) -> None:
    home = shutil.copytree(EXAMPLE, tmp_path / "email")
    env = dict(os.environ) | {"MAINSPRING_URL": store_url}
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=home, env=env, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("newsletter")][-1] == "succeeded"
    ends = {line.split()[0]: line.split()[1:] for line in lines if " failed attempts" in line}
    assert ends["flaky@example.org"][:3] == ["succeeded", "after", "1"]
    assert ends["ada@example.org"][:3] == ["succeeded", "after", "0"]
    assert ends["nobody"][0] == "dead"
    assert "100 letters in bulk" in lines
    assert "dead: ValueError 1" in lines
    assert len(list((home / "outbox").iterdir())) == 104
