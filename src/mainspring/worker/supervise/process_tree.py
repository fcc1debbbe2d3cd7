"""Processes: what the kernel knows of them, and how a whole family is ended for certain.

A worker leads its own session and carries a mark in its environment that all its descendants inherit,
so they are found even after they forked twice or took a session of their own. The supervisor is
a sub-reaper: orphans of a dead worker become its children instead of init's, and none is missed.
On macOS there is no sub-reaper and no signal at a parent's death: the pipe to the parent stands in.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import NamedTuple

MARK = "MAINSPRING_FAMILY"
"""Environment variable that names the worker process a process descends from."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LINUX = sys.platform.startswith("linux")


class Stat(NamedTuple):
    """A line of the process table."""

    pid: int
    state: str
    """R running, S sleeping, D in the kernel, T stopped, t traced, Z dead but not reaped."""
    parent: int
    group: int
    session: int

    @property
    def stopped(self) -> bool:
        return self.state in "Tt"

    @property
    def gone(self) -> bool:
        return self.state in "ZX"


def python(*arguments: str) -> list[str]:
    """The command that runs this Python with these arguments, also inside a server that embeds it."""
    own = Path(sys.executable or "")
    if not own.name.lower().startswith(("python", "pypy")):
        own = Path(sys.exec_prefix) / "bin" / f"python{sys.version_info.major}"
    return [str(own), *arguments]


def stat_of(pid: int) -> Stat | None:
    """What the process table says of ``pid``; None when there is no such process."""
    if not _LINUX:
        return _stat_by_psutil(pid)
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)  # a third of the time that Path takes
    except OSError:
        return None
    try:
        raw = os.read(fd, 4096)
    except OSError:
        return None
    finally:
        os.close(fd)
    state, parent, group, session = raw[raw.rindex(b")") + 2 :].split(None, 4)[:4]  # the name may hold anything
    return Stat(pid, state.decode(), int(parent), int(group), int(session))


def become_subreaper() -> bool:
    """Orphaned descendants become children of this process. False where the system has no such thing."""
    return _LINUX and _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int, seconds: int = 5) -> bool:
    """When ``parent`` dies, this process is killed by the kernel ``seconds`` (5 or 6) later, whatever it does then.

    Until then it may hand back its jobs. The signal of the parent's death cannot be handled in Python,
    for the GIL may be held in C code; so its handler is the C library's ``alarm`` itself, which gets the
    number of the signal, 5 or 6, as its seconds. The alarm's default action ends the process.
    Follows the *thread* that started this process: it must live as long as the parent does.
    Returns False where the system has no such thing. Ends at once if the parent is dead already.
    """
    if not _LINUX:
        return False
    import ctypes

    number = {5: signal.SIGTRAP, 6: signal.SIGABRT}[seconds]
    libc = ctypes.CDLL(None, use_errno=True)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    libc.signal.restype = ctypes.c_void_p
    libc.signal(int(number), ctypes.cast(libc.alarm, ctypes.c_void_p))
    set_ = _prctl(_PR_SET_PDEATHSIG, int(number))
    if os.getppid() != parent:
        os._exit(1)
    return set_


def family(leader: int, mark: str) -> list[int]:
    """The living processes that descend from a worker, itself included, whether or not it still lives."""
    table = [stat for stat in map(stat_of, _pids()) if stat is not None and not stat.gone]
    members = {leader}
    growing = True
    while growing:
        before = len(members)
        members.update(stat.pid for stat in table if stat.parent in members or stat.session == leader)
        growing = len(members) > before
    members.update(stat.pid for stat in table if stat.pid not in members and _carries(stat.pid, mark))
    alive = {stat.pid for stat in table}
    return sorted((members & alive) - {os.getpid()})


def kill_family(leader: int, mark: str) -> list[int]:
    """SIGKILL to a worker's group and to every descendant; returns who was there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    there = family(leader, mark)
    for pid in there:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return there


def reap_orphans(known: frozenset[int]) -> None:
    """Take the exit of dead children that nobody else waits for: orphans that came to us as sub-reaper.

    Children of our own session are not ours to take: the program around us may wait for them.
    """
    own = os.getsid(0)
    with contextlib.suppress(ChildProcessError):
        while (dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            stat = stat_of(dead.si_pid)
            if dead.si_pid in known or stat is None or stat.session == own:
                return  # its owner takes it; then we see the next one
            os.waitpid(dead.si_pid, os.WNOHANG)


def _prctl(option: int, value: int) -> bool:
    import ctypes

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return int(prctl(option, ctypes.c_ulong(value), *(ctypes.c_ulong(0),) * 3)) == 0


def _pids() -> list[int]:
    if _LINUX:
        return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    import psutil

    return psutil.pids()


def _carries(pid: int, mark: str) -> bool:
    """Whether the process inherited the mark. What cannot be read belongs to somebody else."""
    try:
        if _LINUX:
            return f"{MARK}={mark}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        import psutil

        return psutil.Process(pid).environ().get(MARK) == mark
    except (OSError, ImportError):
        return False
    except Exception as error:
        if type(error).__module__.partition(".")[0] == "psutil":
            return False
        raise


def _stat_by_psutil(pid: int) -> Stat | None:
    import psutil

    try:
        process = psutil.Process(pid)
        state = {psutil.STATUS_STOPPED: "T", psutil.STATUS_ZOMBIE: "Z", psutil.STATUS_DEAD: "X"}
        return Stat(pid, state.get(process.status(), "S"), process.ppid(), os.getpgid(pid), os.getsid(pid))
    except (psutil.Error, OSError):
        return None
