"""Taking the write lock of the file, letting other processes have it, and syncing the log without it.

SQLite's lock is not fair: a process that writes all the time gets it again and again. So a process that waits for the
lock holds a shared ``flock`` on a file beside the database, and a writer that finds that file locked pauses after its
commit for about as long as it wrote. The kernel releases the ``flock`` when a process dies, so no writer pauses for a
dead process.

The log is synced after a commit, when the write lock is free again. With ``pragma synchronous = full`` SQLite syncs its
log inside ``COMMIT`` and keeps the write lock meanwhile, so each process waits for the syncs of all others. Our
connections commit with ``normal``, which writes to the log without a sync. The process then syncs the log itself, and
only then answers the caller. Syncs of several processes run at the same time, and a sync covers all earlier commits,
whichever process made them.

After a failed sync the kernel takes the log for written, and a later sync succeeds although the disk lacks a part of
the log. All commits behind this part would be lost at a power cut. So before its next commit the process writes the
whole log again, with the same bytes, and syncs it. All processes that have the log open at the failure learn of it.

Other processes see a commit a moment before it is on the disk. What they write is behind it in the log. So when their
own write is on the disk, all that they had read is on the disk too.
"""

# SQLite names files by text, and some of this is asked at every commit:
# ruff: noqa: PTH116, PTH123

from __future__ import annotations

import errno
import os
import sqlite3
import time
from contextlib import suppress

from mainspring.common.pause import jittered

from .errors import is_busy
from .files import NO_LINK

try:
    import fcntl
except ImportError:  # Windows has no flock: only the short random waits below make the lock fairer
    fcntl = None  # type: ignore[assignment]  # the code asks for None before it uses the module

PATIENCE, OWN_PATIENCE = 8.0, 2.0
"""Seconds to wait for the lock of another process, and for a lock that this process holds itself."""
_WRITE_LOCK = "120 120"  # the byte of the -shm file that a writer locks, as /proc/locks shows it
SHORTEST_PAUSE, LONGEST_PAUSE = 0.001, 0.004
FIRST_WAIT, WAIT_GROWTH = 0.0005, 1.5
_PIECE = 1 << 20
"""How many bytes of the log are written again at a time."""
_sync = getattr(os, "fdatasync", os.fsync)


