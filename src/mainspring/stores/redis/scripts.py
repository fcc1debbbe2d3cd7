"""The Lua scripts: one file per store call, put together from the parts that its first line names.

A name in capitals that stands for a number (``local READY, RUNNING = 4, 5``) is replaced by the number, and comments
are left out: the server makes every function of a script anew at each call, and pays for each name that a function
takes from outside.
"""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple

_CONSTANTS = re.compile(r"^local ([A-Z_]+(?:, [A-Z_]+)*) = (-?\d+(?:, -?\d+)*)(?: --.*)?$", re.MULTILINE)
_NAME = re.compile(r"\b[A-Z][A-Z_]*\b(?!')")
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
    text = _with_numbers("".join([*(_read(f"_{part}") for part in parts), body])).encode()
    return Script(name, text, sha1(text, usedforsecurity=False).hexdigest())


@cache
def _read(name: str) -> str:
    return files(__package__).joinpath("lua", f"{name}.lua").read_text("utf-8")


def _with_numbers(text: str) -> str:
    numbers: dict[str, str] = {}
    for names, values in _CONSTANTS.findall(text):
        numbers.update(zip(names.split(", "), values.split(", "), strict=True))
    text = _COMMENT.sub("", _CONSTANTS.sub("", text))
    return _NAME.sub(lambda found: numbers.get(found[0], found[0]), text)
