"""What a project's ``.gitignore`` lacks: the files of a SQLite store do not belong into a repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

from mainspring.stores.connect import MEMORY, engine_of, sqlite_path

BESIDE = ("", "-wal", "-shm", "-reserve", "-wake/")
"""The ends of the names of a SQLite store's files."""


def missing_line(url: str) -> str:
    """The line that the ``.gitignore`` of the store's repository lacks; empty if there is nothing to add.

    A repository without a ``.gitignore``, a store outside of a repository and a store that is no file need no line.
    """
    if engine_of(url) != "sqlite" or (path := sqlite_path(url)) == MEMORY:
        return ""
    file = Path(path).resolve()
    root = next((folder for folder in file.parents if (folder / ".git").exists()), None)
    if root is None or not (root / ".gitignore").is_file() or not file.parent.is_dir():
        return ""
    names = [f"{file}{end}" for end in BESIDE]
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "check-ignore", "--", *names],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):  # there is no git: then no file is committed by mistake
        return ""
    covered = done.stdout.splitlines()
    return "" if done.returncode > 1 or all(name in covered for name in names) else f"{file.name}*"