class WriteLock:
    """The file that shows which processes wait. ``database`` None: a database in memory, never shared."""

    def __init__(self, database: str | None, path: str | None) -> None:
        self._database = database
        self._path = path
        self._file: int | None = None
        self._checked = 0.0

    def show_waiting(self) -> bool:
        """Show other processes that this one waits for the lock. False if a process looks at the file at this moment.
        That process may be stopped, so this call does not wait for it."""
        if (file := self._opened()) is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return False
        return True

    def stop_waiting(self) -> None:
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def let_others_pass(self, began: float, committed: float) -> None:
        """Pause if another process waits, about as long as this one held the lock, from ``began`` to ``committed``.

        The time since the commit counts: the lock was free. Checks once a millisecond at most: no process waits less.
        """
        now = time.perf_counter()
        pause = min(max(committed - began, SHORTEST_PAUSE), LONGEST_PAUSE) - (now - committed)
        if pause <= 0 or now - self._checked < SHORTEST_PAUSE:
            return
        self._checked = now
        file = self._opened()
        if file is None:
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(pause)
        else:
            fcntl.flock(file, fcntl.LOCK_UN)

    def is_held_by_this_process(self) -> bool:
        """Whether another connection of this process has the write lock. Known on Linux only; False elsewhere."""
        try:
            inode = os.stat(f"{self._database}-shm").st_ino
            with open("/proc/locks", encoding="ascii") as locks:
                return any(f"WRITE {os.getpid()} " in line and f":{inode} {_WRITE_LOCK}" in line for line in locks)
        except OSError:
            return False

    def _opened(self) -> int | None:
        if self._file is None and self._path is not None and fcntl is not None:
            try:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | NO_LINK, 0o600)
            except OSError:
                self._path = None  # the lock works without the file, it is only less fair
        return self._file

    def close(self) -> None:
        """Close the file. Call it in a forked child too: the inherited descriptor shares its lock with the parent's."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        """A program need not close its app."""
        self.close()


def begin(cursor: sqlite3.Cursor, lock: WriteLock, until: float | None = None, *, may_give_up: bool = False) -> bool:
    """``BEGIN IMMEDIATE``, waiting for other writers until ``until`` (monotonic), else for up to 8 s.

    With ``may_give_up``, 2 s if the other writer is in this very process: most likely it is the caller's own open
    transaction, which cannot end before this call returns. Returns whether it waited.
    """
    try:
        cursor.execute("begin immediate")
        return False
    except sqlite3.OperationalError as error:
        if not is_busy(error):
            raise
    try:
        _begin_again(cursor, lock, time.monotonic() + PATIENCE if until is None else until, may_give_up=may_give_up)
    finally:
        lock.stop_waiting()
    return True


def _begin_again(cursor: sqlite3.Cursor, lock: WriteLock, until: float, *, may_give_up: bool) -> None:
    own_until, longest = time.monotonic() + OWN_PATIENCE, FIRST_WAIT
    is_shown = False
    while True:
        is_shown = is_shown or lock.show_waiting()
        time.sleep(jittered(longest, least=0.25))
        longest = min(longest * WAIT_GROWTH, LONGEST_PAUSE / 2)
        try:
            cursor.execute("begin immediate")
            return
        except sqlite3.OperationalError as error:
            now = time.monotonic()
            if not is_busy(error) or now > until:
                raise
            if may_give_up and now > own_until:
                if lock.is_held_by_this_process():
                    raise
                may_give_up = False


class LogSync:
    """Syncs the log of one writing connection. ``database`` None: does nothing, for ``normal`` and in memory."""

    def __init__(self, database: str | None) -> None:
        self._database = database
        self._connection: sqlite3.Connection | None = None
        self._synced = 0
        """How many rows the connection had changed at its last sync."""
        self._file: int | None = None
        self.has_failed = False
        """A sync has failed, and the log was not written again since. It stays true for the next connection."""

    @property
    def is_active(self) -> bool:
        return self._database is not None

    def attach(self, connection: sqlite3.Connection) -> None:
        """Take over the syncs of a connection that was opened with ``synchronous = full``."""
        if self._database is None:
            return
        connection.execute("pragma synchronous = normal")
        self._connection, self._synced = connection, connection.total_changes
        with suppress(OSError):  # open now, to learn of a failed sync of another process; sync() tries again
            self._open()

    def sync(self) -> None:
        """Sync what the connection has committed since the last call. Raises ``OSError``: it may not be on the disk."""
        if self._connection is None or self._connection.total_changes == self._synced:
            return
        changes = self._connection.total_changes
        if self.has_failed:
            raise OSError(errno.EIO, "an earlier sync has failed")
        file = self._open()
        try:
            _sync(file)
        except OSError:
            self.has_failed = True
            raise
        self._synced = changes

    def write_again(self) -> None:
        """Write the whole log again if a sync has failed, and sync it. Raises ``OSError``: no commit may follow.

        Call it with the write lock, so that nothing else writes to the log.
        """
        if not self.has_failed:
            return
        file, at = self._open(), 0
        while piece := _read_at(file, at):
            os.lseek(file, at, os.SEEK_SET)
            at += os.write(file, piece)
        _sync(file)
        self.has_failed = False

    def _open(self) -> int:
        if self._file is None:
            self._file = os.open(f"{self._database}-wal", os.O_RDWR | os.O_CLOEXEC)
        return self._file

    def detach(self) -> None:
        """The connection is about to be closed. SQLite has no lock on the log, so closing it here releases none."""
        self._connection = None
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _read_at(file: int, at: int) -> bytes:
    os.lseek(file, at, os.SEEK_SET)
    return os.read(file, _PIECE)
