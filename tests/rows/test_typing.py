"""B6: what the type checkers accept and refuse. The programs are in ``tests/typing``."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "typing"
REFUSED = re.compile(r"# type: ignore\[[a-z, -]+\]  # pyright: ignore\[[A-Za-z, ]+\]$")

pytestmark = pytest.mark.row("B6")


def programs(name: str) -> dict[str, list[str]]:
    """The lines of each program: a function or class that is not itself a task for the others."""
    text = (PROGRAMS / name).read_text()
    lines = text.splitlines()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = [node for node in ast.parse(text).body if isinstance(node, kinds) and not node.decorator_list]
    assert len({node.name for node in found}) == len(found), "each has a name of its own"
    return {node.name: lines[node.lineno - 1 : node.end_lineno] for node in found}


def test_at_least_thirty_right_programs_have_no_ignore_comment() -> None:
    found = programs("right.py")
    assert len(found) >= 30
    assert "ignore[" not in (PROGRAMS / "right.py").read_text()


def test_at_least_thirty_wrong_programs_are_each_refused_in_one_place() -> None:
    found = programs("wrong.py")
    assert len(found) >= 30
    places = {name: sum(bool(REFUSED.search(line)) for line in lines) for name, lines in found.items()}
    assert {name: count for name, count in places.items() if count != 1} == {}


@pytest.mark.parametrize(
    "checker", [["mypy", "--no-error-summary"], ["basedpyright", "--level", "error"]], ids=lambda c: c[0]
)
def test_mypy_and_pyright_agree(checker: list[str]) -> None:
    """An unneeded ignore comment is an error, so the checker under test must refuse every wrong program."""
    program = Path(sys.executable).with_name(checker[0])
    done = subprocess.run(
        [str(program), *checker[1:], "tests/typing"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
