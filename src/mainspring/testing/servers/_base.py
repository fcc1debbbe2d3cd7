"""One server process: started, stopped, killed, frozen.

``Server`` knows processes; an engine says how its command line looks and when it is ready.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

import psutil

from mainspring.testing.servers import _ledger
from mainspring.testing.servers._errors import NotOurs, ServerFailed
from mainspring.testing.servers._homes import make_home, prepare_home

_READY_WITHIN = 30.0
_STOP_WITHIN = 10.0


class Server(ABC):
    """A server process that this process starts, and its directory. Use it as a context manager.

    A ``home`` that is given is kept with all its data; one of our own making is removed at the end.
    """

    def __init__(self, *, durable: bool, account: pwd.struct_passwd | None = None, home: Path | None = None) -> None:
        self.durable = durable
        self.kept = home is not None
        self.home = make_home(account, in_memory=not durable) if home is None else prepare_home(home, account)
        self._account = account
        self._process: subprocess.Popen[bytes] | None = None
        self._entry: Path | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL for ``Mainspring(url)``."""

    @property
    def pid(self) -> int:
        """Process id of the server; for PostgreSQL the postmaster's."""
        return self._running.pid

    def start(self) -> None:
        """Start, or start again after `stop` or `kill`; returns when the server accepts connections."""
        if not self._alive():
            self._launch()

    def stop(self) -> None:
        """Stop the server normally. Data stays until the context ends."""
        if not self._alive():
            return
        self.thaw()
        self._running.send_signal(self._stop_signal)
        try:
            self._running.wait(_STOP_WITHIN)
        except subprocess.TimeoutExpired:
            self.kill()
        else:
            self._forget()

    def kill(self) -> None:
        """Kill every process of the server at once, as a power cut would."""
        if not self._alive():
            return
        end_tree(psutil.Process(self.pid))
        self._running.wait(_STOP_WITHIN)
        self._forget()

    def freeze(self) -> None:
        """Freeze the server: every process gets SIGSTOP, the process that starts others first.

        Returns when all of them are stopped. A busy process needs a moment to stop.
        """
        main = psutil.Process(self.pid)
        _stand_still(main)
        for child in main.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                _stand_still(child)

    def thaw(self) -> None:
        """Continue a frozen server."""
        main = psutil.Process(self.pid)
        for process in (*main.children(recursive=True), main):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()

    def close(self) -> None:
        """Stop the server and remove everything that is not to be kept."""
        self.stop()
        self._forget_entry()
        if not self.kept:
            shutil.rmtree(self.home, ignore_errors=True)

    def hand_over(self, name: str) -> None:
        """Keep the server running until the test run ends, under a name by which other processes find it."""
        _handed_over.append(self)
        self._forget_entry()
        self._entry = _ledger.write(self.pid, self.home, name=name, url=self.url)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # for the engines

    _stop_signal: signal.Signals = signal.SIGTERM

    @abstractmethod
    def _launch(self) -> None:
        """Prepare the directory if needed and call `_spawn`."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether the server accepts connections now."""

    @property
    def _log(self) -> Path:
        return self.home / "server.log"

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerFailed(f"the server of {self.home} is not running: call start()")
        return self._process

    def _spawn(self, command: list[str]) -> None:
        """Start `command` and wait until it is ready; on failure leave no process behind."""
        with self._log.open("ab") as log:
            self._process = popen(command, self._account, log, cwd=self.home)
        self._note(self.pid)
        if self.kept:
            self._guard = guard(self.pid, self._stop_signal)
        deadline = time.monotonic() + _READY_WITHIN
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._give_up(command)
            time.sleep(0.01)

    def _give_up(self, command: list[str]) -> None:
        process, self._process = self._running, None
        process.kill()
        process.wait()
        raise ServerFailed(f"{command[0]} did not become ready:\n{tail(self._log)}")

    def _note(self, pid: int) -> None:
        """Write the process into the ledger at once, so that a crash of this process leaves no unknown server."""
        self._entry = _ledger.write(pid, self.home, keep=self.kept)

    def _alive(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            self._forget()  # it ended by itself
        return self._process is not None

    def _forget(self) -> None:
        self._process = None
        self._forget_entry()
        if self._guard is not None:
            self._guard.communicate()
            self._guard = None

    def _forget_entry(self) -> None:
        if self._entry is not None:
            self._entry.unlink(missing_ok=True)
            self._entry = None


_handed_over: list[Server] = []  # kept, so that their process objects are not collected while they run


class External:
    """A server that this process does not start, known by its URL only."""

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def pid(self) -> int:
        raise self._refusal()

    def start(self) -> None:
        raise self._refusal()

    stop = kill = freeze = thaw = start

    def close(self) -> None:
        """Nothing to do."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None: ...

    def _refusal(self) -> NotOurs:
        return NotOurs("this server was given by URL and is not ours to control: ask for one with own=True")


def popen(command: list[str], account: pwd.struct_passwd | None, log: object, cwd: Path) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own (no Ctrl-C), as `account` when given."""
    options: dict[str, object] = {}
    if account is not None:
        options = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    return subprocess.Popen(  # type: ignore[call-overload,no-any-return]  # the options depend on who we are
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        cwd=cwd,
        env=_environment(),
        start_new_session=True,
        **options,
    )


def guard(pid: int, number: signal.Signals) -> subprocess.Popen[bytes]:
    """A process that ends the server when this process has ended in any way: then its standard input is closed."""
    born = psutil.Process(pid).create_time()
    command = [sys.executable, "-m", "mainspring.testing.servers._guard", str(pid), repr(born), str(int(number))]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def end_tree(main: psutil.Process) -> None:
    """Kill a process and its children: the main process first, so that it starts no others."""
    with contextlib.suppress(psutil.NoSuchProcess):
        main.suspend()
        children = main.children(recursive=True)
        main.kill()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, timeout=_STOP_WITHIN)


def _stand_still(process: psutil.Process) -> None:
    process.suspend()
    deadline = time.monotonic() + _STOP_WITHIN
    while process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
        if time.monotonic() > deadline:
            raise ServerFailed(f"process {process.pid} does not stop: it is {process.status()}")
        time.sleep(0.001)


def tail(log: Path, lines: int = 15) -> str:
    """The last lines of a log; empty if there is no log."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


def _environment() -> dict[str, str]:
    # PG* variables of the caller's shell would change what initdb and postgres do.
    return {k: v for k, v in os.environ.items() if not k.startswith("PG")} | {"LC_ALL": "C", "TZ": "UTC"}
