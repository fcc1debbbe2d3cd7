"""The files of an app, and whether they have changed."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType

from mainspring.settings.project import PROJECT_FILES, project_root

Seen = Mapping[str, tuple[int, int]]
"""When each file was last written, and how long it is."""


def snapshot(files: Iterable[str]) -> Seen:
    """When each file was last written, and how long it is; one that is not there is left out."""
    seen = {}
    for file in files:
        try:
            stat = os.stat(file)  # noqa: PTH116 - asked of every file, twice a second
        except OSError:
            continue
        seen[file] = (stat.st_mtime_ns, stat.st_size)
    return seen


def differ(before: Seen, now: Seen) -> list[str]:
    """The names of files that were changed, came or went."""
    return names(file for file in {*before, *now} if before.get(file) != now.get(file))


def names(files: Iterable[str]) -> list[str]:
    """A few names for people."""
    names = sorted({Path(file).name for file in files})
    return names if len(names) <= 5 else [*names[:4], f"{len(names) - 4} more"]


def app_files(error: BaseException | None = None) -> list[str]:
    """The files behind the modules that are imported here and belong to the app, not to what is installed.

    After an ``error`` also those it names, and the Python files beside them: the cure may be a new one.
    """
    found = {file for module in [*sys.modules.values()] if (file := getattr(module, "__file__", None))}
    if error is not None:
        found |= set(_named_by(error))
        found |= {str(each) for file in [*found] if _of_the_app(file) for each in Path(file).parent.glob("*.py")}
    files = {str(Path(file).resolve()) for file in found if _of_the_app(file)}
    roots = {project_root(Path(file)) for file in files}
    return sorted(files | {str(root / name) for root in roots for name in PROJECT_FILES if (root / name).is_file()})


def _named_by(error: BaseException) -> Iterator[str]:
    if isinstance(error, SyntaxError) and error.filename:
        yield error.filename
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename
        trace = trace.tb_next


_INSTALLED = (
    str(Path(__file__).parent) + os.sep,
    *(
        str(Path(sysconfig.get_path(name)).resolve()) + os.sep
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
    ),
)


def _of_the_app(file: str) -> bool:
    path = Path(file)
    return path.suffix == ".py" and path.is_file() and not str(path.resolve()).startswith(_INSTALLED)
