"""Find and import the app of a command.

The first of these decides: the command itself (an argument or ``-A``), ``$MAINSPRING_APP``, ``app =`` in the nearest
settings file at or above the working directory, and the one file among ``app.py``, ``main.py`` and ``tasks.py`` there
that creates exactly one app. The search reads files and imports nothing.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mainspring.errors import ConfigError, InvalidOption, MainspringError
from mainspring.settings.project import PROJECT_FILES

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.settings.sources import SettingsFile

APP = "MAINSPRING_APP"
URL = "MAINSPRING_URL"
LIKELY_FILES = ("app.py", "main.py", "tasks.py")


class AppAddress(NamedTuple):
    """The address of an app: ``module:object`` or ``file.py[:object]``, and a folder to look for modules in."""

    target: str
    folder: str


class NoAppFound(ConfigError):
    """No app was named, and none was found."""


def find_target(named: str | None) -> AppAddress:
    """Find the address of the app. ``NoAppFound`` lists the places that were searched."""
    here = Path.cwd()
    if target := named or os.environ.get(APP):
        return AppAddress(target, str(here))
    tried = ["-A APP", f"${APP}"]
    for file in _settings_files(here):
        if target := _named_in(file):
            return AppAddress(_beside(file.path.parent, target), str(file.path.parent))
        tried.append(f"app = in {file.path}")
    if len(tried) == 2:
        tried.append(f"{' or '.join(PROJECT_FILES)} with settings, here or above")
    made = {name: _apps_in(here / name) for name in LIKELY_FILES if (here / name).is_file()}
    if [len(apps) for apps in made.values() if apps] == [1]:
        return next(AppAddress(f"{here / name}:{apps[0]}", str(here)) for name, apps in made.items() if apps)
    tried += [f"{name}: {_said(made.get(name))}" for name in LIKELY_FILES]
    raise NoAppFound(
        "no app was found. Searched:\n  " + "\n  ".join(tried), hint="Name it: -A module:object or -A file.py"
    )


def load_app(found: AppAddress) -> Mainspring:
    """Import the app. An exception of its code becomes a ``ConfigError`` with the traceback."""
    from mainspring.app import Mainspring
    from mainspring.launch.child import explain_error, load_target

    if found.folder not in sys.path:
        sys.path.insert(0, found.folder)
    try:
        with redirect_stdout(sys.stderr):  # text that the import prints must not mix with the answer
            app = load_target(found.target)
    except MainspringError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever user code raises while it is imported
        where = found.target.partition(":")[0]
        if isinstance(error, ModuleNotFoundError) and error.name and f"{where}.".startswith(f"{error.name}."):
            raise ConfigError(f"{found.target}: {error}", hint=f"Modules are searched in {found.folder}.") from None
        theirs = error.__traceback__ and error.__traceback__.tb_next
        text = explain_error(error.with_traceback(theirs)).rstrip()
        raise ConfigError(f"{found.target} cannot be imported:\n{text}") from None
    if not isinstance(app, Mainspring):
        raise ConfigError(f"{found.target} is a {type(app).__name__}, not an app", hint="Name a Mainspring object.")
    return app


def find_app(named: str | None) -> Mainspring:
    """Find and import the app."""
    return load_app(find_target(named))


def find_app_or_store(named: str | None, url: str | None, namespace: str | None, *, make: bool) -> Mainspring:
    """Find the app, or build one without code for a store URL. The store must exist unless ``make`` is true."""
    if url or namespace:
        return check_store(_there(_of_a_store(named, url, namespace), make))
    try:
        found = find_target(named)
    except NoAppFound as error:
        file = next((file for file in _settings_files(Path.cwd()) if "url" in file.table), None)
        if os.environ.get(URL) or file is not None:
            return check_store(_there(_bare(None, None, None if file is None else file.path), make))
        raise NoAppFound(error.message, hint=f"{error.hint}, or the store: --url URL or ${URL}") from None
    return check_store(load_app(found))


def check_store(app: Mainspring) -> Mainspring:
    """Refuse an app whose store is in memory: a command is a process of its own."""
    app.settings.address.check_processes("a command")
    return app


def _of_a_store(named: str | None, url: str | None, namespace: str | None) -> Mainspring:
    if named:
        raise ConfigError("-A names an app, --url and --namespace name a store: give only one of them")
    if not url and not os.environ.get(URL):
        raise ConfigError(f"--namespace needs a store: give --url or set {URL}")
    return _bare(url, namespace, None)


def _there(app: Mainspring, make: bool) -> Mainspring:
    from mainspring.stores.connect import missing_file

    if not make and (file := missing_file(app.settings.url)) is not None:
        raise ConfigError(f"there is no store at {file}", hint="Check the URL. mainspring migrate creates a new store.")
    return app


def _bare(url: str | None, namespace: str | None, settings_file: Path | None) -> Mainspring:
    """Build an app without code: the environment and the settings file apply, included modules are not imported."""
    from mainspring.app import Mainspring
    from mainspring.settings.settings import AppSettings

    given = {"url": url, "namespace": namespace, "include": ()}
    app = Mainspring()
    app.settings = AppSettings(
        {name: value for name, value in given.items() if value is not None},
        None if settings_file is None else str(settings_file),
    )
    return app


def _settings_files(here: Path) -> Iterator[SettingsFile]:
    """Files with settings, the nearest first; the file of ``$MAINSPRING_CONFIG`` comes before all."""
    from mainspring.settings.sources import file_for, file_in

    if (named := file_for(None)) is not None:
        yield named
    for folder in (here, *here.parents):
        if (file := file_in(folder)) is not None:
            yield file


def _named_in(file: SettingsFile) -> str | None:
    """The app that a settings file names."""
    value = file.table.get("app")
    if value is None or (isinstance(value, str) and value.strip()):
        return value
    raise InvalidOption("app", value, "must be module:object", subject=file.where("app"))


def _beside(folder: Path, target: str) -> str:
    """Resolve a file name against the folder of the settings file, not against the working directory."""
    where, colon, name = target.partition(":")
    return f"{folder / where}{colon}{name}" if where.endswith(".py") else target


def _apps_in(file: Path) -> list[str]:
    """Names at the top level of a file to which it assigns ``Mainspring(...)``."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError):
        return []
    names = []
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=made)):
                names += [name] * _is_app(made)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Call(func=made)):
                names += [name] * _is_app(made)
    return names


def _said(apps: list[str] | None) -> str:
    return "does not exist" if apps is None else f"creates {', '.join(apps) or 'no app'}"


def _is_app(made: ast.expr) -> bool:
    return ast.unparse(made).rpartition(".")[2] == "Mainspring"
