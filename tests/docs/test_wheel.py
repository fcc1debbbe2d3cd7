"""The wheel, installed into an empty environment outside the repository, does what the documentation shows."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"```python\n(.*?)\n```", re.DOTALL)
GUIDES = {
    "start/first-job.md": "ctx.track",
    "guides/failures.md": "app.dead.stats",
    "guides/testing.md": "t.drain(future=True)",
}
"""Pages, and a word of the program on each that is run."""


def run(*command: str | Path, cwd: Path, timeout: float = 110, **env: str) -> str:
    """Run to its end without anything of this environment's own Python; returns what it printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=kept | env, capture_output=True, text=True, timeout=timeout,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The ``bin`` of an environment that has the wheel and what it depends on, nothing else: one for the test run."""
    base = tmp_path_factory.getbasetemp()
    home = (base if worker_id == "master" else base.parent) / "wheel"
    home.mkdir(exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the first one makes it, the others wait
        if not (home / "made").exists():
            install(home)
            (home / "made").touch()
    return home / "env" / "bin"


def install(home: Path) -> None:
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", home, cwd=ROOT)
    (wheel,) = home.glob("*.whl")
    base = getattr(sys, "_base_executable", None) or sys.executable
    run(base, "-m", "venv", home / "env", cwd=home)
    run(home / "env" / "bin" / "python", "-m", "pip", "install", "--quiet", wheel, cwd=home)


@pytest.mark.timeout(300)
def test_the_commands_of_the_readme_work(installed: Path, tmp_path: Path) -> None:
    """One shell runs a worker, another enqueues."""
    declared, asked, *_ = BLOCK.findall((ROOT / "README.md").read_text())
    (tmp_path / "tasks.py").write_text(declared)
    (tmp_path / "ask.py").write_text(asked.replace("timeout=10", "timeout=100"))
    worker = subprocess.Popen([installed / "mainspring", "worker", "tasks.py"], cwd=tmp_path)
    try:
        assert run(installed / "python", "ask.py", cwd=tmp_path).strip() == "5"
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("page", "word"), GUIDES.items())
def test_a_guide_works_with_the_wheel(installed: Path, tmp_path: Path, page: str, word: str) -> None:
    (program,) = (code for code in BLOCK.findall((ROOT / "docs" / page).read_text()) if word in code)
    (tmp_path / "program.py").write_text(program)
    run(installed / "python", "program.py", cwd=tmp_path, MAINSPRING_URL=f"sqlite:///{tmp_path / 'jobs.db'}")


@pytest.mark.timeout(300)
def test_the_wheel_contains_only_the_package(installed: Path, tmp_path: Path) -> None:
    listed = run(installed / "python", "-m", "pip", "list", "--format=freeze", cwd=tmp_path)
    names = {line.partition("==")[0].lower() for line in listed.split()}
    assert names - {"pip", "setuptools"} == {"click", "cronsim", "mainspring", "msgspec", "psutil"}
