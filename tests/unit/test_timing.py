"""Time limits that follow the stalls of the machine, and signals of the programs that tests start."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import timing
from tools import environment


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "stalls"
    monkeypatch.setenv(timing.FILE, str(path))
    return path


@pytest.mark.parametrize(
    ("stall", "seconds", "limit"), [(0.0, 0.5, 0.5), (1.0, 0.5, 3.0), (1.0, 60.0, 122.0), (99.0, 1.0, 10.0)]
)
def test_a_limit_grows_with_the_longest_stall(file: Path, stall: float, seconds: float, limit: float) -> None:
    file.write_bytes(struct.pack("d", stall))
    assert timing.patience(seconds) == pytest.approx(limit)
    assert timing.milliseconds(seconds) == f"{limit * 1000:.0f}ms"


def test_without_a_measurement_a_limit_stays_as_it_is(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert timing.patience(2) == 2
    file.touch()
    assert timing.patience(2) == 2
    monkeypatch.delenv(timing.FILE)
    assert timing.patience(2) == 2


def test_a_stopped_process_measures_a_stall_and_ends_with_its_input(file: Path) -> None:
    meter = subprocess.Popen([sys.executable, timing.__file__, str(file)], stdin=subprocess.PIPE)
    end = time.monotonic() + 60
    while not (file.exists() and file.stat().st_size):
        assert time.monotonic() < end
        time.sleep(0.01)
    meter.send_signal(signal.SIGSTOP)
    time.sleep(0.7)
    meter.send_signal(signal.SIGCONT)
    while timing.stall() < 0.5:
        assert time.monotonic() < end
        time.sleep(0.01)
    meter.communicate()
    assert meter.returncode == 0


IGNORED = """
import signal, subprocess, sys

ASK = "import signal; print(signal.getsignal(signal.SIGHUP) is signal.SIG_DFL)"

def test_hang_up():
    assert subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True).stdout == "True\\n"
    signal.raise_signal(signal.SIGHUP)
"""


def test_programs_do_not_inherit_ignored_signals_and_the_run_still_ignores_them(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tests.plugins.signals"]\n')
    (tmp_path / "test_it.py").write_text(IGNORED)
    env = {**os.environ, "PYTHONPATH": str(environment.ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = f"trap '' HUP; exec {sys.executable} -m pytest -q -p no:cacheprovider -c /dev/null --rootdir . ."
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
