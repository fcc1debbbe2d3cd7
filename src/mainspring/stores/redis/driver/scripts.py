"""The Lua scripts: one file for each store call, assembled from the parts that its first line names.

``-- uses: jobs, query`` names the parts ``_query.lua`` and those of the bundle ``jobs`` (see :data:`BUNDLES`). Every
``{NAME}`` in the text is replaced by a constant (:mod:`mainspring.stores.shared.constants` and :mod:`.constants`).

The server creates every function of a script again at each call, and pays for each outer name that a function uses.
Therefore:

- An upper-case name that is defined as a number (``local STATE, SEQ = 1, 2``) is replaced by the number, and comments
  are removed.
- A part whose comment says ``-- gives: name, name`` keeps its other names inside a block: the top level of a script may
  have 200 names.
- A part with a star is created only when ``with_part()`` is called; its names are nil until then. Parts with stars that
  follow each other are created together, by the name of the first. So a call pays only for the parts that it needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha1
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import groupby
from typing import NamedTuple

from mainspring.stores.shared.constants import fill

from .constants import LUA

BUNDLES = {
    "limits": ("limits*", "breakers*", "limits_rates*", "limits_capacity*", "limits_waiting*"),
    "jobs": (
        "common",
        "rows",
        "lane_fields",
        "queues*",
        "wakeups",
        "lanes",
        "limits",
        "moves",
        "follow_ups",
        "flows*",
        "finish",
        "flush",
    ),
    "claims": ("claim", "claim_limited*", "fair*", "claim_order"),
}
"""Parts that always go together, in the order in which they need each other. ``jobs`` is all that a script needs to
move a job from one state to another."""

_CONSTANTS = re.compile(r"^local ([A-Z_]+(?:, [A-Z_]+)*) = (-?\d+(?:, -?\d+)*)(?: --.*)?$", re.MULTILINE)
_NAME = re.compile(r"\b[A-Z][A-Z_]*\b(?!')")
_GIVES = re.compile(r"^-- gives: (.*)$", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)


class Script(NamedTuple):
    """A whole script and the name by which the server knows it."""

    name: str
    text: bytes
    sha: str


@cache
def script(name: str) -> Script:
    """The script of a store call; its first line is ``-- uses: part, part``."""
    body = _read(name)
    named = body.partition("\n")[0].removeprefix("-- uses: ").split(", ")
    text = _with_numbers("".join([*_assembled(_unbundled(named)), body])).encode()
    return Script(name, text, sha1(text, usedforsecurity=False).hexdigest())


def sources() -> dict[str, str]:
    """The text of every file in ``lua/`` by its name, as it is written."""
    return {file.name.removesuffix(".lua"): file.read_text("utf-8") for file in _folder().iterdir()}


def _folder() -> Traversable:
    return files(__package__.rpartition(".")[0]).joinpath("lua")


def _unbundled(names: Iterable[str]) -> list[str]:
    """The names of all parts, each once."""
    parts: dict[str, None] = {}
    for name in names:
        parts.update(dict.fromkeys(_unbundled(BUNDLES[name]) if name in BUNDLES else [name]))
    return list(parts)


def _assembled(parts: Iterable[str]) -> Iterator[str]:
    for is_late, run in groupby(parts, key=lambda part: part.endswith("*")):
        names = [part.removesuffix("*") for part in run]
        if is_late:
            yield _late(names)
        else:
            yield from map(_part, names)


def _part(name: str) -> str:
    text = _read(f"_{name}")
    given = _given(text)
    return f"local {', '.join(given)}\ndo\n{_inside(text)}end\n" if given else text


def _late(names: list[str]) -> str:
    texts = [_read(f"_{name}") for name in names]
    given = [each for text in texts for each in _given(text)]
    made = f"if {given[0]} then return end\n" + "".join(map(_inside, texts))
    return f"local {', '.join(given)}\nlocal function with_{names[0]}()\n{made}end\n"


def _given(text: str) -> list[str]:
    return [name for names in _GIVES.findall(text) for name in names.split(", ")]


def _inside(text: str) -> str:
    """The text without ``local`` before the names that it gives: they are declared outside of it."""
    given = "|".join(_given(text))
    return re.sub(rf"^local (function )?(?=(?:{given})\b)", r"\1", text, flags=re.MULTILINE) if given else text


@cache
def _read(name: str) -> str:
    return fill(_folder().joinpath(f"{name}.lua").read_text("utf-8"), LUA)


def _with_numbers(text: str) -> str:
    numbers: dict[str, str] = {}
    for names, values in _CONSTANTS.findall(text):
        numbers.update(zip(names.split(", "), values.split(", "), strict=True))
    text = _COMMENT.sub("", _CONSTANTS.sub("", text))
    return _NAME.sub(lambda found: numbers.get(found[0], found[0]), text)
