"""Pytest plugin: programs that tests start come out of a nursery, where that shows as much.

Not in the folders of ``FRESH``: they show processes, documents and examples as a user has them. Nor in a test that is
marked ``fresh``, because it looks at what an interpreter does first.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.nursery import Nursed

FRESH = ("processes", "traps", "docs", "examples", "faults", "testing", "typing", "migrations")
TESTS = Path(__file__).parents[1]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fresh: its programs are started as interpreters of their own")


@pytest.fixture(autouse=True)
def nursed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = request.path.relative_to(TESTS).parts[0]
    if sys.platform == "linux" and folder not in FRESH and not request.node.get_closest_marker("fresh"):
        monkeypatch.setattr(subprocess, "Popen", Nursed)
