"""The mixed tasks, in a process with a failpoint.

A worker imports this module and its supervisor does not, so each can be armed alone:
``FAILING_WORKER=turn.after:3`` arms the worker, ``MAINSPRING_FAILPOINT=beat.before:2`` arms its
watcher (supervisor or helper) and is taken back here. ``FAILING_TRACE=FILE`` writes down every
point that the worker passes. As a program it is a worker embedded in another process.
"""

from __future__ import annotations

import os
import signal

from mainspring.common import failpoints
from tests.processes.mixed import app, tasks

__all__ = ["app", "tasks"]


def trace(path: str) -> None:
    """Write down every point that this process passes."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write_down(name: str) -> None:
        os.write(file, f"{name}\n".encode())

    failpoints.hit = write_down


failpoints.disarm()
failpoints.arm(os.environ.get("FAILING_WORKER", ""))
if "FAILING_TRACE" in os.environ:
    trace(os.environ["FAILING_TRACE"])

if __name__ == "__main__":
    from tests.timing import short_settings

    with app.worker(**short_settings()):
        signal.pause()
