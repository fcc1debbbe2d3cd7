"""Sizes as users write them: ``"256MB"``.

A size is a number of bytes or text. ``kB MB GB TB`` count in thousands, as disks and networks do;
``KiB MiB GiB TiB`` count in 1024s, as memory does. ``M`` alone is refused, because it is ambiguous.
"""

from __future__ import annotations

import re

from mainspring.common.duration import scaled
from mainspring.errors import InvalidOption

Size = str | int

_UNITS = {"b": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate("kmgt", start=1)
    for suffix, base in (("b", 1000), ("ib", 1024))
}
_HINT = 'Write "256MB" (thousands) or "256MiB" (1024s), or a number of bytes.'


def to_bytes(value: Size, *, what: str = "size") -> int:
    """The size in bytes; ``what`` names it in the error.

    >>> to_bytes("256MB"), to_bytes("1.5 KiB"), to_bytes(512)
    (256000000, 1536, 512)
    """
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise InvalidOption(what, value, f"a size is text or a whole number, not {type(value).__name__}", hint=_HINT)
    if isinstance(value, int):
        if value < 0:
            raise InvalidOption(what, value, "a size cannot be negative")
        return value
    match = re.fullmatch(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*([A-Za-z]*)\s*", value, re.ASCII)
    if match is None:
        raise InvalidOption(what, value, "cannot be read as a size", hint=_HINT)
    number, unit = match.groups()
    factor = _UNITS.get(unit.lower() or "b")
    if factor is None:
        raise InvalidOption(what, value, f"unknown unit {unit!r}", hint=_HINT)
    return scaled(number, factor)


def format_size(size: Size) -> str:
    """A short text for a size: exact if a unit fits, else with three digits.

    >>> format_size(1_000_000), format_size(268_435_456), format_size(1_234_567)
    ('1MB', '256MiB', '1.23MB')
    """
    count = to_bytes(size)
    for name, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 1000)):
        if count >= factor and count % factor == 0:
            return f"{count // factor}{name}"
    for name, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= factor and count % factor == 0:
            return f"{count // factor}{name}"
    for name, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 1000)):
        if count >= factor:
            return f"{count / factor:.3g}{name}" if count < 999.5 * factor else f"{count / factor:.0f}{name}"
    return f"{count}B"
