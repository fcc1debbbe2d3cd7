"""Where things are: the project of a file, and the store when no URL was given."""

from __future__ import annotations

from pathlib import Path

from mainspring.errors import BadUrl

PROJECT_FILES = ("mainspring.toml", "pyproject.toml")
DEFAULT_FILE = "mainspring.db"


def default_url(declared_in: str | None) -> str:
    """A SQLite file beside the project's settings: the store when no other was named.

    ``declared_in`` is the file that made the app. The project is the nearest directory above it
    with a ``mainspring.toml`` or ``pyproject.toml``, else the directory of the file itself: never
    the working directory, for producers and workers start in different ones.
    """
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
