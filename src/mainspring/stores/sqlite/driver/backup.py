"""Back up and restore the file of a store: a copy while processes use it, and a replacement while none does."""

# SQLite names files by text:
# ruff: noqa: PTH100, PTH101, PTH105, PTH108, PTH110, PTH116, PTH120

from __future__ import annotations

import os
import sqlite3
import stat
import time
from contextlib import closing, suppress
from pathlib import Path

from mainspring.errors import ConfigError, StoreConflict, StoreCorrupt, StoreError, StoreMisconfigured

from .errors import translate
from .files import FileUsers, inode_of
from .schema import VERSION
from .wakeups import make_private

PAGES = 1000
"""Pages copied in one step; between two steps other processes can write."""
OPENING_SECONDS = 10.0


def back_up(path: str, target: str) -> int:
    """Copy the database to a new file while processes use it; returns the size of the copy in bytes.

    The copy is one consistent moment of the database, and appears under its name when it is complete.
    """
    if os.path.lexists(target):
        raise ConfigError(f"{target} exists already", hint="Name a new file: a backup never replaces another one.")
    _check_folder(target)
    users = _users_of(path)
    with users.opening(time.monotonic() + OPENING_SECONDS, inode_of(path)):
        pass  # no log of a former file is left, and from now on the file is not replaced by restore
    try:
        return _copy(path, target)
    finally:
        users.leave()


def restore(path: str, source: str) -> int:
    """Replace the database by a backup; returns its size in bytes.

    Refused while a process has the database open: SQLite would apply the write-ahead log of the former database to the
    new one. The new file has the owner and the mode of the former one; if there was none, the owner of its directory.
    """
    url = f"sqlite:///{path}"
    _check_backup(source)
    _check_folder(path)
    users = _users_of(path)
    with users.closed(time.monotonic() + OPENING_SECONDS) as others:
        if others:
            pids = sorted({user.pid for user in others})
            raise StoreConflict(
                f"process {', '.join(map(str, pids))} uses the store", url=url, hint="Stop it, then restore again."
            )
        size = _copy(source, path, replaces=True)
        users.forget_inodes()
    return size


def _keep_owner(made: str, path: str) -> None:
    """Give a new file the owner and the mode of the file that it replaces, as far as this user may."""
    found = _owner_of(path)
    if hasattr(os, "chown"):
        for owner in (found.st_uid, -1):  # a plain user may set the group
            with suppress(PermissionError):
                os.chown(made, owner, found.st_gid)
                break
    if stat.S_ISREG(found.st_mode):
        os.chmod(made, stat.S_IMODE(found.st_mode))


def _owner_of(path: str) -> os.stat_result:
    """The file; if there is none, its directory."""
    return os.stat(path if os.path.exists(path) else os.path.dirname(path))


def _users_of(path: str) -> FileUsers:
    """The users of the store. Root sees those of the store's owner, and leaves no file that locks the owner out."""
    folder, found = path + "-wake", _owner_of(path)
    for_root = hasattr(os, "geteuid") and os.geteuid() == 0 and found.st_uid != 0
    owner = (found.st_uid, found.st_gid) if for_root else None
    return FileUsers(path, folder if make_private(folder, owner) else None, f"sqlite:///{path}", owner)


def _copy(source: str, target: str, *, replaces: bool = False) -> int:
    """Copy a database page by page into a file beside ``target``, check the copy, and give it its name.

    ``replaces``: ``target`` is a store, whose owner is kept and whose log is removed.
    """
    made = f"{target}.{os.getpid()}.new"
    try:
        os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with closing(_open(source)) as opened, closing(sqlite3.connect(made)) as copy:
            opened.backup(copy, pages=PAGES, sleep=0.005)
            copy.execute("pragma journal_mode = delete")  # no log belongs to the copy
            if (found := copy.execute("pragma quick_check(1)").fetchall()) != [("ok",)]:
                raise StoreCorrupt(f"the copy of {source} is damaged: {found[0][0]}", hint="Keep the original.")
        _sync(made)
        if replaces:
            _keep_owner(made, target)
            _remove_log(target)
        os.replace(made, target)
        _sync(os.path.dirname(target) or ".")
        return Path(target).stat().st_size
    except sqlite3.Error as error:
        raise translate(error, f"sqlite:///{source}") or error from error
    except OSError as error:
        raise StoreError(f"{target} cannot be written: {error.strerror}") from error
    finally:
        with suppress(FileNotFoundError):
            os.unlink(made)


def _open(path: str) -> sqlite3.Connection:
    """A database that exists."""
    return sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=rw", uri=True)


def _check_backup(source: str) -> None:
    """Refuse a file that is no store, or that is newer than this code."""
    if not Path(source).is_file():
        raise ConfigError(f"there is no file {source}", hint="Name a file that mainspring backup wrote.")
    try:
        with closing(_open(source)) as opened:
            versions = opened.execute("select version from mainspring_meta").fetchall()
    except sqlite3.Error as error:
        raise StoreCorrupt(
            f"{source} is not a store of Mainspring: {error}", hint="Name a file that mainspring backup wrote."
        ) from error
    if any(version > VERSION for (version,) in versions):
        raise StoreMisconfigured(f"{source} was written by a newer version of Mainspring", hint="Upgrade Mainspring.")


def _check_folder(target: str) -> None:
    folder = os.path.dirname(os.path.abspath(target))
    if not Path(folder).is_dir():
        raise ConfigError(f"there is no directory {folder}", hint=f"mkdir -p {folder}")


def _remove_log(path: str) -> None:
    for end in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.unlink(path + end)


def _sync(path: str) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
