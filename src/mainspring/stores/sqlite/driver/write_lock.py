"""Taking the write lock of the file, and letting other processes have it.

SQLite's lock is not fair: a process that writes all the time gets it again and again. So a process that waits for the
lock holds a shared ``flock`` on a file beside the database, and a writer that finds that file locked pauses after its
commit for about as long as it wrote. The kernel releases the ``flock`` when a process dies, so no writer pauses for a
dead process.
"""

# SQLite names files by text, and some of this is asked at every commit:
# ruff: noqa: PTH116, PTH123

from __future__ import annotations

import os
import sqlite3
import time

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

    def let_others_pass(self, began: float) -> None:
        """Pause after a commit if another process waits. Checks once a millisecond at most: no process waits less."""
        now = time.perf_counter()
        if now - self._checked < SHORTEST_PAUSE:
            return
        self._checked = now
        file = self._opened()
        if file is None:
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(min(max(now - began, SHORTEST_PAUSE), LONGEST_PAUSE))
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
