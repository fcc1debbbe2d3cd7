"""Start supervised workers of an app: used by ``app.run()`` and by ``mainspring worker``."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.errors import NoMainGuard, TaskNotImportable
from mainspring.observe import logs
from mainspring.settings.settings import AppSettings
from mainspring.tasks.naming import file_of
from mainspring.worker.supervise.child import start_early

if TYPE_CHECKING:
    from mainspring.app import Mainspring

CHILD = "mainspring.launch.child"


def run(app: Mainspring, given: Mapping[str, Any]) -> int:
    """Supervise workers of ``app``. Each worker process imports the app again, from the module that declares it."""
    main = sys.modules.get("__main__")
    if getattr(getattr(main, "__spec__", None), "name", None) == CHILD:
        raise NoMainGuard
    app.settings.worker(given)
    app.settings.address.check_processes("app.run()")
    logs.configure(app.settings.logs)
    path = [folder or str(Path.cwd()) for folder in sys.path]
    return _supervise(find_target(app), given, {}, path)  # the child can import what this program can import


def run_target(
    target: str, given: Mapping[str, Any], *, log: Mapping[str, str] = MappingProxyType({}), path: Sequence[str] = ()
) -> int:
    """Supervise workers of the app that ``target`` names. Imports no user code in this process.

    ``log`` has ``level`` and ``format``, which override every setting, and ``jobs``, the level of the lines about jobs.
    Log settings in the code of the app apply to its workers; the supervisor uses those of the environment and of the
    settings file.
    """
    flags = {f"log_{name}": value for name, value in log.items() if name != "jobs"}
    where = target.partition(":")[0]
    settings = AppSettings(flags, where if where.endswith(".py") else str(Path.cwd() / "app.py"))
    logs.configure(settings.logs)
    return _supervise(
        target, given, {**log, **{name: getattr(settings.logs, name) for name in log if name != "jobs"}}, path
    )


def _supervise(target: str, given: Mapping[str, Any], log: Mapping[str, str], path: Sequence[str]) -> int:
    options = msgspec.json.encode({name: _plain(value) for name, value in given.items()}).decode()
    command = [sys.executable, "-m", CHILD, "--target", target, "--options", options]
    if log:
        command += ["--log", msgspec.json.encode(log).decode()]
    if path:
        command += ["--path", msgspec.json.encode(path).decode()]
    processes = int(given.get("processes", 1))
    started = start_early(command, processes, os.environ)
    from mainspring.worker.supervise.supervisor import Supervisor  # asyncio, while the workers start

    return Supervisor(command, processes, started=started).run()


def _plain(value: Any) -> Any:
    """An option as JSON can represent it: durations in seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else value


def find_target(app: Mainspring) -> str:
    """``module:name`` or ``file.py:name`` by which a child process can import this app."""
    modules = [module for module in [*sys.modules.values()] if file_of(getattr(module, "__dict__", {}))]
    modules.sort(key=lambda module: module.__file__ != app.settings.declared_in)  # first the module that declares it
    for module in modules:
        if name := _name_in(module, app):
            return f"{_importable(module)}:{name}"
    raise TaskNotImportable(
        repr(app),
        "no module contains this app, so a worker process cannot import it",
        hint="Assign the app to a name at the top level of a module, or use app.worker() in this process.",
    )


def _name_in(module: ModuleType, app: Mainspring) -> str | None:
    return next((name for name, value in vars(module).items() if value is app), None)


def _importable(module: ModuleType) -> str:
    spec = module.__spec__
    if spec is not None:
        return spec.name
    return str(module.__file__)  # a script: the child imports the file, see find_module
