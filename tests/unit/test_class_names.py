"""A class name is defined once in the package: one name means one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import mainspring

PACKAGE = Path(mainspring.__file__).parent


def classes() -> dict[str, list[str]]:
    """The places where each class is defined, also private and nested ones."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    return found


def test_a_class_name_is_defined_once() -> None:
    """``_Watch`` and ``Watch`` are one name."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, places in classes().items():
        found[name.lstrip("_")] += places
    assert {name: places for name, places in found.items() if len(places) > 1} == {}
