"""Every option of every decorator, call, setting and command has a test that fails when it is ignored.

A test says so with ``@pytest.mark.option("task.retries")``. The marks are read from the source, so
that this holds whichever tests are run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import click
import pytest

from mainspring.cli import cli
from mainspring.options.table import Scope, options_for
from mainspring.settings.settings import Settings
from mainspring.testing.app import TestOptions as OfTests  # not a class of tests

pytestmark = pytest.mark.row("C4")

TESTS = Path(__file__).resolve().parents[1]
OF_THE_APP = ("url", "namespace", "name", "include", "version")


def declared() -> Iterator[str]:
    for scope in get_args(Scope):
        for option in options_for(scope):
            yield f"{scope}.{option.name}"
    for name in (*OF_THE_APP, *Settings.__annotations__):
        yield f"app.{name}"
    for name in OfTests.__annotations__:
        yield f"test.{name}"
    yield from _of_command(cli, "cli")


def _of_command(command: click.Command, path: str) -> Iterator[str]:
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from _of_command(each, f"{path}.{name}")
    for param in command.params:
        if param.name and not getattr(param, "is_eager", False):
            yield f"{path}.{param.name}"


def proven() -> set[str]:
    found: set[str] = set()
    for file in TESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.option":
                found |= {str(arg.value) for arg in node.args if isinstance(arg, ast.Constant)}
    return found


def test_every_option_has_a_test() -> None:
    missing = sorted(set(declared()) - proven())
    assert not missing, f"no test would fail if these were ignored: {missing}"


def test_every_option_mark_names_an_option() -> None:
    """A renamed or removed option leaves no mark behind."""
    unknown = sorted(proven() - set(declared()))
    assert not unknown, f"marks of options that are not there: {unknown}"
