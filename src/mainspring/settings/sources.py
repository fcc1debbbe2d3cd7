"""Settings from the environment and from the project file.

For each setting the first place that has it wins: keyword, environment, file, default. Every place is checked
completely: an unknown name and an invalid value are refused with the variable, or the file and key, even if another
place has priority.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from mainspring.errors import ConfigError, InvalidOption, UnknownOption, did_you_mean
from mainspring.options.table import options_for
from mainspring.settings.project import PROJECT_FILES, project_root
from mainspring.settings.table import OF_ONE_RUN, TABLE, Setting

Source = Literal["keyword", "environment", "file", "default"]

PREFIX = "MAINSPRING_"
CONFIG = "MAINSPRING_CONFIG"
APP = "MAINSPRING_APP"

OUR_OWN = frozenset({
    APP, CONFIG, "MAINSPRING_CHILD", "MAINSPRING_FAMILY", "MAINSPRING_FAILPOINT", "MAINSPRING_FAILPOINT_ONCE",
    "MAINSPRING_SOAK",
})  # fmt: skip
"""Variables that are not settings: for commands, between our processes, for tests."""
_OUR_PREFIXES = ("MAINSPRING_TEST_", "MAINSPRING_DEV_")
# Variables that Kubernetes and linked containers set for a service named mainspring or mainspring-something.
_OF_A_SERVICE = r"_SERVICE_(HOST|PORT(_\w+)?)$|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$"

_VARIABLES = {setting.variable: setting for setting in TABLE.values()}
_KNOWN = (*_VARIABLES, CONFIG, APP)


class SettingOrigin(NamedTuple):
    """The value of a setting, and the place where it was given."""

    value: Any
    source: Source
    where: str
    """A variable, a file and key, or the file that declares the app; empty for a default."""


class SettingsFile(NamedTuple):
    """The content of a settings file."""

    path: Path
    table: dict[str, Any]
    prefix: str
    """The prefix of each key: ``tool.mainspring.`` in a ``pyproject.toml``."""

    def where(self, key: str) -> str:
        return f"{self.path}: {self.prefix}{key}"


def read_places(given: Mapping[str, Any], declared_in: str | None) -> tuple[dict[str, SettingOrigin], ...]:
    """The settings of each place, the strongest first: ``given`` keywords (in normal form), environment, file."""
    place = declared_in or "Mainspring(...)"
    keywords = {name: SettingOrigin(value, "keyword", place) for name, value in given.items()}
    return keywords, _of_environment(os.environ), _of_file(file_for(declared_in))


def resolve(places: Sequence[Mapping[str, SettingOrigin]], declared_in: str | None) -> dict[str, SettingOrigin]:
    """Every setting: from the first of the places that has it, else its default."""
    found = {name: SettingOrigin(setting.default, "default", "") for name, setting in TABLE.items()}
    for place in reversed(places):
        found.update(place)
    url = found["url"]
    if url.source in ("keyword", "environment"):
        found["url"] = url._replace(value=anchored_url(url.value, _folder_of(declared_in, url.source)))
    return found


def _folder_of(declared_in: str | None, source: Source) -> Path:
    """The directory that a relative path of the store starts from: that of the project, also for a variable.

    Without a file that declares the app, a keyword is typed by a person, in an interactive session or as ``--url``: it
    starts from the working directory.
    """
    if declared_in is not None:
        return project_root(Path(declared_in))
    return Path.cwd() if source == "keyword" else project_root(Path.cwd() / "app.py")


def convert(setting: Setting, value: Any, where: str) -> Any:
    """The normal form; an error names the place of the value."""
    try:
        return setting.convert(value, setting.name)
    except InvalidOption as error:
        raise error.about(where) from None
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.message}", hint=error.hint) from None


# ---- environment -----------------------------------------------------------------------------------


def _of_environment(environ: Mapping[str, str]) -> dict[str, SettingOrigin]:
    found = {}
    for variable in sorted(environ):
        if not variable.startswith(PREFIX):
            continue
        setting = _VARIABLES.get(variable)
        if setting is None:
            _refuse_unknown_variable(variable)
        elif text := environ[variable].strip():
            found[setting.name] = SettingOrigin(_from_text(setting, text), "environment", variable)
    return found


def _from_text(setting: Setting, text: str) -> Any:
    try:
        value = setting.read(text)
    except InvalidOption as error:
        raise error.about(setting.variable) from None
    return convert(setting, value, setting.variable)


def _refuse_unknown_variable(variable: str) -> None:
    if variable in OUR_OWN or variable.startswith(_OUR_PREFIXES) or re.search(_OF_A_SERVICE, variable):
        return
    hint = f"Every variable that begins with {PREFIX} must be a setting; {CONFIG} and {APP} are known too."
    name, names = variable.removeprefix(PREFIX).lower(), {each.removeprefix(PREFIX).lower(): each for each in _KNOWN}
    near = did_you_mean(name, names)  # without the prefix, which would make every name look alike
    candidates = [each for bare, each in names.items() if f"{bare!r}" in near]
    if name in OF_ONE_RUN:
        hint, candidates = "This option belongs to one run of a command: give it as a flag of mainspring worker.", []
    elif any(option.name == name for option in options_for("task")):
        hint, candidates = f"{name!r} is an option of @app.task(...).", []
    raise UnknownOption("environment", variable, candidates, hint=hint)


# ---- file ------------------------------------------------------------------------------------------


def file_for(declared_in: str | None) -> SettingsFile | None:
    """The settings file of an app: the file that ``MAINSPRING_CONFIG`` names, else the file of its project."""
    named = os.environ.get(CONFIG, "").strip()
    if named:
        path = Path(named).resolve()
        if not path.is_file():
            raise ConfigError(f"{CONFIG}={named}: there is no such file", hint=f"Its full path would be {path}.")
        return _read(path) or SettingsFile(path, {}, "")
    return None if declared_in is None else file_in(project_root(Path(declared_in)))


def file_in(folder: Path) -> SettingsFile | None:
    """The settings file of a directory, if there is one."""
    found = [file for name in PROJECT_FILES if (path := folder / name).is_file() and (file := _read(path))]
    if len(found) > 1:
        raise ConfigError(
            f"{found[0].path} and {found[1].path} [tool.mainspring] both contain settings",
            hint="Keep only one of the two.",
        )
    return found[0] if found else None


def _read(path: Path) -> SettingsFile | None:
    """The settings in the file; None for a ``pyproject.toml`` without ``[tool.mainspring]``."""
    try:
        text = path.read_bytes().decode()
        shared = path.name == "pyproject.toml"
        if shared and "mainspring" not in text.lower():
            return None
        import tomllib

        table: Any = tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if not shared:
        return SettingsFile(path, table, "")
    tools = table.get("tool", {})
    _refuse_misplaced(path, table, tools)
    own = tools.get("mainspring") if isinstance(tools, dict) else None
    if own is None:
        return None
    if not isinstance(own, dict):
        raise ConfigError(f"{path}: tool.mainspring must be a table")
    return SettingsFile(path, own, "tool.mainspring.")


def _refuse_misplaced(path: Path, table: Mapping[str, Any], tools: Any) -> None:
    """Refuse a table of a ``pyproject.toml`` that is meant for us and has another name."""
    wrong = [f"[{name}]" for name in table if name.lower() == "mainspring"]
    if isinstance(tools, dict):
        wrong += [f"[tool.{name}]" for name in tools if name.lower() == "mainspring" and name != "mainspring"]
    if wrong:
        raise ConfigError(f"{path}: {wrong[0]} is not the table of the settings", hint="Write [tool.mainspring].")


def _of_file(file: SettingsFile | None) -> dict[str, SettingOrigin]:
    if file is None:
        return {}
    found = {}
    for key, value in file.table.items():
        if key == "app":
            _check_app(value, file.where(key))
            continue
        setting = TABLE.get(key)
        if setting is None:
            hint = f"Settings: {', '.join(['app', *TABLE])}."
            raise UnknownOption(str(file.path), file.prefix + key, [file.prefix + name for name in TABLE], hint=hint)
        where = file.where(key)
        flat = _flat(value) if setting.kind in ("table", "numbers") and isinstance(value, dict) else value
        found[key] = SettingOrigin(_anchored(setting, convert(setting, flat, where), file.path.parent), "file", where)
    return found


def _check_app(value: Any, where: str) -> None:
    """Check ``app``, which is for commands and is not a setting."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidOption("app", value, "must be module:object", subject=where)


def _flat(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Flatten nested tables: TOML reads ``shop.mail = "x"`` as nested tables, but names of tasks contain dots."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and value:
            flat.update(_flat(value, f"{before}{key}."))
        else:
            flat[before + key] = value
    return flat


def _anchored(setting: Setting, value: Any, folder: Path) -> Any:
    """Resolve a relative path from the directory of the file, because programs start in different directories."""
    if setting.kind == "path" and value not in (None, "stdout", "stderr"):
        return str(folder / value)
    return anchored_url(value, folder) if setting.kind == "url" else value


def anchored_url(url: str, folder: Path) -> str:
    """The URL with an absolute path: a relative path of a SQLite file starts from ``folder``."""
    if re.match(r"sqlite:///(?!/|:memory:$)", url):
        return f"sqlite:///{folder / url.removeprefix('sqlite:///')}"
    return url
