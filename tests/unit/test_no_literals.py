"""No state, flag or threshold is typed by hand in SQL and Lua: see ``mainspring.stores.shared.constants``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import mainspring.stores
from mainspring.limits.records import Limit
from mainspring.states import Reason, State
from mainspring.stores.shared.constants import CONSTANTS, fill

STORES = Path(mainspring.stores.__file__).parent
TEXTS = sorted(path for suffix in ("sql", "lua") for path in STORES.rglob(f"*.{suffix}"))
KINDS = ("concurrency", "rate", "smooth")
"""Kinds of limits. The kind ``breaker`` is left out, because replies use the same word."""

QUOTED = re.compile(r"""(['"])(\w+)\1""")
BITS = re.compile(r"(?<![&|])[&|]\s*~?\s*\d+\b|\bb(?:and|or|xor)\([^()]*,\s*\d+\s*\)")
NUMBER = re.compile(r"(?<![\w.'\\$?:%])\d[\d_]*(?:\.\d+)?(?:e\d+)?\b(?!')")
STORAGE = re.compile(r"\bwith \(fillfactor\b.*")
"""Parameters of how PostgreSQL stores a table: they decide nothing."""
LARGEST, BYTE = 63, 256
"""A larger number is a threshold and needs a name, except the number of values of a byte. Smaller numbers are
positions, steps and counts of fields."""


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text without comments."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        code = re.sub(r"--.*", "", line)
        if code.strip():
            yield number, code


def place(path: Path, number: int, code: str) -> str:
    return f"{path.relative_to(STORES)}:{number}: {code.strip()}"


def test_there_are_sql_and_lua_texts_to_check() -> None:
    assert {path.parts[len(STORES.parts)] for path in TEXTS} == {"sqlite", "postgres", "redis"}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(STORES)))
def test_no_state_reason_or_kind_is_quoted(path: Path) -> None:
    words = {*State, *Reason, *KINDS}
    found = [place(path, n, code) for n, code in lines(path) if any(m[2] in words for m in QUOTED.finditer(code))]
    assert found == []


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(STORES)))
def test_no_flag_is_a_number(path: Path) -> None:
    assert [place(path, n, code) for n, code in lines(path) if BITS.search(code)] == []


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(STORES)))
def test_no_threshold_is_a_number(path: Path) -> None:
    found = []
    for n, code in lines(path):
        bare = STORAGE.sub("", re.sub(r"'[^']*'", "''", code))  # a number inside of a quoted text is no threshold
        numbers = {float(m[0].replace("_", "")) for m in NUMBER.finditer(bare)}
        if any(number > LARGEST for number in numbers - {BYTE}):
            found.append(place(path, n, code))
    assert found == []


def test_a_constant_is_filled_in_as_a_literal() -> None:
    assert fill("in ({FINAL}) and n < {PLENTIFUL}") == "in ('succeeded', 'dead', 'cancelled') and n < 100"
    assert fill("{READY} {schema} {t} {rows:4} {} { READY }", {"READY": 4}) == "4 {schema} {t} {rows:4} {} { READY }"


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="REDY"):
        fill("{REDY}")


def test_a_text_that_needs_escapes_is_refused() -> None:
    with pytest.raises(ValueError, match="literal"):
        fill("{NAME}", {"NAME": "it's"})


def test_the_table_has_every_state_reason_and_kind() -> None:
    values = set(map(str, CONSTANTS.values()))
    assert {*map(str, State), *map(str, Reason), *KINDS} <= values
    assert {*KINDS, "breaker"} == set(get_args(get_type_hints(Limit)["kind"]))
