"""Records of limits, and of the buckets in which their use is counted, that cross the store seam.

Ids are the 16 bytes of a UUID. Times and durations are microseconds; times count from 1970 on the clock of the store.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from mainspring.breakers.records import BreakerRow


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """How much the buckets of its name let through, for the whole fleet."""

    name: str
    """Without ``=``. That of a breaker, and no other, ends in ``:breaker``."""
    kind: Literal["concurrency", "rate", "smooth", "breaker"] = "concurrency"
    """``concurrency``: ``size`` running jobs at any instant. ``rate``: starts that cost ``size`` in any window of
    ``per``. ``smooth``: one unit each ``per / size``, up to ``burst`` at once: at most ``size + burst`` in a window.
    ``breaker``: opens after ``burst`` failures in a row for ``per``, then lets ``size`` at once through as probes."""
    size: int
    per: int = 0
    """Microseconds."""
    burst: int = 0
    share: int = 0
    """Of a breaker, in millionths: if it is not 0, it opens when this share of at least ``burst`` ends within ``span``
    are failures."""
    span: int = 0
    """Microseconds."""


class Bucket(msgspec.Struct, frozen=True):
    """What a job needs room in: a limit (then the bucket is a *gate*), or the part of a limit that belongs to a key."""

    limit: str
    key: str = ""
    cost: int = 1
    """What a start uses up of a rate."""

    @property
    def name(self) -> str:
        return f"{self.limit}={self.key}" if self.key else self.limit


class BucketRow(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket as a claim would find it now."""

    name: str
    limit: str
    kind: str
    size: int
    """Of its limit, or what somebody set in its place."""
    used: int
    """Running jobs and guests; of a rate, what was started within the window (``smooth``: what is not yet back)."""
    next_at: int | None = None
    """When a start that costs 1 fits; None if it fits now, or if nobody can know."""
    holders: tuple[bytes, ...] = ()
    """Running jobs that name it, ten at most, the oldest claims first; perhaps none of a closed breaker. An engine may
    look at the oldest 10,000 running jobs only."""
    breaker: BreakerRow | None = None
    """Of a breaker, more of how it stands; ``used`` are its probes then."""


class LimitRow(msgspec.Struct, frozen=True, kw_only=True):
    """A limit as it stands in the store."""

    limit: Limit
    """As it was declared last."""
    size: int | None = None
    """What somebody set in place of its size."""


HOLDER_REST = 1_000_000
"""Microseconds for which no place is kept for guests in a bucket to which one has given its place back."""


class HoldResult(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to a guest."""

    ok: bool
    now: int
    until: int = 0
    """When the guest's places end unless it takes them again."""
    next_at: int | None = None
    """When to ask again; None: nobody knows, somebody has to give."""
    full: str = ""
    """The bucket that had no room."""
    kept: bool = False
    """The next place in each bucket that had none is kept for guests: look again soon."""
    breakers: tuple[BreakerRow, ...] = ()
    """Those that this guest is the first to probe."""
    token: int = 0
    """The number of its stay, if it is fenced."""


class HolderRow(msgspec.Struct, frozen=True, kw_only=True):
    """A guest in one of its buckets."""

    holder: bytes
    bucket: str
    token: int
    """0 of one that is not fenced."""
    since: int
    """When it took its places."""
    until: int
    left: int
    """Microseconds until then, when the store was asked."""
    info: bytes = b""


PLENTIFUL = 100
"""A bucket without a key of a limit on how many run at once is *roomy* while beside the claim at least half of the size
and at least so much is left; and a breaker while it is closed. All others are *short*, rates too: a start counts at its
claim, and nothing may lie between the two."""
