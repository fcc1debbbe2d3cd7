"""Names of tasks: what a worker in another process will know the function by."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from inspect import unwrap
from pathlib import Path
from typing import Any

MAIN = "__main__"
_SCRIPT = (MAIN, "__mp_main__")
"""What a script is called where it runs, and where multiprocessing runs it again for a child."""


def module_name(fn: Callable[..., Any]) -> str:
    """The module of ``fn``, a script by the name that a worker imports the same file under."""
    name = getattr(fn, "__module__", None) or MAIN
    return _script_name(_home(fn, name)) if name in _SCRIPT else name.removesuffix("." + MAIN)


def _home(fn: Callable[..., Any], name: str) -> Mapping[str, Any]:
    """The names of the module that ``fn`` stands in."""
    found = getattr(unwrap(fn), "__globals__", None)
    if isinstance(found, dict) and found.get("__name__") == name:
        return found
    return vars(sys.modules.get(name) or sys.modules[MAIN])


def _script_name(home: Mapping[str, Any]) -> str:
    """``python shop/app.py`` is ``app``, ``python -m shop.app`` is ``shop.app``, ``python -m shop`` is ``shop``."""
    spec = home.get("__spec__")
    if spec is not None:
        return str(spec.name.removesuffix("." + MAIN))
    file = file_of(home)
    return MAIN if file is None else Path(file).stem


def file_of(home: Mapping[str, Any]) -> str | None:
    """The file of the module with these names; None for what was typed into a session, also by ``python -``."""
    file = home.get("__file__")
    return file if file and not file.startswith("<") else None


def task_name(fn: Callable[..., Any]) -> str:
    """``module.qualname``."""
    return f"{module_name(fn)}.{getattr(fn, '__qualname__', type(fn).__name__)}"


def unimportable(fn: Callable[..., Any]) -> str | None:
    """Why no other process can import the module of ``fn``, or None if one can."""
    return "it was typed into an interactive session" if module_name(fn) == MAIN else None
