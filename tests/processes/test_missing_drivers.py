"""A program without the driver of its store gets one line with the command that installs it, at every use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

URLS = {"redis": "redis://:hush@127.0.0.1:1/0", "postgres": "postgresql://shop:hush@127.0.0.1:1/shop"}
PACKAGES = {"redis": "hiredis", "postgres": "psycopg"}

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("psycopg", "hiredis"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
"""
"""A ``sitecustomize`` module: every Python program of the test starts without the drivers."""

APP = """
from mainspring import Mainspring

app = Mainspring({url!r})

@app.task
def add(a: int) -> int:
    return a

def worker() -> None:
    with app.worker():
        pass

def lock() -> None:
    with app.lock("x"):
        pass

if __name__ == "__main__":
    import asyncio, sys
    from mainspring.errors import MissingDriver
    if sys.argv[1:]:
        sys.exit(app.run())
    uses = (
        lambda: add.enqueue(1), lambda: asyncio.run(add.aenqueue(1)), lambda: app.enqueue_many([add.s(1)]), app.open,
        app.jobs.list, app.queues.list, lambda: app.jobs.get("01a1e142-c0dc-7248-9e5f-e502c01970de"), worker, lock,
    )
    for use in uses:
        try:
            use()
        except MissingDriver as error:
            print(error)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "sitecustomize.py").write_text(BLOCKED)
    return tmp_path


def started(project: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(project)}
    return subprocess.run(
        [sys.executable, *command], cwd=project, env=environment, capture_output=True, text=True, check=False
    )


def says_the_fix(text: str, engine: str) -> bool:
    return (
        f"needs the package {PACKAGES[engine]!r}, which is not installed" in text
        and f'\n  Run: pip install "mainspring[{engine}]"' in text
        and "hush" not in text
    )


@pytest.mark.parametrize("engine", URLS)
def test_every_use_of_the_store_names_the_missing_package(project: Path, engine: str) -> None:
    (project / "shop.py").write_text(APP.format(url=URLS[engine]))
    done = started(project, "shop.py")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 2 * 9
    assert set(zip(lines[::2], lines[1::2], strict=True)) == {(lines[0], lines[1])}
    assert says_the_fix(done.stdout, engine), done.stdout


@pytest.mark.parametrize("engine", URLS)
@pytest.mark.parametrize("command", [("status",), ("migrate", "--plan"), ("enqueue", "shop.add", "1")], ids=" ".join)
def test_every_command_names_the_missing_package_in_two_lines(
    project: Path, engine: str, command: tuple[str, ...]
) -> None:
    (project / "shop.py").write_text(APP.format(url=URLS[engine]))
    done = started(project, "-m", "mainspring", "-A", "shop.py", *command)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 2, done.stderr
    assert says_the_fix(done.stderr, engine)


@pytest.mark.parametrize("engine", URLS)
@pytest.mark.parametrize("command", [("-m", "mainspring", "worker", "shop.py"), ("shop.py", "run")], ids=["cli", "run"])
def test_workers_do_not_start_and_name_the_missing_package(
    project: Path, engine: str, command: tuple[str, ...]
) -> None:
    (project / "shop.py").write_text(APP.format(url=URLS[engine]))
    done = started(project, *command)
    assert done.returncode == 1
    assert says_the_fix(done.stderr, engine), done.stderr
    assert "Traceback" not in done.stderr


def test_a_package_that_cannot_be_imported_is_named_with_the_reason(project: Path) -> None:
    (project / "sitecustomize.py").write_text(
        BLOCKED.replace("ModuleNotFoundError", "ImportError").replace(
            'f"No module named {name!r}"', '"no pq wrapper available.\\nAttempts made: none"'
        )
    )
    (project / "shop.py").write_text(APP.format(url=URLS["postgres"]))
    done = started(project, "shop.py")
    assert "which cannot be imported: no pq wrapper available.\n  Run: pip install" in done.stdout, done.stderr
