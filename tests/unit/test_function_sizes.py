"""A function fits on a page, in Python, SQL and Lua; a longer one becomes a list of named steps."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mainspring

PACKAGE = Path(mainspring.__file__).parent
MOST = 80
"""Lines of a function, from its first line to its last one."""

# The claim of PostgreSQL is to be written anew. Its two long functions go away with that, and then their lines here.
LONGER = {"stores/postgres/sql/turn.sql: turn_v1", "stores/postgres/sql/claim/limited.sql: pick_limited_v1"}

SQL_BEGIN = re.compile(r"create (?:or replace )?(?:function|procedure) (?:\{schema\}\.)?(\w+)", re.IGNORECASE)
LUA_BEGIN = re.compile(r"(?:local )?function ([\w.:]+)|(?:local )?([\w.]+) = function\b")

Lengths = Iterator[tuple[str, int]]


def python_lengths(text: str) -> Lengths:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1


def sql_lengths(text: str) -> Lengths:
    """A function ends with the line that begins with ``$$``."""
    name, begin = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        if match := SQL_BEGIN.match(line):
            assert not name, f"{name} has no end"
            name, begin = match[1], number
        elif name and line.startswith("$$"):
            yield name, number - begin + 1
            name = ""
    assert not name, f"{name} has no end"


def lua_lengths(text: str) -> Lengths:
    """A function ends with the line ``end``. All other lines of code make up one more function, the script."""
    name, begin, script = "", 0, 0
    for number, line in enumerate(text.splitlines(), start=1):
        if not name and (match := LUA_BEGIN.match(line)):
            name, begin = match[1] or match[2], number
        if not name:
            script += bool(line.strip()) and not line.startswith("--")
        elif re.match(r"end\b", line) or (number == begin and re.search(r"\bend\W*$", line)):
            yield name, number - begin + 1
            name = ""
    assert not name, f"{name} has no end"
    yield "the script", script


READERS: dict[str, Callable[[str], Lengths]] = {"py": python_lengths, "sql": sql_lengths, "lua": lua_lengths}


def lengths(suffix: str) -> dict[str, int]:
    """The longest function of each name in each file."""
    found: dict[str, int] = {}
    for path in sorted(PACKAGE.rglob(f"*.{suffix}")):
        for name, lines in READERS[suffix](path.read_text(encoding="utf-8")):
            place = f"{path.relative_to(PACKAGE).as_posix()}: {name}"
            found[place] = max(lines, found.get(place, 0))
    return found


def test_no_function_is_longer_than_a_page() -> None:
    """A place in ``LONGER`` whose function has become short fails too: remove it there."""
    found = lengths("py") | lengths("sql") | lengths("lua")
    assert {place for place, lines in found.items() if lines > MOST} == LONGER


@pytest.mark.parametrize(
    ("suffix", "word"),
    [("sql", r"\b(?:function|procedure) \{schema\}\.\w+\("), ("lua", r"^(?:local )?function\b|^\S.*= function\b")],
)
def test_every_function_is_counted(suffix: str, word: str) -> None:
    """The reader knows every way in which a function of these texts begins."""
    for path in sorted(PACKAGE.rglob(f"*.{suffix}")):
        text = path.read_text(encoding="utf-8")
        named = re.findall(word, re.sub(r"--.*", "", text), re.MULTILINE)
        counted = [name for name, _ in READERS[suffix](text) if name != "the script"]
        assert len(counted) == len(named), path


def test_lines_are_counted_from_the_first_to_the_last() -> None:
    sql = "-- a: one\ncreate function {schema}.a_v1(\n    p integer\n) returns void as $$\nbegin\nend\n$$;\nselect 1;\n"
    lua = "-- uses: common\nlocal n = 0\n\nlocal function f(a)\n  if a then\n    return\n  end\nend\n\nreturn f(n)\n"
    python = "class A:\n    @property\n    def f(self):\n        def g():\n            pass\n        return g\n"
    assert list(sql_lengths(sql)) == [("a_v1", 6)]
    assert list(lua_lengths(lua)) == [("f", 5), ("the script", 2)]
    assert sorted(python_lengths(python)) == [("f", 4), ("g", 2)]
