"""One pool child as its worker sees it: start it, exchange messages with it, kill it, and learn why it ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from typing import Any

from mainspring.common.clock import boottime
from mainspring.pools.channel import MessageReader, MessageWriter
from mainspring.pools.records import ChildTarget, FromChild, decode_from_child, encode
from mainspring.worker import process_tree

CHILD = "mainspring.launch.pool_child"
"""The module that a child runs."""
_CLOSED = 0.5  # seconds that a process may live after its channel was closed: a dying process closes its files first
CHANNEL = "MAINSPRING_POOL_CHANNEL"
"""Environment variable with the descriptors of the channel and of the shared state, and the pid of the worker."""


class PoolProcess:
    """A child process. Its methods run on the loop of the worker, in the thread that started it.

    ``on_message`` gets each message. ``on_exit`` is called once, when the process has ended and its last messages were
    read.
    """

    def __init__(
        self,
        target: ChildTarget,
        shared_state: int,
        *,
        on_message: Callable[[PoolProcess, FromChild], None],
        on_exit: Callable[[PoolProcess], None],
    ) -> None:
        self.target = target
        self.started = boottime()
        self.ready = False
        self.leaving = False
        """It was told to close, or was killed."""
        self.killed_for = ""
        """Why the worker killed it; empty if it did not."""
        self._on_message = on_message
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as on_error, theirs:
            on_error.enter_context(ours)
            variables = {**os.environ, CHANNEL: f"{theirs.fileno()},{shared_state},{os.getpid()}"}
            # In the thread of the loop on purpose: the kernel's signal at a parent's death follows the thread.
            self._popen = subprocess.Popen(
                process_tree.python_command("-m", CHILD),
                env=variables,
                pass_fds=(theirs.fileno(), shared_state),
                process_group=0,
                stdin=subprocess.DEVNULL,
            )
            on_error.pop_all()
        ours.setblocking(False)
        self._socket = ours
        self._reader = MessageReader(ours)
        self._writer = MessageWriter(ours)
        self._ended = False
        self._pidfd = _open_pidfd(self._popen.pid)
        self._loop.add_reader(ours, self._read)
        if self._pidfd >= 0:
            self._loop.add_reader(self._pidfd, self.check)
        self.send(target)

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal, as in ``subprocess``."""
        return self._popen.returncode

    def send(self, message: Any) -> None:
        """Send a message. Never raises: the end of the process is noticed elsewhere."""
        if self._ended:
            return
        with contextlib.suppress(OSError):
            self._writer.send(encode(message))
            if self._writer.is_waiting:
                self._loop.add_writer(self._socket, self._flush)

    def kill(self, why: str) -> None:
        """Kill the process, and the processes that its jobs have started in its process group."""
        self.leaving = True
        self.killed_for = self.killed_for or why
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            self._popen.kill()

    def check(self) -> None:
        """Look whether the process has ended."""
        if self._ended or self._popen.poll() is None:
            return
        self._ended = True
        while not self._reader.closed:
            before = self._reader.received
            self._read_once()
            if self._reader.received == before:
                break  # a process that the child has started still holds its end
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        self._socket.close()
        self._reader.close()
        self._writer.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)  # what its jobs have started and left
        self._on_exit(self)

    def _read(self) -> None:
        self._read_once()
        if self._reader.closed:
            self._loop.remove_reader(self._socket)
            self.check()  # else the pidfd, or the next look of the pool, finds the end
            if not self._ended and self._popen.poll() is None:
                self._loop.call_later(_CLOSED, self._kill_deaf)

    def _kill_deaf(self) -> None:
        """The process has closed its channel: it can neither get jobs nor report their ends."""
        if not self._ended and self._popen.poll() is None:
            self.kill("it closed its channel")

    def _read_once(self) -> None:
        self._reader.receive()
        for message in self._reader.messages():
            self._on_message(self, decode_from_child(message))

    def _flush(self) -> None:
        try:
            self._writer.flush()
        except OSError:  # the process is ending
            self._loop.remove_writer(self._socket)
            return
        if not self._writer.is_waiting:
            self._loop.remove_writer(self._socket)


def describe_exit(code: int) -> str:
    """How a process ended, in words: ``was killed by SIGSEGV (segmentation fault)``."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        return f"was killed by signal {-code}"
    meaning = signal.strsignal(-code)
    return f"was killed by {name}" + (f" ({meaning.lower()})" if meaning else "")


def _open_pidfd(pid: int) -> int:
    """A descriptor that is readable when the process has ended; -1 if the system has none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1
