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


class BreakerSwap(msgspec.Struct, frozen=True, kw_only=True):
    """A write to the row of a breaker if its number is still ``expected``, or only a read of the row."""

    name: str
    expected: int = 0
    """The number of the row that the change was computed from; 0 for a breaker without a row."""
    rev: int = 0
    """The new number, drawn at random, so that a writer knows its own write; 0: read the row and change nothing."""
    open_for: int | None = None
    """Open the breaker for this time from now, ``FOREVER`` until it is reset, 0 to close it; None: neither."""
    doc: str = ""
    """The new counts. A store does not look into them."""


class StoredBreaker(msgspec.Struct, frozen=True, array_like=True):
    """A declared breaker as the store has it. ``now`` is the time of the read."""

    now: int
    name: str
    size: int = 0
    per: int = 0
    burst: int = 0
    share: int = 0
    span: int = 0
    rev: int = 0
    """The number of the row; 0 if there is none, because nothing was counted yet."""
    until: int = 0
    """When the breaker becomes, or became, half open; 0 while it is closed."""
    opened: int = 0
    """When it was opened; 0 while it is closed."""
    doc: str = ""


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
