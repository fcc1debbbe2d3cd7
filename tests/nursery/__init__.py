"""Python processes that are forked from one which has imported everything, instead of started anew.

Most of what a short program costs are its imports. `Nursed` is a `Popen` whose ``python -m MODULE`` and
``python -c CODE`` come out of a nursery: real processes, children of whoever asked, with an environment, a folder,
files and a session of their own. What a fork would not do as a fresh interpreter does is left to one.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import inspect
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "TZ", "MALLOC")
"""Variables that an interpreter reads once: they begin like this."""
PLAIN: dict[str, Any] = {
    "executable": None, "preexec_fn": None, "close_fds": True, "shell": False, "restore_signals": True,
    "gid": None, "gids": None, "uid": None, "umask": -1, "process_group": -1,
}  # fmt: skip
"""Options of a `Popen` that a nursery knows nothing of."""
SIZE = struct.Struct("!i")
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_start = subprocess.Popen


class Nursed(subprocess.Popen[Any]):
    """Like its base, and quicker for programs in Python."""

    def _execute_child(self, *args: Any, **kwargs: Any) -> None:
        start = super()._execute_child  # type: ignore[misc]  # the one place where a Popen becomes a process
        given = inspect.signature(start).bind(*args, **kwargs).arguments
        pipes = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        standard = [own if pipe == -1 else pipe for own, pipe in enumerate(pipes)]
        if not is_for_a_fork(given) or any(map(os.isatty, standard)):
            start(*args, **kwargs)
            return
        files = dict(enumerate(standard)) | {fd: fd for fd in given["pass_fds"]}
        self.pid = nursery().bear(
            command=[str(part) for part in given["args"]],
            env=dict(environment(given)),
            cwd=str(given["cwd"] or Path.cwd()),
            new_session=bool(given["start_new_session"]),
            files=files,
        )
        self._child_created = True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in ends))  # type: ignore[attr-defined]  # it is the base's own


def environment(given: Mapping[str, Any]) -> Mapping[str, str]:
    return os.environ if given["env"] is None else given["env"]


def is_for_a_fork(given: Mapping[str, Any]) -> bool:
    """Whether a fork of the nursery would be what this `Popen` asks for."""
    command = given["args"]
    return (
        isinstance(command, list)
        and len(command) > 2
        and command[0] == sys.executable
        and command[1] in ("-m", "-c")
        and all(given.get(name, plain) == plain for name, plain in PLAIN.items())
        and read_at_start(environment(given)) == nursery().environment
        and nursery().owner == os.getpid()
    )


def read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(READ_AT_START)}


@functools.cache
def nursery() -> Nursery:
    """That of this process."""
    ours, theirs = socket.socketpair()
    with theirs:
        popen = _start(
            [sys.executable, "-m", "tests.nursery", str(theirs.fileno())],
            cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip

    @atexit.register
    def close() -> None:
        if os.getpid() == made.owner:
            ours.close()
            popen.wait()

    made = Nursery(ours)
    return made


class Nursery:
    """The process that others are forked from."""

    def __init__(self, line: socket.socket) -> None:
        self.owner = os.getpid()
        self.environment = read_at_start(os.environ)
        self._line = line
        self._lock = threading.Lock()

    def bear(self, *, files: dict[int, int], **order: Any) -> int:
        """The id of a new process, a child of this one; ``files`` are ours by the numbers that it knows them by."""
        body = json.dumps({**order, "files": list(files), "parent": self.owner}).encode()
        with self._lock, orphans_adopted():
            socket.send_fds(self._line, [SIZE.pack(len(body))], list(files.values()))
            self._line.sendall(body)
            (pid,) = SIZE.unpack(self._line.recv(SIZE.size, socket.MSG_WAITALL))
        return int(pid)


@contextlib.contextmanager
def orphans_adopted() -> Iterator[None]:
    """Descendants whose parent ends become our children: so a nursery hands over what it bears."""
    before = ctypes.c_int()
    _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    _prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))
    try:
        yield
    finally:
        _prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(before.value))


def _prctl(option: int, value: Any) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, *(ctypes.c_ulong(0),) * 3):
        raise OSError(ctypes.get_errno(), "prctl")
