"""Processes that are measured: started fresh, looked at from outside, ended by their id."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks.frame import Failed

ROOT = Path(__file__).resolve().parent.parent
WITHOUT = ROOT / "benchmarks" / "without"
OTHERS = {"sqlite": ("redis", "psycopg"), "postgres": ("redis",), "redis": ("psycopg",)}
STOP_WITHIN = 40.0


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Ours without what would change a measurement; bytecode is written, as in any installation.

    Measured is the code of this tree, or of ``BENCH_TREE``, whatever is installed.

    Drivers of other stores than the one that is measured are hidden: huey imports all that it finds.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MAINSPRING_", "PYTHON"))}
    hidden = [str(WITHOUT / driver) for driver in OTHERS[extra.get("BENCH_ENGINE", "sqlite")]]
    code = Path(extra.get("BENCH_TREE", ROOT)) / "src"
    return {**kept, "PYTHONPATH": os.pathsep.join([*hidden, str(ROOT), str(code)]), **extra}


def run_json(command: Sequence[str], env: Mapping[str, str], within: float = 900) -> Any:
    """Run a program to its end; what it printed last is JSON."""
    return json.loads(run(command, env, within).strip().splitlines()[-1])


def run(command: Sequence[str], env: Mapping[str, str], within: float = 900) -> str:
    """Run a program to its end; what it printed."""
    try:
        done = subprocess.run(
            command, env=environment(env), cwd=ROOT, capture_output=True, text=True, timeout=within, check=False
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"not done after {within:g} s") from None
    if done.returncode:
        raise Failed(_last_line(done.stderr) or f"exit code {done.returncode}")
    return done.stdout


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

    def find(self, mark: str | None) -> list[psutil.Process]:
        """The processes that do the work: those with ``mark`` on their command line; without one, the main one."""
        if mark is None:
            return [self.main]
        found = []
        for process in self.main.children(recursive=True):
            with suppress(psutil.Error):
                if mark in " ".join(process.cmdline()):
                    found.append(process)
        if not found:
            raise Failed(f"no process {mark!r} under the worker")
        return found

    def cpu(self, mark: str | None) -> float:
        """Seconds of processor time of the processes that do the work, with all below them."""
        return sum(tree_cpu(process) for process in self.find(mark))


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
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _family(worker: Running) -> list[psutil.Process]:
    try:
        return worker.main.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def cpu(process: psutil.Process) -> float:
    """Seconds of processor time so far, user and system, all threads."""
    times = process.cpu_times()
    return float(times.user + times.system)


def tree_cpu(main: psutil.Process, without: Collection[int] = ()) -> float:
    """Seconds of a process and all below it, those that have ended included."""
    times = main.cpu_times()
    total = cpu(main) + times.children_user + times.children_system
    for child in main.children(recursive=True):
        if child.pid not in without:
            with suppress(psutil.NoSuchProcess):
                total += cpu(child)
    return float(total)


def wait_for(
    condition: Callable[[], Any],
    worker: Running,
    what: str,
    within: float = 60.0,
    pause: float = 0.005,
    rest: float = 20,
) -> float:
    """The moment at which ``condition()`` became true; after asking it rests ``rest`` times as long as that took."""
    end = time.monotonic() + within
    while True:
        asked = time.monotonic()
        if condition():
            return time.monotonic()
        worker.check()
        took = time.monotonic() - asked
        if asked + took > end:
            raise Failed(f"{what}: not within {within:g} s")
        time.sleep(max(pause, rest * took))


def _last_line(text: str) -> str:
    """Of those that say what happened; a hint below them is indented."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(" ")]
    return lines[-1][:300] if lines else ""
