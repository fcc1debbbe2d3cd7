"""The child's end of the channel. Any thread may send; the control loop reads."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from typing import Any

from mainspring.jobs.records import LogLine
from mainspring.pools.channel import send_now
from mainspring.pools.records import JobReport, encode
from mainspring.worker.run.attempt import RunningAttempt

_ITEMS = 1_000_000
"""About the largest number of bytes of stream items in one message."""


class ChildLink:
    """Sends messages one after the other. If the worker is gone, the process ends."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._lock = threading.RLock()

    def send(self, message: Any) -> None:
        """Send a message. Blocks while the worker does not read."""
        data = encode(message)
        with self._lock:
            try:
                send_now(self._socket, data)
            except OSError:
                end_process()

    def send_reports(self, attempt: RunningAttempt) -> None:
        """Send what the body has reported and was not sent yet."""
        with self._lock:  # taking the reports out and sending them is one step: the end of the job comes after them
            while (report := _take_report(attempt)) is not None:
                self.send(report)


def end_process() -> None:
    """The worker is gone: end this process, and the processes that its jobs have started."""
    with contextlib.suppress(OSError):
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _take_report(attempt: RunningAttempt) -> JobReport | None:
    attempt.report_queued = False  # before the reports are taken: a report from now on queues the attempt again
    progress, attempt.progress = attempt.progress, None
    logs: list[LogLine] = []
    while attempt.logs:
        logs.append(attempt.logs.popleft())
    items = attempt.stream.take(_ITEMS) if attempt.stream is not None else ()
    if progress is None and not logs and not items:
        return None
    return JobReport(attempt.claim.id, attempt.claim.token, progress, tuple(logs), items)
