"""Pytest plugin: programs that tests start have default signal dispositions, however the test run was started.

A program inherits ignored signals from its parent. Under `nohup` SIGHUP is ignored, and a shell starts background jobs
with SIGINT and SIGQUIT ignored: a worker that a test starts would then ignore them too, as is the convention. This
plugin gives the test process a handler that does nothing instead. The test run still survives the signal, and a
program that the test run starts has the default disposition, because a handler does not outlive `exec`.
"""

from __future__ import annotations

import signal

import pytest

NUMBERS = [getattr(signal, name) for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM") if hasattr(signal, name)]


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    for number in NUMBERS:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
