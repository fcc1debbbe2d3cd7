"""The source tree keeps its shape: every module is in a layer, and no package grows into a heap."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import mainspring

PACKAGE = Path(mainspring.__file__).parent
ROOT = Path(__file__).parents[2]
MOST_FLAT = 8
"""Modules directly in the package."""
MOST_MODULES = 15
"""Modules of any other package, beside its sub-packages."""


def layers() -> list[str]:
    """The names in the layers of pyproject.toml, without the brackets of optional ones."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = (each for each in settings["contracts"] if each["type"] == "layers")
    return [name.strip("() ") for line in contract["layers"] for name in re.split("[:|]", line)]


def modules() -> set[str]:
    """All modules but ``__init__``, without the name of the package."""
    paths = (path.relative_to(PACKAGE).with_suffix("") for path in PACKAGE.rglob("*.py"))
    return {".".join(path.parts) for path in paths if path.name != "__init__"}


def test_every_module_is_in_a_layer() -> None:
    named = layers()
    missing = {
        module for module in modules() if not any(module == name or module.startswith(f"{name}.") for name in named)
    }
    assert missing == set()


def test_no_module_is_in_two_layers() -> None:
    assert sorted(layers()) == sorted(set(layers()))


def test_few_modules_lie_flat_in_the_package() -> None:
    flat = sorted(path.stem for path in PACKAGE.glob("*.py"))
    assert len(flat) <= MOST_FLAT, flat


def test_no_package_has_too_many_modules() -> None:
    """``__init__`` is not counted."""
    large = {}
    for folder in {path.parent for path in PACKAGE.rglob("*.py")} - {PACKAGE}:
        count = len([path for path in folder.glob("*.py") if path.stem != "__init__"])
        if count > MOST_MODULES:
            large[str(folder.relative_to(PACKAGE))] = count
    assert large == {}
