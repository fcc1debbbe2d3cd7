"""Processes: what the kernel knows about them, and how to kill a worker with all its descendants (its *family*).

A worker leads its own session and has a mark in its environment, which all its descendants inherit. So they are found
even after they forked twice or started a session of their own. The supervisor is a sub-reaper: orphans of a dead worker
become children of the supervisor instead of init, and none is missed. macOS has no sub-reaper and no signal at a
parent's death: there the end of the pipe to the parent is used instead.
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
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_LINUX = sys.platform.startswith("linux")


class Stat(NamedTuple):
    """A row of the process table."""

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


def python_command(*arguments: str) -> list[str]:
    """The command that runs this Python with these arguments. Works also inside a server that embeds Python."""
    own = Path(sys.executable or "")
    if not own.name.lower().startswith(("python", "pypy")):
        own = Path(sys.exec_prefix) / "bin" / f"python{sys.version_info.major}"
    return [str(own), *arguments]


def read_stat(pid: int) -> Stat | None:
    """The row of ``pid`` in the process table; None if there is no such process."""
    if not _LINUX:
        return _read_stat_by_psutil(pid)
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)  # takes a third of the time of Path
    except OSError:
        return None
    try:
        raw = os.read(fd, 4096)
    except OSError:
        return None
    finally:
        os.close(fd)
    state, parent, group, session = raw[raw.rindex(b")") + 2 :].split(None, 4)[:4]  # the name may contain any character
    return Stat(pid, state.decode(), int(parent), int(group), int(session))


def read_rss(pid: int) -> int:
    """The bytes of memory that a process uses now; 0 if there is no such process."""
    if not _LINUX:
        import psutil

        try:
            return int(psutil.Process(pid).memory_info().rss)
        except psutil.Error:
            return 0
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def become_subreaper() -> bool:
    """Orphaned descendants become children of this process. False if the system does not support it."""
    return _LINUX and _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int, seconds: int = 5) -> bool:
    """When ``parent`` dies, the kernel kills this process ``seconds`` (5 or 6) later, whatever it does then.

    Until then this process may hand back its jobs. The signal of the parent's death cannot be handled in Python,
    because C code may hold the GIL. So its handler is the function ``alarm`` of the C library, which gets the number of
    the signal, 5 or 6, as its argument, the seconds. The default action of the alarm ends the process. The signal
    follows the *thread* that started this process: that thread must live as long as the parent. Returns False if the
    system does not support it. If the parent is dead already, this process ends at once.
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
    supported = _prctl(_PR_SET_PDEATHSIG, int(number))
    if os.getppid() != parent:
        os._exit(1)
    return supported


def list_family(leader: int, mark: str) -> list[int]:
    """The live processes that descend from a worker, with the worker itself, also after the worker has died."""
    table = [stat for stat in map(read_stat, _pids()) if stat is not None and not stat.gone]
    members = {leader}
    growing = True
    while growing:
        before = len(members)
        members.update(stat.pid for stat in table if stat.parent in members or stat.session == leader)
        growing = len(members) > before
    members.update(stat.pid for stat in table if stat.pid not in members and _has_mark(stat.pid, mark))
    alive = {stat.pid for stat in table}
    return sorted((members & alive) - {os.getpid()})


def kill_family(leader: int, mark: str) -> list[int]:
    """Send SIGKILL to a worker's process group and to every descendant. Returns the pids that were alive."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    alive = list_family(leader, mark)
    for pid in alive:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return alive


def reap_orphans(known: frozenset[int]) -> None:
    """Reap dead children that no other code waits for: orphans that this process got as sub-reaper.

    ``known`` are the workers. Children in our own session are left alone: the program around us may wait for them.
    """
    own = os.getsid(0)
    with contextlib.suppress(ChildProcessError):
        while (dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            stat = read_stat(dead.si_pid)
            if dead.si_pid in known or stat is None or stat.session == own:
                return  # other code reaps this one; the next call sees the next one
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


def _has_mark(pid: int, mark: str) -> bool:
    """Whether the process inherited the mark. A process whose environment cannot be read belongs to another user."""
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


def _read_stat_by_psutil(pid: int) -> Stat | None:
    import psutil

    try:
        process = psutil.Process(pid)
        state = {psutil.STATUS_STOPPED: "T", psutil.STATUS_ZOMBIE: "Z", psutil.STATUS_DEAD: "X"}
        return Stat(pid, state.get(process.status(), "S"), process.ppid(), os.getpgid(pid), os.getsid(pid))
    except (psutil.Error, OSError):
        return None
