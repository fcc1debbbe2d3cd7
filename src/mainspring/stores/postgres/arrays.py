"""How lists travel: one array per field, typed by the casts in the statements.

Numbers are written as array literals, so a statement has the same parameter types whatever their size.
"""

from __future__ import annotations

from collections.abc import Iterable

INT_MAX = 2**62
"""Above this a number cannot be kept, nor added to a time."""


def numbers(values: Iterable[int | bool | None]) -> str:
    """
    >>> numbers([1, None, True])
    '{1,NULL,1}'
    """
    return "{" + ",".join(["NULL" if value is None else str(int(value)) for value in values]) + "}"


def flags(values: Iterable[bool]) -> str:
    """
    >>> flags([True, False])
    '{t,f}'
    """
    return "{" + ",".join(["t" if value else "f" for value in values]) + "}"


def words(values: Iterable[str]) -> str:
    r"""
    >>> words(["a", 'b"c'])
    '{"a","b\\"c"}'
    """
    quoted = [value.replace("\\", "\\\\").replace('"', '\\"') for value in values]
    return "{" + ",".join(f'"{value}"' for value in quoted) + "}"


def some(values: list[bytes | None]) -> list[bytes | None]:
    """The same, or nothing at all if all are None: an array that is too short is filled up with null."""
    return values if any(value is not None for value in values) else []
