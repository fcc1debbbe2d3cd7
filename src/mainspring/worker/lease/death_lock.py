"""Proof of death by the kernel: each worker process holds a file lock, which the kernel releases when the process ends.

A host name and a pid prove nothing: containers share host names, and pids are reused. A lock on an open file is a
proof: the kernel releases it when the last process that has the file open has ended, and never before. The lock is held
by the worker, by every child process of it that may run a body, and by the supervisor until it has given the jobs back.
So no other worker records a crash for jobs that the supervisor knows to be innocent.

The proof counts only under the same boot and in the same pid namespace, and only if the same file can be opened and
locked. In every other case the answer is "unknown", and the lease decides.
"""

from __future__ import annotations

import os
import secrets
import stat
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from mainspring.errors import UseError

_STALE = 3600.0  # seconds after which a lock file that no process holds is deleted
_FILES_PER_SECOND = 100  # lock files that one worker tries, on average
REPORTS = 5
"""How often one worker reports one released lock file: a rescue may fail, and is then tried again."""


class DeathLock:
    """A lock file that this process holds. Children that inherit ``fd`` hold it too."""

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path

    @classmethod
    def create(cls) -> DeathLock:
        """Create a lock file and lock it."""
        import fcntl  # missing on Windows, where no worker has a proof of death

        path = runtime_dir() / f"{secrets.token_hex(8)}.lock"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        return cls(fd, str(path))

    def facts(self) -> dict[str, str]:
        """What another worker needs to check the lock. Part of the worker's registration."""
        return {"boot": boot_id(), "pidns": pid_namespace(), "lock": self.path}

    def close(self, *, unlink: bool = False) -> None:
        """Release the lock in this process. With ``unlink``, also delete the file: the proof is not needed any more."""
        if unlink:
            Path(self.path).unlink(missing_ok=True)
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def is_dead(info: bytes) -> bool:
    """Whether the worker that registered ``info`` is proven dead. False means "unknown"."""
    lock = _lock_path(info)
    if lock is None:
        return False
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return _can_lock(fd) and os.fstat(fd).st_nlink > 0
    finally:
        os.close(fd)


class HostWatch:
    """Notices the death of other workers of this host without asking the store.

    Each look tries the lock files of the host. A lock file belongs to a worker of any store, and stays until the jobs
    of its worker were rescued. So a file that no process holds is reported ``REPORTS`` times at most.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._next = 0.0
        self._reports: dict[str, int] = {}

    def has_found_death(self) -> bool:
        """Whether a worker of this host has died and may still hold jobs. With many workers, not every call looks."""
        if self._now() < self._next:
            return False
        names = _list_locks()
        self._next = self._now() + len(names) / _FILES_PER_SECOND
        known = {name: count for name, count in self._reports.items() if name in names}
        found = [name for name in names if known.get(name, 0) < REPORTS and _is_released(name)]
        self._reports = known | {name: known.get(name, 0) + 1 for name in found}
        return bool(found)


def _list_locks() -> frozenset[str]:
    try:
        return frozenset(path.name for path in runtime_dir().glob("*.lock"))
    except (UseError, OSError, AttributeError):  # this process has no such directory, or the system has no lock files
        return frozenset()


def _is_released(name: str) -> bool:
    try:
        fd = os.open(runtime_dir() / name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return _can_lock(fd)
    finally:
        os.close(fd)


def remove_lock(info: bytes) -> None:
    """Delete the lock file of a worker whose death was proven and whose jobs were rescued."""
    lock = _lock_path(info)
    if lock is not None and is_dead(info):
        lock.unlink(missing_ok=True)


def remove_stale_locks() -> int:
    """Delete lock files that are older than an hour and that no process holds. Returns their number."""
    removed = 0
    for path in runtime_dir().glob("*.lock"):
        try:
            old = time.time() - path.stat().st_mtime > _STALE
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW) if old else -1
        except OSError:
            continue
        if fd >= 0:
            if _can_lock(fd):
                path.unlink(missing_ok=True)
                removed += 1
            os.close(fd)
    return removed


def runtime_dir() -> Path:
    """A directory that only this user can read: ``$XDG_RUNTIME_DIR/mainspring``, or one in the temporary directory."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(base) / "mainspring" if base and Path(base).is_dir() else _temp_dir() / f"mainspring-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    seen = folder.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid() or seen.st_mode & 0o077:
        raise UseError(
            f"{folder} is not a private directory of this user",
            hint="Another user created it. Remove it, or set XDG_RUNTIME_DIR to a directory with mode 0700.",
        )
    return folder


@cache
def boot_id() -> str:
    """A text that differs after each start of the machine; empty if the system does not have one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return _boot_time()


def pid_namespace() -> str:
    """The pid namespace of this process: each container has its own."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return sys.platform  # this system has no namespaces: one per machine


def _boot_time() -> str:
    import psutil

    return f"{psutil.boot_time():.0f}"


def _temp_dir() -> Path:
    import tempfile

    return Path(tempfile.gettempdir())


def _lock_path(info: bytes) -> Path | None:
    """The lock file that ``info`` names, if this process can use it as a proof; otherwise None."""
    try:
        facts: Any = msgspec.json.decode(info)
        boot, pidns, lock = facts["boot"], facts["pidns"], facts["lock"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return None
    if not boot or boot != boot_id() or pidns != pid_namespace() or not isinstance(lock, str):
        return None
    path = Path(lock)
    try:
        return path if path.name.endswith(".lock") and path.parent == runtime_dir() else None
    except (UseError, OSError):  # this process has no directory for lock files: unknown
        return None


def _can_lock(fd: int) -> bool:
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
