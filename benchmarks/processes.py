"""Processes that are measured: started fresh, looked at from outside, ended by their id."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.frame import Failed

ROOT = Path(__file__).resolve().parent.parent
HIDING = ROOT / "benchmarks" / "without"
STOP_WITHIN = 40.0


def python(*args: str) -> list[str]:
    return [sys.executable, *args]


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Ours without what would change a measurement; bytecode is written, as in any installation.

    Drivers of other stores are hidden: what is measured runs on SQLite, and huey imports all that it finds.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MAINSPRING_", "PYTHON"))}
    return {**kept, "PYTHONPATH": os.pathsep.join([str(HIDING), str(ROOT)]), **extra}


def run_json(command: Sequence[str], env: Mapping[str, str], within: float = 900) -> Any:
    """Run a program to its end; what it printed last is JSON."""
    try:
        done = subprocess.run(
            command, env=environment(env), cwd=ROOT, capture_output=True, text=True, timeout=within, check=False
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"not done after {within:g} s") from None
    if done.returncode:
        raise Failed(_last_line(done.stderr) or f"exit code {done.returncode}")
    return json.loads(done.stdout.strip().splitlines()[-1])


class Running:
    """A worker of some system, perhaps with children."""

    def __init__(self, child: subprocess.Popen[bytes], log: Path) -> None:
        self.child = child
        self.log = log
        self.main = psutil.Process(child.pid)

    def check(self) -> None:
        if self.child.poll() is not None:
            raise Failed(
                f"worker ended with {self.child.returncode}: {_last_line(self.log.read_text(errors='replace'))}"
            )

    def find(self, mark: str | None) -> psutil.Process:
        """The process that does the work: the one with ``mark`` on its command line; without one, the main one."""
        if mark is None:
            return self.main
        for process in self.main.children(recursive=True):
            try:
                if mark in " ".join(process.cmdline()):
                    return process
            except psutil.Error:
                continue
        raise Failed(f"no process {mark!r} under the worker")


@contextmanager
def running(command: Sequence[str], env: Mapping[str, str], folder: Path, name: str = "worker") -> Iterator[Running]:
    """Start a worker; at the end ask it to stop, then force whatever is left of it."""
    log = folder / f"{name}.log"
    with log.open("wb") as out:
        child = subprocess.Popen(
            command, env=environment(env), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    worker = Running(child, log)
    try:
        yield worker
    finally:
        _end(worker)


def _end(worker: Running) -> None:
    family = _family(worker)
    if worker.child.poll() is None:
        worker.child.send_signal(signal.SIGTERM)
        try:
            worker.child.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            worker.child.kill()
            worker.child.wait()
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def _family(worker: Running) -> list[psutil.Process]:
    try:
        return worker.main.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def cpu(process: psutil.Process) -> float:
    """Seconds of processor time so far, user and system, all threads."""
    times = process.cpu_times()
    return times.user + times.system


def wait_for(condition: Any, worker: Running, what: str, within: float = 60.0, pause: float = 0.005) -> float:
    """The moment at which ``condition()`` became true."""
    end = time.monotonic() + within
    while not condition():
        worker.check()
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {within:g} s")
        time.sleep(pause)
    return time.monotonic()


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
