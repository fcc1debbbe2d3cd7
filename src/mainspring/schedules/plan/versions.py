"""Which of two versions of the code is older."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NUMBERS = re.compile(r"v?(\d+(?:\.\d+)*)(?:[-+._ ].*|(?:a|b|rc|dev|post)\d*)?", re.ASCII | re.IGNORECASE)


def numbers(version: str) -> tuple[int, ...] | None:
    """A version that looks like dotted numbers, with a ``v`` before it or something behind it or not.

    >>> numbers("v1.12.0-rc1"), numbers("7"), numbers("7f3a9c2")
    ((1, 12), (7,), None)
    """
    found = _NUMBERS.fullmatch(version)
    if found is None:
        return None
    parts = [int(part) for part in found[1].split(".")]
    while len(parts) > 1 and parts[-1] == 0:  # 1.4.0 is 1.4
        parts.pop()
    return tuple(parts)


def is_older(one: str, other: str, seen: Mapping[str, int]) -> bool:
    """Whether code of the version ``one`` is older than that of ``other``. ``seen`` says when each
    was seen first, for those that are not both numbers. Without a version nobody can tell, and neither is older.

    >>> is_older("1.9", "1.10", {}), is_older("b7", "a1", {"b7": 5, "a1": 9}), is_older("", "2", {})
    (True, True, False)
    """
    if not one or not other or one == other:
        return False
    mine, others = numbers(one), numbers(other)
    if mine is not None and others is not None and mine != others:
        return mine < others
    return one in seen and other in seen and seen[one] < seen[other]
