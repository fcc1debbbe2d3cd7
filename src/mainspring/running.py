"""From an app to running workers: ``app.run()`` and ``mainspring worker`` both end here."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring import logs
from mainspring.errors import NoMainGuard, TaskNotImportable
from mainspring.worker.supervisor import Supervisor

if TYPE_CHECKING:
    from mainspring.app import Mainspring

CHILD = "mainspring.boot"


def run(app: Mainspring, given: Mapping[str, Any]) -> int:
    """Supervise workers of ``app``, which they import anew by the place it was declared in."""
    main = sys.modules.get("__main__")
    if getattr(getattr(main, "__spec__", None), "name", None) == CHILD:
        raise NoMainGuard
    path = [folder or str(Path.cwd()) for folder in sys.path]
    return run_target(address(app), given, path=path)  # the child finds what this program finds


def run_target(target: str, given: Mapping[str, Any], *, log_level: str | None = None, path: Sequence[str] = ()) -> int:
    """Supervise workers of the app that ``target`` names; imports no user code here."""
    level = logs.configure(log_level)
    told = msgspec.json.encode({name: _plain(value) for name, value in given.items()}).decode()
    command = [sys.executable, "-m", CHILD, "--target", target, "--options", told]
    if path:
        command += ["--path", msgspec.json.encode(path).decode()]
    env = {**os.environ, logs.LEVEL: level}
    return Supervisor(command, int(given.get("processes", 1)), env=env).run()


def _plain(value: Any) -> Any:
    """An option as it can be told to another process: durations in seconds, the rest as JSON has it."""
    return value.total_seconds() if isinstance(value, timedelta) else value


def address(app: Mainspring) -> str:
    """``module:name`` or ``file.py:name`` under which a child process finds this very app."""
    modules = [module for module in [*sys.modules.values()] if getattr(module, "__file__", None)]
    modules.sort(key=lambda module: module.__file__ != app.settings.declared_in)  # where it was declared, first
    for module in modules:
        if name := _name_in(module, app):
            return f"{_importable(module)}:{name}"
    raise TaskNotImportable(
        repr(app),
        "no module holds this app, so a worker process cannot find it",
        hint="Assign it to a name at the top level of a module, or use app.worker() in this process.",
    )


def _name_in(module: ModuleType, app: Mainspring) -> str | None:
    return next((name for name, value in vars(module).items() if value is app), None)


def _importable(module: ModuleType) -> str:
    spec = module.__spec__
    if spec is not None:
        return spec.name.removesuffix(".__main__")
    return str(module.__file__)  # a script: the child imports the file under its stem
