"""Where things are: the store when no URL was given, and the app that a command names."""

from __future__ import annotations

import os
from pathlib import Path

from mainspring.errors import BadUrl

PROJECT_FILES = ("mainspring.toml", "pyproject.toml")
DEFAULT_FILE = "mainspring.db"


def default_url(declared_in: str | None) -> str:
    """``$MAINSPRING_URL``, else a SQLite file beside the project's settings.

    ``declared_in`` is the file that made the app. The project is the nearest directory above it
    with a ``mainspring.toml`` or ``pyproject.toml``, else the directory of the file itself: never
    the working directory, for producers and workers start in different ones.
    """
    url = os.environ.get("MAINSPRING_URL")
    if url:
        return url
    if declared_in is None:
        raise BadUrl(
            "",
            "none was given, and an interactive session has no project to keep a file in",
            hint='Write Mainspring("sqlite:////path/to/file.db") or set MAINSPRING_URL.',
        )
    return f"sqlite:///{project_root(Path(declared_in)) / DEFAULT_FILE}"


def project_root(file: Path) -> Path:
    """The nearest directory above ``file`` that holds a project file, else its own."""
    home = file.resolve().parent
    for folder in (home, *home.parents):
        if any((folder / name).is_file() for name in PROJECT_FILES):
            return folder
    return home
