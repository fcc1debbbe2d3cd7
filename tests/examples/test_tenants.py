"""examples/tenants does what its README says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from ast import literal_eval
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "tenants"


@pytest.mark.row("Q7", "R9", "R11")
def test_the_tenants_example(tmp_path: Path, store_url: str) -> None:
    home = shutil.copytree(EXAMPLE, tmp_path / "tenants")
    env = dict(os.environ) | {"MAINSPRING_URL": store_url}
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=home, env=env, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shares, starts, at_once = done.stdout.splitlines()
    early = literal_eval(shares.partition("200 ")[2])
    assert all(abs(early[plan] / 2 - share) <= 5 for plan, share in {"premium": 50, "standard": 30, "free": 20}.items())
    assert int(starts.split()[-1]) <= 100
    assert int(at_once.split()[-1]) <= 2
