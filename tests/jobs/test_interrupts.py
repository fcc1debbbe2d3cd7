"""The tests of ``interrupts.py`` in a process of their own: they raise at every place of the blocking module.

In CPython 3.11 a profiled thread stands still while an exception is pending in another thread: tests of time limits
leave blocked threads behind. The module is the same for every store, so SQLite is enough.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT = 120


@pytest.mark.stores("sqlite")
def test_interrupted_blocking_calls_leave_nothing_behind() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--store", "sqlite"]
    done = subprocess.run(
        [*command, "tests/jobs/interrupts.py"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "6 passed" in done.stdout
