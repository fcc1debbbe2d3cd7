"""The project of a file, and the default store of a project.

Relative paths of a store start from the directory of the project, wherever a program is started: see ``sources``.
"""

from __future__ import annotations

from pathlib import Path

from mainspring.errors import BadUrl

PROJECT_FILES = ("mainspring.toml", "pyproject.toml")
DEFAULT_FILE = "mainspring.db"


def default_url(declared_in: str | None) -> str:
    """The URL of the default store: a SQLite file beside the project's settings.

    ``declared_in`` is the file that declares the app. The project is the nearest directory above this file with a
    ``mainspring.toml`` or ``pyproject.toml``, else the directory of the file. The working directory is never used,
    because producers and workers start in different directories.
    """
    if declared_in is None:
        raise BadUrl(
            "",
            "is required in an interactive session, which has no project directory for a SQLite file",
            hint='Write Mainspring("sqlite:////path/to/file.db") or set MAINSPRING_URL.',
        )
    return f"sqlite:///{project_root(Path(declared_in)) / DEFAULT_FILE}"


def default_name(declared_in: str) -> tuple[str, str]:
    """The name of the program that declares its app in this file, and the place of the name.

    The name is ``[project].name`` of the ``pyproject.toml``, else that of the project's folder.
    """
    import tomllib

    root = project_root(Path(declared_in))
    file = root / "pyproject.toml"
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {}).get("name")
    except (OSError, ValueError, AttributeError):  # no such file, or not in the usual form: other tools report that
        found = None
    return (found, f"{file}: project.name") if isinstance(found, str) and found else (root.name, str(root))


def project_root(file: Path) -> Path:
    """The nearest directory above ``file`` with a project file, else the directory of ``file``."""
    home = file.resolve().parent
    for folder in (home, *home.parents):
        if any((folder / name).is_file() for name in PROJECT_FILES):
            return folder
    return home
