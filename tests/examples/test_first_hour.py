"""examples/first-hour prints what its expected.txt says: the message of each typical mistake."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "first-hour"
WRITE = "MAINSPRING_TEST_GOLDEN"
"""Set it to write the expected output anew; then read what changed."""


@pytest.mark.stores("sqlite")  # the script has a store of its own
def test_each_mistake_gets_its_message() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
    done = subprocess.run(
        [sys.executable, "mistakes.py"], cwd=EXAMPLE, env=env, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    printed = done.stdout.replace(f"{EXAMPLE}{os.sep}", "")
    expected = EXAMPLE / "expected.txt"
    if os.environ.get(WRITE):
        expected.write_text(printed)
    assert printed == expected.read_text(), f"read what changed, then write it anew with {WRITE}=1"
