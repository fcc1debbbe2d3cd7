"""Names of tasks, which are the same in every process that imports the function."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from inspect import unwrap
from pathlib import Path
from typing import Any, NamedTuple

from mainspring.common.callables import shape_of

MAIN = "__main__"
_SCRIPT = (MAIN, "__mp_main__")
"""The module names of a script: in its own process, and in a child of multiprocessing."""


def module_name(fn: Callable[..., Any]) -> str:
    """The module of ``fn``; for a script, the name under which a worker imports the same file."""
    name = getattr(fn, "__module__", None) or MAIN
    return _script_name(_home(fn, name)) if name in _SCRIPT else name.removesuffix("." + MAIN)


def _home(fn: Callable[..., Any], name: str) -> Mapping[str, Any]:
    """The globals of the module of ``fn``."""
    found = getattr(unwrap(fn), "__globals__", None)
    if isinstance(found, dict) and found.get("__name__") == name:
        return found
    return vars(sys.modules.get(name) or sys.modules[MAIN])


def _script_name(home: Mapping[str, Any]) -> str:
    """``python app.py`` is ``app``, ``python -m shop.app`` is ``shop.app``, ``python -m shop`` is ``shop``."""
    spec = home.get("__spec__")
    if spec is not None:
        return str(spec.name.removesuffix("." + MAIN))
    file = file_of(home)
    return MAIN if file is None else find_module(Path(file).resolve()).name.removesuffix("." + MAIN)


class FoundModule(NamedTuple):
    """A file as a module: its dotted name, and the folder on ``sys.path`` from which this name can be imported."""

    name: str
    folder: Path


def find_module(file: Path) -> FoundModule:
    """The module of a file. In a package (its folder has ``__init__.py``) it has the dotted name that other modules
    import: ``shop/tasks.py`` is ``shop.tasks``. Elsewhere it is the name of the file without ``.py``.
    """
    names, folder = [file.stem], file.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        names.append(folder.name)
        folder = folder.parent
    return FoundModule(".".join(reversed(names)).removesuffix(".__init__"), folder)


def file_of(home: Mapping[str, Any]) -> str | None:
    """The file of the module with these globals; None for an interactive session and for ``python -``."""
    file = home.get("__file__")
    return file if file and not file.startswith("<") else None


def module_run(fn: Callable[..., Any]) -> object:
    """Identifies the run of the module that made ``fn``: ``importlib.reload`` gives a module a new spec."""
    return getattr(unwrap(shape_of(fn)), "__globals__", {}).get("__spec__")


def runs_from_file(home: Mapping[str, Any], code_file: str) -> bool:
    """Whether code of ``code_file`` in the module with these globals came from the file of the module. A notebook
    gives each cell a file name of its own, or the module has no file; a console sets ``sys.ps1``."""
    file = file_of(home)
    if file is None or (home.get("__name__") == MAIN and hasattr(sys, "ps1")):
        return False
    return Path(file).name == Path(code_file).name  # the folder of a script may be written relative to another one


def task_name(fn: Callable[..., Any]) -> str:
    """``module.qualname``."""
    return f"{module_name(fn)}.{getattr(fn, '__qualname__', type(fn).__name__)}"


def unimportable(fn: Callable[..., Any]) -> str | None:
    """The reason why no other process can import the module of ``fn``; None if it can be imported."""
    return "it was defined in an interactive session" if module_name(fn) == MAIN else None
