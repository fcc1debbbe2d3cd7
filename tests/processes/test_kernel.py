"""What the kernel gives: proof of death, families of processes, death with the parent. No store needed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainspring.errors import UseError
from mainspring.worker import process_tree
from mainspring.worker.lease import death_lock
from mainspring.worker.lease.death_lock import DeathLock
from tests.processes.fleet import alive, kill, until


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "mainspring"


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Programs that are killed after the test."""
    programs: list[subprocess.Popen[str]] = []
    yield programs
    for program in programs:
        process_tree.kill_family(program.pid, "none")
        program.wait()
        if program.stdout:
            program.stdout.close()


def program(started: list[subprocess.Popen[str]], text: str, **env: str) -> subprocess.Popen[str]:
    """A Python program in a session of its own; what it prints first has been printed when this returns."""
    made = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **env},
    )
    started.append(made)
    return made


def said(made: subprocess.Popen[str]) -> str:
    assert made.stdout is not None
    return made.stdout.readline().strip()


HOLDER = """
    import json, os, sys, time
    from mainspring.worker.lease.death_lock import DeathLock
    lock = DeathLock.create()
    if len(sys.argv) > 1 or os.environ.get("FORK"):
        child = os.fork()
        if child == 0:
            time.sleep(600)
    else:
        child = 0
    print(json.dumps({"facts": lock.facts(), "child": child}), flush=True)
    time.sleep(600)
"""


class TestDeathLock:
    def test_a_living_worker_is_not_dead_and_a_killed_one_is(self, started: list[subprocess.Popen[str]]) -> None:
        holder = program(started, HOLDER)
        info = json.dumps(json.loads(said(holder))["facts"]).encode()
        assert not death_lock.is_dead(info)
        kill(holder.pid, signal.SIGSTOP)
        assert not death_lock.is_dead(info)
        kill(holder.pid, signal.SIGKILL)
        holder.wait()
        assert death_lock.is_dead(info)
        death_lock.remove_lock(info)
        assert not death_lock.is_dead(info), "without the file there is no proof"

    def test_a_child_that_may_run_bodies_keeps_the_lock(self, started: list[subprocess.Popen[str]]) -> None:
        holder = program(started, HOLDER, FORK="1")
        told = json.loads(said(holder))
        info = json.dumps(told["facts"]).encode()
        kill(holder.pid, signal.SIGKILL)
        holder.wait()
        assert not death_lock.is_dead(info)
        kill(told["child"], signal.SIGKILL)
        until(lambda: death_lock.is_dead(info))

    @pytest.mark.parametrize("changed", [{"boot": "another"}, {"pidns": "1"}, {"lock": "/etc/passwd"}, {"boot": ""}])
    def test_another_boot_or_pid_namespace_proves_nothing(self, changed: dict[str, str]) -> None:
        lock = DeathLock.create()
        facts = {**lock.facts(), **changed}
        lock.close()
        assert not death_lock.is_dead(json.dumps(facts).encode())

    @pytest.mark.parametrize("info", [b"", b"{}", b"[1]", b"\xff", b'{"boot": 1, "pidns": 2, "lock": 3}'])
    def test_unreadable_registrations_prove_nothing(self, info: bytes) -> None:
        assert not death_lock.is_dead(info)

    def test_stale_lock_files_are_removed_and_held_ones_stay(self, runtime: Path) -> None:
        held, left = DeathLock.create(), DeathLock.create()
        left.close()
        for path in runtime.glob("*.lock"):
            os.utime(path, (0, 0))
        assert death_lock.remove_stale_locks() == 1
        assert [path.name for path in runtime.glob("*.lock")] == [Path(held.path).name]
        held.close(unlink=True)

    def test_a_directory_that_others_can_enter_is_refused(self, runtime: Path) -> None:
        runtime.mkdir(mode=0o755)
        runtime.chmod(0o755)
        with pytest.raises(UseError, match="not a private directory"):
            DeathLock.create()


class TestDescendants:
    def test_all_descendants_are_found_and_ended(self, started: list[subprocess.Popen[str]]) -> None:
        """Also a process with its own session whose parent has ended."""
        leader = program(
            started,
            """
            import os, sys, subprocess, time
            deep = "import os, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(600)"
            middle = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {deep!r}])"
            subprocess.run([sys.executable, "-c", middle])
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            print(child.pid, flush=True)
            time.sleep(600)
            """,
            **{process_tree.MARK: "a-mark"},
        )
        others = sorted([int(said(leader)), int(said(leader))])
        assert process_tree.list_family(leader.pid, "a-mark") == sorted([leader.pid, *others])
        kill(leader.pid, signal.SIGKILL)
        leader.wait()
        assert process_tree.list_family(leader.pid, "a-mark") == others
        process_tree.kill_family(leader.pid, "a-mark")
        until(lambda: not process_tree.list_family(leader.pid, "a-mark"))

    def test_read_stat_shows_a_stopped_process(self, started: list[subprocess.Popen[str]]) -> None:
        sleeper = program(started, "import time; print('on', flush=True); time.sleep(600)")
        said(sleeper)
        kill(sleeper.pid, signal.SIGSTOP)
        until(lambda: (stat := process_tree.read_stat(sleeper.pid)) and stat.stopped)
        kill(sleeper.pid, signal.SIGCONT)
        until(lambda: (stat := process_tree.read_stat(sleeper.pid)) and not stat.stopped)
        kill(sleeper.pid, signal.SIGKILL)
        until(lambda: (stat := process_tree.read_stat(sleeper.pid)) and stat.gone)
        sleeper.wait()
        assert process_tree.read_stat(sleeper.pid) is None


def test_a_child_that_holds_the_gil_dies_with_its_parent(started: list[subprocess.Popen[str]]) -> None:
    """No Python code can run in it, so the kernel must end it."""
    child = (
        "import ctypes, os; from mainspring.worker.process_tree import die_with_parent; "
        "die_with_parent(os.getppid());"
        "print(os.getpid(), flush=True); libc = ctypes.PyDLL(None); [libc.usleep(600_000_000) for _ in range(9)]"
    )
    parent = program(
        started, f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(600)"
    )
    pid = int(said(parent))
    kill(parent.pid, signal.SIGKILL)
    until(lambda: not alive(pid))
