"""One import gives the whole contract, and this folder runs all of it."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path

from mainspring.testing import contract
from mainspring.testing.contract import everything

HERE = Path(__file__).parent


def modules() -> set[str]:
    """The modules of the suite that define tests, as ``package.module``."""
    found = set()
    for module in pkgutil.walk_packages(contract.__path__, f"{contract.__name__}."):
        if not module.ispkg and module.name != everything.__name__:
            names = vars(import_module(module.name))
            if any(name.startswith("Test") and cls.__module__ == module.name for name, cls in names.items()):
                found.add(module.name.removeprefix(f"{contract.__name__}."))
    return found


def test_everything_has_every_module() -> None:
    classes = [cls for name, cls in vars(everything).items() if name.startswith("Test")]
    assert {cls.__module__.removeprefix(f"{contract.__name__}.") for cls in classes} == modules()


def test_this_folder_runs_every_module() -> None:
    files = {path.stem for path in HERE.glob("test_*.py")} - {"test_everything", "test_model", "test_mutations"}
    assert files == {"test_" + module.replace(".", "_") for module in modules()}
