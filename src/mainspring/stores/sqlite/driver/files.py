"""The file of the database: where it may be, whether it is sound, whether it was replaced, and space for acks.

A file that was deleted or replaced lives on behind its open handles: old processes would go on writing where new ones
never look. So a connection compares the file at its path with the file that it opened, once a second at most
(:class:`FileIdentity`).

A full disk must not lose acks. A reserve file of 4 MiB lies beside the database. Enqueue is refused while less than
8 MiB are free, so running jobs can still be acked. If the disk fills up all the same, because other programs write too,
the reserve file is deleted and acks, turns and beats use its space. It is made again when the disk has space again
(:class:`DiskReserve`).
"""

# SQLite names files by text, and some of this is asked at every commit:
# ruff: noqa: PTH108, PTH110, PTH112, PTH116, PTH120, PTH123

from __future__ import annotations

import os
import re
import sqlite3
import time
from contextlib import suppress

from mainspring.common.clock import LONG_AGO
from mainspring.errors import StoreCorrupt, StoreFull, StoreMisconfigured, StoreReadOnly, UnsupportedFileSystem

NETWORK = frozenset(
    (
        "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.ceph", "fuse.davfs2", "fuse.gcsfuse",
        "fuse.glusterfs", "fuse.goofys", "fuse.grpcfuse", "fuse.juicefs", "fuse.mfs", "fuse.rclone", "fuse.s3fs",
        "fuse.smbnetfs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2",
        "orangefs", "osxfs", "smb3", "smbfs",
    )
)  # fmt: skip
"""Types of file systems on which SQLite's locks do not work."""
OLDEST_SQLITE = (3, 40)
CHECK_SECONDS = 0.1
CHECK_STEPS = 20_000
"""Steps of SQLite's virtual machine between two looks at the clock."""
LOOK_SECONDS = 1.0
"""Seconds between two looks at the file, and at the free space of the disk."""
RESERVE_SIZE = 4 * 1024 * 1024
LOW_SPACE = 2 * RESERVE_SIZE

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""The open flag for files beside the database: do not follow a link that another user put there."""


def prepare(path: str, url: str) -> None:
    """Check the directory, and make the file for its owner only. Never opens a file that exists:
    closing a descriptor of a database drops every lock that this process has on it.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreMisconfigured(
            f"SQLite {sqlite3.sqlite_version} is too old", url=url, hint="Mainspring needs SQLite 3.40 or newer."
        )
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise StoreMisconfigured("the directory of the SQLite file does not exist", url=url, hint=f"mkdir -p {folder}")
    kind = file_system(folder, _mounts())
    if kind in NETWORK:
        raise UnsupportedFileSystem(
            f"{folder} is on a network file system ({kind}), where SQLite's locks do not hold",
            url=url,
            hint="Put the file on a local disk, or use PostgreSQL or Redis for several machines.",
        )
    if os.path.isdir(path):
        raise StoreCorrupt("the path of the SQLite file is a directory", url=url, hint="Name a file inside it.")
    _create(path, url)


def _create(path: str, url: str) -> None:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise _read_only(url, f"the SQLite file cannot be made: {error.strerror}") from error
    if not (os.access(path, os.R_OK | os.W_OK) and os.access(os.path.dirname(path), os.W_OK)):
        raise _read_only(url, "the SQLite file or its directory is read-only for this user")


def _read_only(url: str, what: str) -> StoreReadOnly:
    hint = "Give this user write permission on the file and on its directory: SQLite writes beside the file too."
    return StoreReadOnly(what, url=url, hint=hint)


def _mounts() -> str:
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as opened:
            return opened.read()
    except OSError:
        return ""


def file_system(folder: str, mounts: str) -> str:
    """The type of the file system that holds ``folder``, from the text of ``mountinfo``; empty if unknown."""
    folder = os.path.realpath(folder)
    best, kind = -1, ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        if not right:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), left.split()[4])
        if len(point) >= best and (folder + "/").startswith(point.rstrip("/") + "/"):
            best, kind = len(point), right.split()[0]
    return kind


def check_content(connection: sqlite3.Connection, url: str) -> None:
    """Run SQLite's quick check for at most 0.1 s: of all of a small file, of the beginning of a large one."""
    until = time.monotonic() + CHECK_SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > until, CHECK_STEPS)
    try:
        found = connection.execute("pragma quick_check(1)").fetchall()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return
    finally:
        connection.set_progress_handler(None, 0)
    if found != [("ok",)]:
        raise StoreCorrupt(
            f"the SQLite file is damaged: {found[0][0]}",
            url=url,
            hint="Stop every process that uses it, keep a copy, and restore a backup or try: sqlite3 FILE .recover",
        )


class FileIdentity:
    """Whether the path still names the file that was opened. ``path`` None: a database in memory, never replaced."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._known: tuple[int, int] | None = None
        self._looked = LONG_AGO

    def remember(self) -> None:
        """Remember the file: a connection was opened just now."""
        self._known = self._look()

    def has_changed(self) -> bool:
        """Whether the path names another file than the one that was opened, or none."""
        now = time.monotonic()
        if self._path is None or now - self._looked < LOOK_SECONDS:
            return False
        self._looked = now
        return self._known is not None and self._look() != self._known

    def _look(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path or "")
        except OSError:
            return None
        return found.st_dev, found.st_ino


class DiskReserve:
    """The reserve file beside the database. ``path`` None: a database in memory, without a disk."""

    def __init__(self, path: str | None, url: str) -> None:
        self._path = path
        self._url = url
        self._exists = False
        self._looked = LONG_AGO
        self._free = LOW_SPACE

    def check(self) -> None:
        """Raise ``StoreFull`` before an enqueue while the disk is nearly full. Reads the free space once a second."""
        if self._path is None:
            return
        now = time.monotonic()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self.look()
        if self._free < LOW_SPACE:
            raise StoreFull(
                f"only {self._free // 1024:,} KiB are free on the disk: new jobs are refused",
                url=self._url,
                hint="Free disk space. Stored jobs still run, and their results are still stored.",
            )

    def look(self) -> None:
        """Read how much is free; make the reserve again if the disk has space for it."""
        assert self._path is not None
        try:
            self._free = free_space(os.path.dirname(self._path))
        except OSError:
            return  # no such directory: opening the file raises the error
        if not self._exists and (self._free >= LOW_SPACE + RESERVE_SIZE or os.path.exists(self._path)):
            self._make()

    def release(self) -> bool:
        """Delete the reserve for the database. Returns whether there was one, made by this process or another."""
        if self._path is None or not self._exists:
            return False
        self._exists = False
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
            if os.fstat(file).st_size < RESERVE_SIZE:
                _allocate(file)
            self._exists = True
        except OSError:
            os.unlink(self._path)
        finally:
            os.close(file)


def free_space(folder: str) -> int:
    """Bytes that this user may still write in the directory."""
    if not hasattr(os, "statvfs"):
        import shutil

        return shutil.disk_usage(folder).free
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _allocate(file: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, RESERVE_SIZE)
    else:
        os.write(file, b"\0" * RESERVE_SIZE)
