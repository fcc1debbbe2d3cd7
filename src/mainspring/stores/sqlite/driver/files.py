"""The file of the database: where it may be, whether it is sound, whether it was replaced, and space for acks.

A file that was deleted or replaced lives on behind its open handles: old processes would go on writing where new ones
never look. Worse, SQLite finds the write-ahead log by the name of the file: it would apply the log of the old file to
the new one, and damage it. So a connection compares the file at its path with the file that it opened before each write
transaction (:class:`FileIdentity`), and no process opens a file while another process has a file open that was at the
same path before (:class:`FileUsers`).

A full disk must not lose acks. A reserve file of 4 MiB lies beside the database. Enqueue is refused while less than
8 MiB are free, so running jobs can still be acked. If the disk fills up all the same, because other programs write too,
the reserve file is deleted and acks, turns and beats use its space. It is made again when the disk has space again
(:class:`DiskReserve`).
"""

# SQLite names files by text, and some of this is asked at every commit:
# ruff: noqa: PTH105, PTH108, PTH110, PTH112, PTH116, PTH120, PTH123, PTH208

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from mainspring.common.clock import LONG_AGO
from mainspring.errors import (
    StoreCorrupt,
    StoreFull,
    StoreMisconfigured,
    StoreReadOnly,
    StoreUnavailable,
    UnsupportedFileSystem,
)

try:
    import fcntl
