"""The Lua scripts: one file per store call, put together from the parts that its first line names."""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple


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
    text = "".join([*(_read(f"_{part}") for part in parts), body]).encode()
    return Script(name, text, sha1(text, usedforsecurity=False).hexdigest())


@cache
def _read(name: str) -> str:
    return files(__package__).joinpath("lua", f"{name}.lua").read_text("utf-8")
