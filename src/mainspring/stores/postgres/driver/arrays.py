"""How lists are sent: one array per field, typed by the casts in the statements.

Numbers are written as array literals, so that a statement has the same parameter types whatever the size of the
numbers.
"""

from __future__ import annotations

from collections.abc import Iterable

INT_MAX = 2**62
"""A larger number cannot be stored, nor added to a time."""


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
    """``values``, or an empty list if all are None: the server reads the missing entries of a short array as null."""
    return values if any(value is not None for value in values) else []
