"""The time of the store goes on when the clock of the machine is set back, and is one time for all its processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from textwrap import dedent

import pytest

from mainspring.stores.sqlite.driver.clock import WallClock


def test_time_goes_on_when_the_clock_is_set_back() -> None:
    wall, flow = [1_000_000_000], [50.0]
    clock = WallClock(lambda: wall[0], lambda: flow[0])
    assert clock() == 1_000_000_000
    wall[0] -= 3_600_000_000
    assert clock() == 1_000_000_000
    flow[0] += 2.5
    assert clock() == 1_002_500_000
    flow[0] += 1
    wall[0] = 1_003_600_000  # it has caught up
    assert clock() == 1_003_600_000


def test_a_clock_set_forward_is_followed() -> None:
    wall, flow = [1_000_000_000], [50.0]
    clock = WallClock(lambda: wall[0], lambda: flow[0])
    clock()
    wall[0] += 3_600_000_000
    assert clock() == wall[0]


# ---- several processes -------------------------------------------------------------------------------

PROGRAM = """
import sys
from mainspring import Mainspring
from mainspring.errors import LockBusy

app = Mainspring(sys.argv[1])
app.open()
locks = {}
print("ready", flush=True)
for line in sys.stdin:
    word, name = line.split()
    if word == "lock":
        locks[name] = app.lock(name, ttl="10m")
        try:
            print(locks[name].acquire(), flush=True)
        except LockBusy:
            print("busy", flush=True)
    elif word == "delay":
        print(app.call("shop.mail").options(delay=name).enqueue().info().due.isoformat(), flush=True)
    elif word == "now":
        print(app.call("shop.mail").enqueue().info().enqueued.isoformat(), flush=True)
"""


class Program:
    """A process with a store, on a machine whose clock the test sets."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def time(self, line: str = "now x") -> datetime:
        return datetime.fromisoformat(self.ask(line))


class Machine:
    def __init__(self, folder: Path) -> None:
        self._skew = folder / "skew"
        self._skew.write_text("0")
        self._url = f"sqlite:///{folder}/jobs.db"

    def set_clock(self, hours: float) -> None:
        self._skew.write_text(str(hours * 3600))

    @contextmanager
    def start(self) -> Iterator[Program]:
        folder = Path(__file__).parents[2] / "processes" / "skewed"
        path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {**os.environ, "PYTHONPATH": path, "SKEW_FILE": str(self._skew), "SKEW_OF": "machine"}
        with subprocess.Popen(
            [sys.executable, "-c", dedent(PROGRAM), self._url],
            env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield Program(process)
            process.communicate("")


NEAR = timedelta(minutes=5)


@pytest.mark.parametrize("hours", [1, -1])
def test_a_lock_has_one_holder_after_a_step_of_the_clock(tmp_path: Path, hours: int) -> None:
    machine = Machine(tmp_path)
    with machine.start() as old:
        assert old.ask("lock first") == "True"
        machine.set_clock(hours)
        with machine.start() as new:
            assert new.ask("lock second") == "True"
            assert old.ask("lock second") == "busy"
            assert old.ask("lock third") == "True"
            assert new.ask("lock third") == "busy"


@pytest.mark.parametrize("hours", [1, -1])
def test_all_processes_have_one_time_after_a_step_of_the_clock(tmp_path: Path, hours: int) -> None:
    """So a job with a delay is due after that delay, whichever process looks."""
    machine = Machine(tmp_path)
    with machine.start() as old:
        before = old.time()
        machine.set_clock(hours)
        with machine.start() as new:
            assert abs(new.time() - old.time()) < NEAR
            assert abs(old.time("delay 1800") - new.time() - timedelta(minutes=30)) < NEAR
            assert abs(new.time("delay 1800") - old.time() - timedelta(minutes=30)) < NEAR
            assert abs(new.time() - before - timedelta(hours=max(hours, 0))) < NEAR


def test_the_first_process_after_all_have_ended_begins_with_the_clock_of_the_machine(tmp_path: Path) -> None:
    """A clock that was wrong for a time does no harm for ever."""
    machine = Machine(tmp_path)
    with machine.start() as one:
        right = one.time()
    machine.set_clock(1)
    with machine.start() as two:
        assert abs(two.time() - right - timedelta(hours=1)) < NEAR
    machine.set_clock(0)
    with machine.start() as three:
        assert abs(three.time() - right) < NEAR


def test_a_copied_directory_does_not_bring_its_time(tmp_path: Path) -> None:
    """The offset of another boot, or of another machine, does not count."""
    path = str(tmp_path / "clock")
    one = WallClock(lambda: 5_000_000, lambda: 1.0)
    one.share(path, begin=True)
    assert one() == 5_000_000
    late = WallClock(lambda: 4_000_000, lambda: 1.5)
    late.share(path, begin=False)
    assert late() == 5_500_000
    (tmp_path / "clock").write_bytes(b"another boot".ljust(40, b"\0") + b"\x7f" * 24)
    other = WallClock(lambda: 4_000_000, lambda: 1.5)
    other.share(path, begin=False)
    assert other() == 4_000_000
