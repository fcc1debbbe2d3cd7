"""Real commands that run until a test stops them, and what they print meanwhile."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
import time
from types import TracebackType
from typing import Self

import psutil

from tests.cli.conftest import LIMIT, Shop


class Running:
    """A command that runs in the background; everything it prints is kept."""

    def __init__(self, shop: Shop, *arguments: str) -> None:
        self.process = shop.start(*arguments, stderr=subprocess.STDOUT)
        self.text = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.text += line

    def says(self, text: str, times: int = 1) -> None:
        """Until it has printed that."""
        end = time.monotonic() + LIMIT
        while self.text.count(text) < times:
            assert time.monotonic() < end, f"did not say {text!r}, but:\n{self.text}"
            assert self.process.poll() is None or self._reader.is_alive() or text in self.text, self.text
            time.sleep(0.02)

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        code = self.process.wait(LIMIT)
        self._reader.join(LIMIT)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.end()
        self._reader.join(LIMIT)
        assert self.process.stdout is not None
        self.process.stdout.close()


def on_terminal(shop: Shop, *arguments: str, typed: str = "", ctrl_c_at: str = "", **env: str) -> tuple[int, str]:
    """The command on a terminal of its own: exit code, and all that it wrote there.

    ``ctrl_c_at`` is the text at which it is interrupted.
    """
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "mainspring", *arguments], cwd=shop.folder, start_new_session=True,
        stdin=theirs, stdout=theirs, stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "200", **env},
    )  # fmt: skip
    os.close(theirs)
    written = b""
    try:
        os.write(ours, typed.encode())
        while part := _read(ours):
            written += part
            if ctrl_c_at and ctrl_c_at in written.decode(errors="replace"):
                _interrupt(process)
                ctrl_c_at = ""
        return process.wait(LIMIT), written.decode()
    finally:
        process.kill()
        process.wait(LIMIT)
        os.close(ours)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # how Linux says that the other side is closed
        return b""


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """Ctrl-C, once the process waits for an answer: a signal just before that would be noticed only after it."""
    asleep = 0
    while asleep < 5:
        asleep = asleep + 1 if psutil.Process(process.pid).status() == psutil.STATUS_SLEEPING else 0
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
