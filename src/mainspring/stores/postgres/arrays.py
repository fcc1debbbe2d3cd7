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
    return "{" + ",".join("NULL" if value is None else str(int(value)) for value in values) + "}"


def flags(values: Iterable[bool]) -> str:
    """
    >>> flags([True, False])
    '{t,f}'
    """
    return "{" + ",".join("t" if value else "f" for value in values) + "}"
