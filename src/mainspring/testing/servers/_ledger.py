"""A file for every running server, so that no server outlives its test run.

One JSON file per server: its process, its directory, and its *owner*, the process whose end should be its end.
A process is named by pid and start time, because pids are used again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

import psutil


class ServerEntry(TypedDict):
    """The entry of one server; ``url`` only if it is shared, ``home`` only if it is deleted with the server."""

    pid: int
    born: float
    owner: int
    owner_born: float
    home: str | None
    url: str | None


def directory() -> Path:
    """The directory of the entries: ``MAINSPRING_TEST_DIR``, else a directory of this user in the temporary one."""
    given = os.environ.get("MAINSPRING_TEST_DIR")
    path = Path(given) if given else Path(tempfile.gettempdir()) / f"mainspring-servers-{os.getuid()}"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to another user: set MAINSPRING_TEST_DIR to a directory that you own")
    return path


def owner() -> int:
    """The process that owns the servers: the one that runs the tests, not an xdist worker; else this process."""
    return int(os.environ.get("MAINSPRING_TEST_OWNER", os.getpid()))


def write(pid: int, home: Path, *, name: str | None = None, url: str | None = None, keep: bool = False) -> Path:
    """Write the entry of a running server, with a name if other processes of the run are to find it."""
    mine = owner()
    gone_with_it = None if keep else str(home)
    entry = ServerEntry(pid=pid, born=_born(pid), owner=mine, owner_born=_born(mine), home=gone_with_it, url=url)
    path = directory() / f"{mine}-{name or (f'kept-{pid}' if keep else home.name)}.json"
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(entry))
    draft.replace(path)
    return path


def read(path: Path) -> ServerEntry | None:
    """The entry; None if the file is missing or broken."""
    try:
        entry: ServerEntry = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return entry


def sweep() -> None:
    """End the servers whose owner is gone: left by a crash or a kill of an earlier run."""
    with locked():
        for path in directory().glob("*.json"):
            entry = read(path)
            if entry is not None and not alive(entry["owner"], entry["owner_born"]):
                _finish(path, entry)


def end(owner: int) -> None:
    """End every server of one owner."""
    with locked():
        for path in directory().glob(f"{owner}-*.json"):
            entry = read(path)
            if entry is not None:
                _finish(path, entry)


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Hold the lock of the directory. The system frees it if the holder dies."""
    with (directory() / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def alive(pid: int, born: float) -> bool:
    """Whether the process with this start time still runs."""
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - born) < 1 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _finish(path: Path, entry: ServerEntry) -> None:
    from mainspring.testing.servers._base import end_tree

    if alive(entry["pid"], entry["born"]):
        end_tree(psutil.Process(entry["pid"]))
    if entry["home"] is not None:
        shutil.rmtree(entry["home"], ignore_errors=True)
    path.unlink(missing_ok=True)


def _born(pid: int) -> float:
    return float(psutil.Process(pid).create_time())
