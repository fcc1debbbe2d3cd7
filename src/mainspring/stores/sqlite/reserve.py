"""Room for acks on a full disk.

A file of 4 MiB stands beside the database. Enqueue is refused while less than 8 MiB are free, so
what runs can still be reported; if the disk fills up all the same (other programs write too), the
file is given up and acks, turns and beats go on in its place. It is made again when room is back.
"""

# SQLite names files by text, and some of this is asked at every commit:
# ruff: noqa: PTH108, PTH110, PTH120

from __future__ import annotations

import os
import time
from contextlib import suppress

from mainspring.common.clock import LONG_AGO
from mainspring.errors import StoreFull

from .files import NO_LINK

SIZE = 4 * 1024 * 1024
LOW = 2 * SIZE


class Reserve:
    """``path`` None: a database without a disk."""

    def __init__(self, path: str | None, url: str) -> None:
        self._path = path
        self._url = url
        self._there = False
        self._looked = LONG_AGO
        self._free = LOW

    def check(self) -> None:
        """Before an enqueue: ``StoreFull`` while the disk is nearly full. Looks at most once a second."""
        if self._path is None:
            return
        now = time.monotonic()
        if now - self._looked >= 1.0:
            self._looked = now
            self.look()
        if self._free < LOW:
            raise StoreFull(
                f"only {self._free // 1024:,} KiB are free on the disk: no new jobs are taken",
                url=self._url,
                hint="Make room on the disk. Jobs that are stored run on and are reported.",
            )

    def look(self) -> None:
        """See how much is free; make the reserve again when there is room for it."""
        assert self._path is not None
        try:
            self._free = free_space(os.path.dirname(self._path))
        except OSError:
            return  # no such directory: opening the file says so
        if not self._there and (self._free >= LOW + SIZE or os.path.exists(self._path)):
            self._make()

    def release(self) -> bool:
        """Give the room to the database. Whether there was a reserve, of this process or another."""
        if self._path is None or not self._there:
            return False
        self._there = False
        self._free, self._looked = 0, time.monotonic()
        with suppress(FileNotFoundError):
            os.unlink(self._path)
        return True

    def _make(self) -> None:
        assert self._path is not None
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | NO_LINK, 0o600)
        except OSError:
            return
        try:
            if os.fstat(file).st_size < SIZE:
                _allocate(file)
            self._there = True
        except OSError:
            os.unlink(self._path)
        finally:
            os.close(file)


def free_space(folder: str) -> int:
    """Bytes that this user may still write there."""
    if not hasattr(os, "statvfs"):
        import shutil

        return shutil.disk_usage(folder).free
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _allocate(file: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, SIZE)
    else:
        os.write(file, b"\0" * SIZE)
