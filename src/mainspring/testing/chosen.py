"""Decisions of the pytest plugin: the app of the project, and the stores that tests may use."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from mainspring.app import Mainspring
from mainspring.errors import ConfigError, OutsideTest, mask_url
from mainspring.launch.child import load_target
from mainspring.settings.sources import APP, CONFIG, SettingsFile, file_for, file_in
from mainspring.stores.connect import engine_of, sqlite_path

if TYPE_CHECKING:
    from collections.abc import Iterator


def app_of_project(root: Path) -> Mainspring:
    """The app that ``$MAINSPRING_APP`` names, else ``app =`` of the nearest settings file at or above ``root``."""
    target, folder = os.environ.get(APP, "").strip(), root
    for file in () if target else _settings_files(root):
        if named := str(file.table.get("app", "")):
            folder = file.path.parent
            where = named.partition(":")[0]
            target = f"{folder / named}" if where.endswith(".py") else named
            break
    if not target:
        raise ConfigError(
            f"mainspring_app: no settings file at or above {root} names the app",
            hint='Write  [tool.mainspring]  app = "module:object"  into pyproject.toml, or override the fixture.',
        )
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    app = load_target(target)
    if not isinstance(app, Mainspring):
        raise ConfigError(f"mainspring_app: {target} is a {type(app).__name__}, not an app")
    return app


def check_url(url: str, *, allowed: Iterable[str], basetemp: str | None, root: Path) -> None:
    """``OutsideTest`` unless tests may use the store. ``root`` is the directory of the project."""
    if _temporary(url, basetemp, root) or any(fnmatchcase(url, pattern) for pattern in allowed):
        return
    raise OutsideTest(
        f"a test would use the store {mask_url(url)}, which is not a test store",
        hint="Use a private store:  with app.test() as t: ...  (or the fixture mainspring_test). "
        "If tests may use this store, add it to pytest's setting mainspring_allow_urls.",
    )


def _temporary(url: str, basetemp: str | None, root: Path) -> bool:
    """Whether the store is in memory, or a temporary file that is not in the directory of the project."""
    if engine_of(url) != "sqlite":
        return False
    path = sqlite_path(url)
    if path == ":memory:":
        return True
    file = Path(path).resolve()
    if basetemp and file.is_relative_to(Path(basetemp).resolve()):
        return True
    folders = (tempfile.gettempdir(), os.environ.get("PYTEST_DEBUG_TEMPROOT"))
    temporary = any(folder and file.is_relative_to(Path(folder).resolve()) for folder in folders)
    return temporary and not file.is_relative_to(root.resolve())


def _settings_files(root: Path) -> Iterator[SettingsFile]:
    if os.environ.get(CONFIG, "").strip() and (named := file_for(None)) is not None:
        yield named
        return
    for folder in (root, *root.parents):
        if (file := file_in(folder)) is not None:
            yield file
