"""Records of breakers that the core and a store exchange.

An id is the 16 bytes of a UUID. Times and durations are in microseconds; times count from 1970, on the store's clock.
"""

from __future__ import annotations

from typing import Literal

import msgspec

BREAKER_SUFFIX = ":breaker"
"""The end of the name of every breaker."""


FOREVER = 1 << 52
"""A breaker that is open until this moment is open until it is reset."""


def is_breaker(bucket: str) -> bool:
    """Whether this is the name of a breaker."""
    return bucket.endswith(BREAKER_SUFFIX) and "=" not in bucket


class BreakerRow(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a breaker, as a claim would find it now."""

    name: str
    state: Literal["closed", "open", "half_open"] = "closed"
    failures: int = 0
    """The failures in a row, or within the window; if it is not closed, the failures that opened it."""
    calls: int = 0
    """The ends within the window, for a breaker with a share."""
    opened: int | None = None
    until: int | None = None
    """When it becomes, or has become, half open; None if it is open until it is reset."""
    error: str = ""
    """The last failure, in a few words."""
    tripped: bool = False
    """It was opened by hand."""
