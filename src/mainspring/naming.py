"""Names of tasks: what a worker in another process will know the function by."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

MAIN = "__main__"


def module_name(fn: Callable[..., Any]) -> str:
    """The module of ``fn``, with ``__main__`` replaced by the name a worker imports the same file under."""
    name = getattr(fn, "__module__", None) or MAIN
    return main_module_name() if name == MAIN else name


def main_module_name() -> str:
    """The importable name of the running script: ``python shop/app.py`` and ``python -m shop.app`` differ."""
    main = sys.modules.get(MAIN)
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name.removesuffix("." + MAIN))
    file = getattr(main, "__file__", None)
    return Path(file).stem if file and not file.startswith("<") else MAIN


def task_name(fn: Callable[..., Any]) -> str:
    """``module.qualname``."""
    return f"{module_name(fn)}.{getattr(fn, '__qualname__', type(fn).__name__)}"


def unimportable(fn: Callable[..., Any]) -> str | None:
    """Why no other process can import the module of ``fn``, or None if one can."""
    return "it was typed into an interactive session" if module_name(fn) == MAIN else None
