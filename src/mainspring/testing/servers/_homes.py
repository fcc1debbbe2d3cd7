"""The directories of servers: private, short enough for a socket, accessible to the account of the server."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from pathlib import Path

from mainspring.testing.servers._errors import EngineMissing

_MEMORY = Path("/dev/shm")  # noqa: S108  # mkdtemp makes what is private in it
_ROOM = 2_000_000_000
_LONGEST_HOME = 80  # a socket path may have 107 bytes (103 on macOS)


def is_too_long(home: Path) -> bool:
    """Whether the path is too long for a socket in it."""
    return len(bytes(home)) > _LONGEST_HOME


def give_to(path: Path, account: pwd.struct_passwd | None) -> None:
    """Make the server's account the owner of a directory."""
    if account is not None:
        os.chown(path, account.pw_uid, account.pw_gid)


def temporary_base(account: pwd.struct_passwd | None) -> Path:
    """A temporary directory with a short name, which the account may enter."""
    base = Path(tempfile.gettempdir())
    if is_too_long(base) or (account is not None and not _others_may_enter(base)):
        base = Path("/tmp")  # noqa: S108  # what is made in it is private; the configured one is too long or closed
    return base


def make_home(account: pwd.struct_passwd | None, *, in_memory: bool) -> Path:
    base = _MEMORY if in_memory and _has_room(_MEMORY) else temporary_base(account)
    home = Path(tempfile.mkdtemp(prefix="mainspring-", dir=base))
    give_to(home, account)
    return home


def _has_room(base: Path) -> bool:
    return os.access(base, os.W_OK | os.X_OK) and shutil.disk_usage(base).free > _ROOM


def prepare_home(home: Path, account: pwd.struct_passwd | None) -> Path:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if account is not None:
        if not _others_may_enter(home.parent):
            why = f"root may not run it, and {account.pw_name!r}, who does it instead, cannot enter {home.parent}"
            raise EngineMissing(why, "work as a plain user, or in a directory that others may enter")
        give_to(home, account)
    return home


def _others_may_enter(path: Path) -> bool:
    return all(p.stat().st_mode & 0o001 for p in (path, *path.parents))
