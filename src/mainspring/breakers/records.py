"""Records of breakers that cross the store seam.

Ids are the 16 bytes of a UUID. Times and durations are microseconds; times count from 1970 on the clock of the store.
"""

from __future__ import annotations

from typing import Literal

import msgspec

BREAKER_SUFFIX = ":breaker"
"""What the name of a breaker ends in."""


FOREVER = 1 << 52
"""A breaker that is open until then is open until somebody resets it."""


def is_breaker(bucket: str) -> bool:
    return bucket.endswith(BREAKER_SUFFIX) and "=" not in bucket


class BreakerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A breaker as a claim would find it now."""

    name: str
    state: Literal["closed", "open", "half_open"] = "closed"
    failures: int = 0
    """In a row, or within the window; of one that is not closed, those that opened it."""
    calls: int = 0
    """Ends within the window, of one that goes by a share."""
    opened: int | None = None
    until: int | None = None
    """When it becomes, or has become, half open; None of one that is open until somebody resets it."""
    error: str = ""
    """What failed last, in a few words."""
    tripped: bool = False
    """Somebody opened it by hand."""
