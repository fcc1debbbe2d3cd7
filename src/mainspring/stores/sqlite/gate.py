"""Taking the file's write lock, and letting other processes have it.

SQLite's lock is not fair: a process that writes all the time gets it again and again. So whoever
waits for the lock holds a shared ``flock`` on a file beside the database, and a writer that finds
that file taken pauses after its commit for about as long as it wrote. The kernel gives the
``flock`` back when a process dies, so nobody waits for the dead.
"""

# SQLite names files by text, and some of this is asked at every commit:
# ruff: noqa: PTH116, PTH123

from __future__ import annotations

import os
import random
import sqlite3
import time

from .errors import is_busy
from .files import NO_LINK

try:
    import fcntl
except ImportError:  # Windows: no flock; the short random waits below are what is left of fairness
    fcntl = None  # type: ignore[assignment]

PATIENCE, OWN_PATIENCE = 8.0, 2.0
_WRITE_LOCK = "120 120"  # the byte of the -shm file that a writer locks, as /proc/locks shows it
SHORTEST_PAUSE, LONGEST_PAUSE = 0.001, 0.004


class Gate:
    """``database`` None: one in memory, that nobody else can open."""

    def __init__(self, database: str | None, path: str | None) -> None:
        self._database = database
        self._path = path
        self._file: int | None = None
        self._looked = 0.0

    def wait_openly(self) -> None:
        """Show that this process wants the lock."""
        if (file := self._opened()) is not None:
            fcntl.flock(file, fcntl.LOCK_SH)

    def stop_waiting(self) -> None:
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def let_pass(self, began: float) -> None:
        """After a commit: pause if somebody waits. Looks each millisecond at most: nobody waits less."""
        now = time.perf_counter()
        if now - self._looked < SHORTEST_PAUSE:
            return
        self._looked = now
        file = self._opened()
        if file is None:
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(min(max(now - began, SHORTEST_PAUSE), LONGEST_PAUSE))
        else:
            fcntl.flock(file, fcntl.LOCK_UN)

    def held_by_this_process(self) -> bool:
        """Whether another connection of this process has the write lock (Linux; elsewhere unknown, so no)."""
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
                self._path = None  # unfair, but right
        return self._file

    def close(self) -> None:
        """Also in a forked child: the inherited descriptor shares its lock with the parent's."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def begin(cursor: sqlite3.Cursor, gate: Gate, *, may_give_up: bool = False) -> None:
    """``BEGIN IMMEDIATE``, waiting up to 8 s for other writers.

    With ``may_give_up``, 2 s when the other writer is in this very process: most likely it is the
    caller's own open transaction, which cannot end before this call returns.
    """
    try:
        cursor.execute("begin immediate")
        return
    except sqlite3.OperationalError as error:
        if not is_busy(error):
            raise
    gate.wait_openly()
    try:
        _begin_again(cursor, gate, may_give_up=may_give_up)
    finally:
        gate.stop_waiting()


def _begin_again(cursor: sqlite3.Cursor, gate: Gate, *, may_give_up: bool) -> None:
    began, longest = time.monotonic(), 0.0005
    while True:
        time.sleep(random.uniform(longest / 4, longest))
        longest = min(longest * 1.5, LONGEST_PAUSE / 2)
        try:
            cursor.execute("begin immediate")
            return
        except sqlite3.OperationalError as error:
            waited = time.monotonic() - began
            if not is_busy(error) or waited > PATIENCE:
                raise
            if may_give_up and waited > OWN_PATIENCE:
                if gate.held_by_this_process():
                    raise
                may_give_up = False
