"""Pytest plugin: programs that tests start come out of a nursery, where that shows as much.

Not in the folders of ``FRESH``: they show processes, documents and examples as a user has them. A test that is
marked ``fresh`` looks at what an interpreter does first; one that is marked ``forked`` does not, whatever its folder.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.nursery import Nursed

FRESH = ("processes", "traps", "docs", "examples", "testing", "typing", "migrations")
TESTS = Path(__file__).parents[1]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fresh: its programs are started as interpreters of their own")
    config.addinivalue_line("markers", "forked: its programs come out of a nursery")


@pytest.fixture(autouse=True)
def nursed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = request.path.relative_to(TESTS).parts[0]
    fresh = request.node.get_closest_marker("fresh") or folder in FRESH
    if sys.platform == "linux" and (not fresh or request.node.get_closest_marker("forked")):
        monkeypatch.setattr(subprocess, "Popen", Nursed)
