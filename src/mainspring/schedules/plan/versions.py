"""Compares two versions of the code: which one is older?"""

from __future__ import annotations

import re
from collections.abc import Mapping

_NUMBERS = re.compile(r"v?(\d+(?:\.\d+)*)(?:[-+._ ].*|(?:a|b|rc|dev|post)\d*)?", re.ASCII | re.IGNORECASE)


def parse_numbers(version: str) -> tuple[int, ...] | None:
    """Return the dotted numbers of a version, with or without a leading ``v`` and a suffix; None for other texts.

    >>> parse_numbers("v1.12.0-rc1"), parse_numbers("7"), parse_numbers("7f3a9c2")
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
    """Whether version ``one`` of the code is older than version ``other``.

    ``seen`` maps a version to the moment when this store first saw it. It decides for two versions that are not both
    dotted numbers. Without a version, neither is older.

    >>> is_older("1.9", "1.10", {}), is_older("b7", "a1", {"b7": 5, "a1": 9}), is_older("", "2", {})
    (True, True, False)
    """
    if not one or not other or one == other:
        return False
    mine, others = parse_numbers(one), parse_numbers(other)
    if mine is not None and others is not None and mine != others:
        return mine < others
    return one in seen and other in seen and seen[one] < seen[other]
