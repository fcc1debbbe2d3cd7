"""The Lua scripts: one file per store call, put together from the parts that its first line names.

A name in capitals that stands for a number (``local READY, RUNNING = 4, 5``) is replaced by the number, and comments
are left out: the server makes every function of a script anew at each call, and pays for each name that a function
takes from outside.

A part whose comment says ``-- gives: name, name`` keeps its other names to itself: a script may have 200 at its top.
Where the first line names it with a star it is made only when ``with_part()`` is called, and until then its names are
nil; parts with stars that follow each other are one, by the name of the first. So few pay for what few use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from hashlib import sha1
from importlib.resources import files
from itertools import groupby
from typing import NamedTuple

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
    parts = body.partition("\n")[0].removeprefix("-- uses: ").split(", ")
    text = _with_numbers("".join([*_assembled(parts), body])).encode()
    return Script(name, text, sha1(text, usedforsecurity=False).hexdigest())


def _assembled(parts: list[str]) -> Iterator[str]:
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
    """What it gives is local outside of it."""
    return re.sub(rf"^local (function )?(?=(?:{'|'.join(_given(text))})\b)", r"\1", text, flags=re.MULTILINE)


@cache
def _read(name: str) -> str:
    return files(__package__).joinpath("lua", f"{name}.lua").read_text("utf-8")


def _with_numbers(text: str) -> str:
    numbers: dict[str, str] = {}
    for names, values in _CONSTANTS.findall(text):
        numbers.update(zip(names.split(", "), values.split(", "), strict=True))
    text = _COMMENT.sub("", _CONSTANTS.sub("", text))
    return _NAME.sub(lambda found: numbers.get(found[0], found[0]), text)
