"""The file itself: where it may be, who may read it, whether it is sound."""

# SQLite names files by text, and some of this is asked at every commit:
# ruff: noqa: PTH112, PTH120, PTH123

from __future__ import annotations

import os
import re
import sqlite3
import time

from mainspring.errors import StoreCorrupt, StoreReadOnly, StoreUnavailable, UnsupportedFileSystem

NETWORK = frozenset(
    (
        "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.ceph", "fuse.davfs2", "fuse.gcsfuse",
        "fuse.glusterfs", "fuse.goofys", "fuse.grpcfuse", "fuse.juicefs", "fuse.mfs", "fuse.rclone", "fuse.s3fs",
        "fuse.smbnetfs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2",
        "orangefs", "osxfs", "smb3", "smbfs",
    )
)  # fmt: skip
CHECK_SECONDS = 0.1
FLOOR = (3, 40)

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""For files beside the database: a link that somebody else put there is not followed."""


def prepare(path: str, url: str) -> None:
    """Check the place, and make the file for its owner only. Never opens a file that is there.

    Closing a descriptor of a database drops every lock that this process has on it.
    """
    if sqlite3.sqlite_version_info < FLOOR:
        raise StoreUnavailable(
            f"SQLite {sqlite3.sqlite_version} is too old", url=url, hint="Mainspring needs SQLite 3.40 or newer."
        )
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise StoreUnavailable("the directory of the SQLite file does not exist", url=url, hint=f"mkdir -p {folder}")
    kind = file_system(folder, _mounts())
    if kind in NETWORK:
        raise UnsupportedFileSystem(
            f"{folder} is on a network file system ({kind}), where SQLite's locks do not hold",
            url=url,
            hint="Put the file on a local disk, or use PostgreSQL or Redis for several machines.",
        )
    if os.path.isdir(path):
        raise StoreCorrupt("the path of the SQLite file is a directory", url=url, hint="Name a file inside it.")
    _make(path, url)


def _make(path: str, url: str) -> None:
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
    """The type of the file system that holds ``folder``, by the text of ``mountinfo``; empty when unknown."""
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


def check(connection: sqlite3.Connection, url: str) -> None:
    """SQLite's quick check, for at most 0.1 s: whole for a small file, its beginning for a large one."""
    until = time.monotonic() + CHECK_SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > until, 20_000)
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
