"""Pictures of the documentation are well formed, and the maintainer's book names only what exists.

Pictures are Mermaid text. `problems_of` is a small check of their structure, not a Mermaid parser: the kind of the
diagram, brackets and quotes, two named ends of every arrow, and an `end` for every block.

In `docs/internals/` every name in backquotes is looked up: files, classes, `Class.method`, functions (written with
`()`), SQL functions (`name_v1`) and constants (`UPPER_CASE`).
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "mainspring"
BOOK = ROOT / "docs" / "internals"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
PICTURE = re.compile(r"^```mermaid\n(.*?)\n```$", re.DOTALL | re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


# ---- pictures ----------------------------------------------------------------------------------------------------

PAIRS = {")": "(", "]": "[", "}": "{"}
TEXT = re.compile(r'"[^"]*"')
WORD = r"[A-Za-z]\w*"

PARTICIPANT = re.compile(rf"(?:participant|actor) (?P<name>{WORD})(?: as (?P<label>\S.*))?")
MESSAGE = re.compile(rf"(?P<a>{WORD}) ?(?:-->>|->>|-->|->|--x|-x|--\)|-\)) ?[+-]?(?P<b>{WORD}) ?: ?\S.*")
NOTE = re.compile(rf"[Nn]ote (?:over|left of|right of) (?P<a>{WORD})(?:, ?(?P<b>{WORD}))? ?: ?\S.*")
OPENS = re.compile(r"(?:loop|alt|opt|par|critical|rect|box) \S.*")
CONTINUES = re.compile(r"(?:else|and|option)(?: \S.*)?")

STATE = re.compile(rf'state "(?P<label>[^"]+)" as (?P<name>{WORD})')
CHANGE = re.compile(rf"(?P<a>\[\*\]|{WORD}) --> (?P<b>\[\*\]|{WORD})(?: : \S.*)?")

SUBGRAPH = re.compile(rf"subgraph (?P<name>{WORD})(?:\[.+\])?")
SHAPE = r"(?:\[\(.+?\)\]|\[.+?\]|\(.+?\)|\{.+?\})"
NODE = re.compile(rf"(?P<name>{WORD})(?P<label>{SHAPE})?")
LINK = re.compile(r" (?:-->|---|-\.->|==>)(?:\|[^|]+\|)? ")


class Picture(NamedTuple):
    """A Mermaid block of a page."""

    place: str
    text: str


def pictures() -> Iterator[Picture]:
    for page in PAGES:
        text = page.read_text()
        for match in PICTURE.finditer(text):
            yield Picture(f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}", match[1])


def problems_of(text: str) -> list[str]:
    """What is wrong with the structure of a diagram, in words; [] if it is well formed."""
    head, *rest = text.splitlines()
    lines = [line.strip() for line in rest if line.strip() and not line.strip().startswith("%%")]
    if not lines:
        return ["the diagram is empty"]
    kinds = {
        "sequenceDiagram": _sequence, "stateDiagram-v2": _states,
        "flowchart TD": _flow, "flowchart LR": _flow,
    }  # fmt: skip
    kind = kinds.get(head.strip())
    if kind is None:
        return [f"unknown kind of diagram: {head!r}"]
    unbalanced = [f"brackets or quotes: {line!r}" for line in lines if not _is_balanced(line)]
    return unbalanced or kind(lines)


def _is_balanced(line: str) -> bool:
    if line.count('"') % 2:
        return False
    open_brackets: list[str] = []
    for letter in TEXT.sub('""', line):
        if letter in PAIRS.values():
            open_brackets.append(letter)
        elif letter in PAIRS and (not open_brackets or open_brackets.pop() != PAIRS[letter]):
            return False
    return not open_brackets


def _sequence(lines: list[str]) -> list[str]:
    named: set[str] = set()
    depth, found = 0, list[str]()
    for line in lines:
        if made := PARTICIPANT.fullmatch(line):
            named.add(made["name"])
        elif arrow := MESSAGE.fullmatch(line) or NOTE.fullmatch(line):
            ends = [end for end in (arrow["a"], arrow["b"]) if end]
            found += [f"{end} is not a participant: {line!r}" for end in ends if end not in named]
        elif OPENS.fullmatch(line):
            depth += 1
        elif line == "end":
            depth -= 1
        elif not (CONTINUES.fullmatch(line) and depth):
            found.append(f"cannot read: {line!r}")
    return found + ([] if depth == 0 else ["a block and its end do not match"])


def _states(lines: list[str]) -> list[str]:
    named = {made["name"] for line in lines if (made := STATE.fullmatch(line))} | {"[*]"}
    found: list[str] = []
    for line in lines:
        if arrow := CHANGE.fullmatch(line):
            found += [f"{end} is not a state: {line!r}" for end in (arrow["a"], arrow["b"]) if end not in named]
        elif not STATE.fullmatch(line):
            found.append(f"cannot read: {line!r}")
    return found


def _flow(lines: list[str]) -> list[str]:
    named: set[str] = set()
    used: dict[str, str] = {}
    depth, found = 0, list[str]()
    for line in lines:
        if SUBGRAPH.fullmatch(line):
            depth += 1
            continue
        if line == "end":
            depth -= 1
            continue
        for part in LINK.split(line):
            node = NODE.fullmatch(part)
            if node is None:
                found.append(f"cannot read {part!r} in {line!r}")
            elif node["label"]:
                named.add(node["name"])
            else:
                used[node["name"]] = line
    found += [f"{name} has no label: {line!r}" for name, line in used.items() if name not in named]
    return found + ([] if depth == 0 else ["a subgraph and its end do not match"])


@pytest.mark.parametrize("picture", [pytest.param(each, id=each.place) for each in pictures()])
def test_a_picture_is_well_formed(picture: Picture) -> None:
    assert problems_of(picture.text) == []


@pytest.mark.parametrize(
    "text",
    [
        "pie",
        "flowchart TD",
        "flowchart TD\n  A[one] --> B",
        "flowchart TD\n  A[one] -->",
        "flowchart TD\n  A[one --> B[two]",
        'flowchart TD\n  A["one] --> B[two]',
        "flowchart TD\n  subgraph s\n  A[one] --> B[two]",
        "sequenceDiagram\n  participant A\n  A->>B: hello",
        "sequenceDiagram\n  participant A\n  A->>: hello",
        "sequenceDiagram\n  participant A\n  loop often\n  A->>A: hello",
        "sequenceDiagram\n  participant A\n  else no\n  A->>A: hello",
        'stateDiagram-v2\n  state "one" as a\n  a --> b',
        'stateDiagram-v2\n  state "one" as a\n  a -->',
    ],
)
def test_a_broken_picture_is_found(text: str) -> None:
    assert problems_of(text)


# ---- names in the book -------------------------------------------------------------------------------------------

SPAN = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w.*-]+(?:/[\w.*-]+)*(?:/|\.(?:py|sql|lua|md|toml|txt|jsonl|json))")
SQL_FUNCTION = re.compile(r"(\w+_v\d+)(?:\(\w*\))?")
FUNCTION = re.compile(r"(?:[A-Za-z_]\w*\.)*(_?[a-z]\w*)\(\)")
MEMBER = re.compile(r"([A-Z]\w*[a-z]\w*)\.(_?\w+)(?:\(\))?")
CLASS = re.compile(r"[A-Z][a-z]\w*")
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
FILES_OF_RUNS = (".dev/",)
"""Folders that a test run makes."""
NOT_BUILT = {"peek", "turn_v2", "X.lua", "_part.lua"}
"""Names of examples, which do not exist on purpose."""
PARTS_OF_ENGINES = {"driver/", "sql/", "lua/", "driver/constants.py", "lua/X.lua", "lua/_part.lua"}
"""Files and folders of every engine, and the file names of an example."""
PLACED = re.compile(r"`([^`\n]+)` (?:in|of) `([^`\n]+\.(?:py|sql|lua))`|\b(\w+)\(\) in ([\w/]+\.(?:py|sql|lua))\b")


class Names(NamedTuple):
    """What the source has: classes with their members, functions and constants."""

    classes: dict[str, set[str]]
    bases: dict[str, set[str]]
    functions: set[str]
    constants: set[str]

    def has_member(self, owner: str, member: str) -> bool:
        if member in self.classes.get(owner, ()):
            return True
        return any(self.has_member(base, member) for base in self.bases.get(owner, ()))


def source_files(*suffixes: str) -> Iterator[Path]:
    for folder in (PACKAGE, ROOT / "tests", ROOT / "tools"):
        for suffix in suffixes:
            yield from sorted(folder.rglob("*" + suffix))


@cache
def names() -> Names:
    found = Names({}, {}, set(), set())
    for path in source_files(".py"):
        if path.name.startswith("test_") and "tests" in path.parts:
            continue
        has_functions = "tests" not in path.parts or path.name == "timing.py"  # the book names functions of the product
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.functions.update([node.name] if has_functions else [])
            elif isinstance(node, ast.Assign) and _calls_twin(node.value):  # the blocking twin of a method
                found.functions.update(each.id for each in node.targets if isinstance(each, ast.Name))
            elif isinstance(node, ast.ClassDef):
                found.classes.setdefault(node.name, set()).update(_members(node))
                bases = {each.id for each in map(_unsubscripted, node.bases) if isinstance(each, ast.Name)}
                found.bases.setdefault(node.name, set()).update(bases)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.constants.add(node.id)
    for path in source_files(".sql"):
        found.functions.update(re.findall(r"create function \{schema\}\.(\w+)", path.read_text()))
    for path in source_files(".lua"):
        found.functions.update(re.findall(r"^\s*(?:local )?function (\w+)", path.read_text(), re.MULTILINE))
    return found


def _calls_twin(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "twin"


def _unsubscripted(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Subscript) else node


def _members(node: ast.ClassDef) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield each.name
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            yield each.id
        elif isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            yield each.attr


def exists(name: str) -> bool:
    """Whether a path of the book exists: from the repository, from the package, or the end of a path (`records.py`)."""
    if name in PARTS_OF_ENGINES or name.startswith(FILES_OF_RUNS):
        return True
    return bool(files_named(name)) or any(any(folder.glob(name.rstrip("/"))) for folder in (ROOT, PACKAGE))


@cache
def files_named(name: str) -> tuple[Path, ...]:
    """The source files whose path ends in this name."""
    return tuple(path for path in source_files(".py", ".sql", ".lua") if str(path).endswith("/" + name))


def problem_of(span: str) -> str | None:
    """Why the name in backquotes cannot be true; None if it is true, or no name."""
    known = names()
    if PATH.fullmatch(span):
        return None if exists(span) else f"no such file: {span}"
    if (called := SQL_FUNCTION.fullmatch(span)) and called[1] not in known.functions | NOT_BUILT:
        return f"no such SQL function: {span}"
    if member := MEMBER.fullmatch(span):
        if member[1] not in known.classes:
            return f"no such class: {span}"
        return None if known.has_member(*member.groups()) or member[2] in NOT_BUILT else f"no such member: {span}"
    if (called := FUNCTION.fullmatch(span)) and called[1] not in known.functions | NOT_BUILT:
        return f"no such function: {span}"
    if CLASS.fullmatch(span) and span not in {*known.classes, *known.constants} and not hasattr(builtins, span):
        return f"no such class: {span}"
    if CONSTANT.fullmatch(span) and span not in known.constants:
        return f"no such constant: {span}"
    return None


def spans(text: str) -> Iterator[str]:
    """The names in backquotes of a page, and the functions and files in the labels of its pictures."""
    yield from SPAN.findall(FENCED.sub("", text))
    for picture in PICTURE.findall(text):
        yield from re.findall(r"\b_?[A-Za-z][\w.]*\(\)", picture)
        yield from (name for name in re.findall(r"[\w/]+\.(?:py|sql|lua)\b", picture) if "/" in name)


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in sorted(BOOK.glob("*.md"))])
def test_every_name_in_the_book_exists(page: Path) -> None:
    found = (problem_of(span) for span in dict.fromkeys(spans(page.read_text())))
    assert [problem for problem in found if problem] == []


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in sorted(BOOK.glob("*.md"))])
def test_a_name_is_found_in_the_file_that_the_book_names(page: Path) -> None:
    found: list[str] = []
    for name, file, drawn, drawn_file in PLACED.findall(page.read_text()):
        last = re.split(r"\W+", (name or drawn).removesuffix("()"))[-1]
        texts = [path.read_text() for path in files_named(file or drawn_file)]
        if not any(re.search(rf"\b{last}\b", text) for text in texts) and last not in NOT_BUILT:
            found.append(f"{name or drawn} is not in {file or drawn_file}")
    assert found == []


@pytest.mark.parametrize(
    "span",
    [
        "worker/loop/turner.py",
        "TurnLoop.no_such",
        "Floor",
        "no_such_function()",
        "turn_v9",
        "NO_SUCH_NAME",
        "Store.nothing()",
    ],
)
def test_a_name_that_does_not_exist_is_found(span: str) -> None:
    assert problem_of(span)


@pytest.mark.parametrize(
    "span",
    ["worker/loop/turn_loop.py", "Door.turn", "Store.turn()", "TurnLoop", "turn_v1()", "FLUSH_AT", "`x = 1`", "ready"],
)
def test_a_name_that_exists_is_not_reported(span: str) -> None:
    assert problem_of(span) is None


LINK_TO = re.compile(r"\]\(([^)#\s]+\.md)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in sorted(BOOK.glob("*.md"))])
def test_every_link_in_the_book_has_a_target(page: Path) -> None:
    assert [target for target in LINK_TO.findall(page.read_text()) if not (page.parent / target).exists()] == []
