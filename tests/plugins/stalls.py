"""Pytest plugin: a process that measures how long the machine stalls while the tests run. See `tests/timing.py`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests import timing

_meter = pytest.StashKey["subprocess.Popen[bytes]"]()
_file = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    if timing.FILE in os.environ:  # an xdist worker, or a pytest that a test started
        return
    handle, name = tempfile.mkstemp(prefix="mainspring-stalls-")
    os.close(handle)
    os.environ[timing.FILE] = name
    config.stash[_file] = Path(name)
    config.stash[_meter] = subprocess.Popen([sys.executable, timing.__file__, name], stdin=subprocess.PIPE)


def pytest_unconfigure(config: pytest.Config) -> None:
    meter = config.stash.get(_meter, None)
    if meter is None:
        return
    del os.environ[timing.FILE]
    meter.communicate()
    config.stash[_file].unlink(missing_ok=True)


def pytest_report_header() -> str:
    return f"longest stall of the machine so far: {timing.stall() * 1000:.0f} ms"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"longest stall of the last two minutes: {timing.stall() * 1000:.0f} ms")