except ImportError:  # Windows has no flock, and does not let a program replace a file that is open
    fcntl = None  # type: ignore[assignment]  # the code asks for None before it uses the module

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
"""Seconds between two looks of a reader at the file, and of a producer at the free space of the disk."""
WARN_SECONDS = 60.0
"""Seconds between two warnings of a process that a file was replaced."""
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

    def remember(self, inode: tuple[int, int] | None) -> None:
        """Remember the file that is about to be opened. If it has changed after that, the connection may be to another
        file: close the connection."""
        self._known = None if self._path is None else inode

    def has_changed(self) -> bool:
        """Whether the path names another file than the one that was opened, or none."""
        if self._path is None or self._known is None:
            return False
        try:
            found = os.stat(self._path)
        except OSError:
            return True
        return (found.st_dev, found.st_ino) != self._known

    def has_changed_lately(self) -> bool:
        """The same for reads, which damage nothing: looks once a second at most."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return False
        self._looked = now
        return self.has_changed()


_warned: dict[str, float] = {}
"""When this process last warned of a replaced file, by path."""


def may_warn_of_replacement(path: str) -> bool:
    """Whether this process may warn that the file was replaced: once, and then once a minute at most.

    Several stores of a process use one file, and each notices the replacement, also again while it cannot open the new
    file.
    """
    now = time.monotonic()
    if now - _warned.get(path, LONG_AGO) < WARN_SECONDS:
        return False
    _warned[path] = now
    return True


def inode_of(path: str) -> tuple[int, int] | None:
    """The device and the inode of a file; None if there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class FileUsers:
    """The stores that have the file open, in this process and in others. ``folder`` None: a database in memory.

    The directory beside the database has a file for each of them (``*.open``): it names the process and the inode of
    the database, and its user holds a lock on it, which ends with the process. ``opening`` is locked while a store
    opens the database. ``file`` names the inodes of the database and of its log at the last opening. Root gives the
    files to the ``owner`` of the store.
    """

    def __init__(self, path: str, folder: str | None, url: str, owner: tuple[int, int] | None = None) -> None:
        self._path = path
        self._folder = folder if fcntl is not None else None
        self._url = url
        self._owner = owner
        self._name = ""
        self._file: int | None = None

    @contextmanager
    def opening(self, until: float, inode: tuple[int, int] | None) -> Iterator[bool]:
        """Keep other stores from opening the file, and check that no user of a former file is left. Yields whether this
        store is the only one. ``inode`` is that of the file before it is opened: it may be replaced meanwhile."""
        lock = self._lock_opening(until)
        try:
            others = self.others()
            if self._folder is not None:
                self._check(others)
            yield self._folder is not None and not others
            self._note(inode)
        finally:
            if lock is not None:
                os.close(lock)

    @contextmanager
    def closed(self, until: float) -> Iterator[list[FileUser]]:
        """Keep every store from opening the file. Yields the stores that have it open."""
        lock = self._lock_opening(until)
        try:
            yield self.others()
        finally:
            if lock is not None:
                os.close(lock)

    def forget_inodes(self) -> None:
        """The file was replaced, and no log is left of the former one."""
        with suppress(FileNotFoundError):
            os.unlink(f"{self._folder}/file")

    def _lock_opening(self, until: float) -> int | None:
        if self._folder is None:
            return None
        try:
            lock = os.open(f"{self._folder}/opening", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | NO_LINK, 0o600)
        except OSError:  # the directory belongs to another user: nothing can be known of other processes
            self._folder = None
            return None
        self._give_to_owner(lock)
        while not _try_lock(lock):
            if time.monotonic() > until:
                os.close(lock)
                raise StoreUnavailable("another process is opening the SQLite file", url=self._url)
            time.sleep(0.002)
        return lock

    def _check(self, others: Sequence[FileUser]) -> None:
        """Refuse the file while another file that was at this path is in use; remove what is left of such a file."""
        now = inode_of(self._path)
        if former := sorted({user.pid for user in others if user.inode != now}):
            raise StoreUnavailable(
                f"the SQLite file was replaced while processes used it, and process "
                f"{', '.join(map(str, former))} still uses the former file",
                url=self._url,
                hint="Processes that work notice it by themselves; restart the others. See mainspring restore.",
            )
        database, log = self._noted()
        if database not in (None, now) and log is not None and inode_of(f"{self._path}-wal") == log:
            for name in (
                f"{self._path}-wal",
                f"{self._path}-shm",
            ):  # of the former file: SQLite would apply it to this one
                with suppress(FileNotFoundError):
                    os.unlink(name)

    def others(self) -> list[FileUser]:
        """The users of the file except this one. Removes what dead processes left."""
        if self._folder is None:
            return []
        found: list[FileUser] = []
        for name in sorted(os.listdir(self._folder)):
            if not name.endswith(".open") or name == self._name:
                continue
            user = _read_user(f"{self._folder}/{name}")
            if user is not None:
                found.append(user)
        return found

    def _noted(self) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        """The inodes of the database and of its log when the file was opened last."""
        try:
            with open(f"{self._folder}/file", encoding="ascii") as noted:
                numbers = [int(word) for word in noted.read().split()]
        except (OSError, ValueError):
            return None, None
        return ((numbers[0], numbers[1]), (numbers[2], numbers[3])) if len(numbers) == 4 else (None, None)

    def _note(self, database: tuple[int, int] | None) -> None:
        """Note the inodes of the database and of its log, and show that this store uses the file."""
        log = inode_of(f"{self._path}-wal")
        if self._folder is None or database is None:
            return
        self.leave()
        self._name = f"{os.getpid()}-{os.urandom(4).hex()}.open"
        with suppress(OSError):
            if log is not None and self._noted() != (database, log):
                _write(f"{self._folder}/file", f"{database[0]} {database[1]} {log[0]} {log[1]}")
                self._give_to_owner(f"{self._folder}/file")
            file = os.open(f"{self._folder}/{self._name}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | NO_LINK, 0o600)
            self._file = file
            self._give_to_owner(file)
            _try_lock(file)
            os.write(file, f"{os.getpid()} {database[0]} {database[1]}".encode())

    def _give_to_owner(self, file: int | str) -> None:
        if self._owner is not None:
            os.chown(file, *self._owner)

    def leave(self) -> None:
        """This store has closed its connections."""
        if self._file is not None:
            with suppress(OSError):
                os.unlink(f"{self._folder}/{self._name}")
            self.forget()

    def forget(self) -> None:
        """Close the descriptor and leave the file: in a forked child it is the parent's."""
        if self._file is not None:
            os.close(self._file)
            self._file, self._name = None, ""

    def __del__(self) -> None:
        """A program need not close its app: a store that is no longer used must not count as a user of the file."""
        self.leave()


class FileUser(NamedTuple):
    """A store that has the file open."""

    pid: int
    inode: tuple[int, int]


def _read_user(name: str) -> FileUser | None:
    """The user that the file names; None, and the file is removed, if its process has ended."""
    try:
        file = os.open(name, os.O_RDWR | os.O_CLOEXEC | NO_LINK)
    except OSError:
        return None
    try:
        if _try_lock(file):
            os.unlink(name)
            return None
        numbers = [int(word) for word in os.read(file, 200).split()]
        return FileUser(numbers[0], (numbers[1], numbers[2])) if len(numbers) == 3 else None
    except (OSError, ValueError):
        return None
    finally:
        os.close(file)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _write(name: str, text: str) -> None:
    with open(f"{name}.new", "w", encoding="ascii") as written:
        written.write(text)
    os.replace(f"{name}.new", name)


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
