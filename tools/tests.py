"""`./dev test`: the checks, then pytest; a full run leaves its results for `./dev mission`."""

from __future__ import annotations

import os
import subprocess

from tools import checks, environment

RESULTS = environment.DEV / "results.json"
SERVERS = environment.DEV / "servers"
PYTEST = ["-m", "pytest", "-n", "6", "--dist", "worksteal"]  # most tests wait for processes more than they compute
CACHED = {"PYTHONDONTWRITEBYTECODE": ""}  # thousands of processes are started: none shall compile the sources anew


def command(args: list[str]) -> int:
    """Everything; with a selection only the selected tests."""
    if is_selection(args):
        return pytest(args)
    return checks.statics() or pytest(args, record=True)


def is_selection(args: list[str]) -> bool:
    """Whether these arguments choose tests, so that the run says nothing about the whole."""
    return any(
        arg.startswith(("-k", "-m", "--store", "--lf", "--last-failed")) or not arg.startswith("-") for arg in args
    )


def pytest(args: list[str], *, record: bool = False) -> int:
    """Run pytest; whatever becomes of it, no server stays."""
    python = environment.python()
    SERVERS.mkdir(parents=True, exist_ok=True)
    os.environ["MAINSPRING_TEST_DIR"] = str(SERVERS)
    results = {"MAINSPRING_TEST_RESULTS": str(RESULTS)} if record else {}
    try:
        return environment.run([python, *PYTEST, *args], **results, **CACHED)
    finally:
        subprocess.run([python, "-m", "mainspring.testing.servers"], cwd=environment.ROOT, check=False)
