"""Records of limits, and of the buckets in which their use is counted, that the core and a store exchange.

An id is the 16 bytes of a UUID. Times and durations are in microseconds; times count from 1970, on the store's clock.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from mainspring.breakers.records import BreakerRow


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit for all workers together. Each of its buckets has the capacity that the limit says."""

    name: str
    """Has no ``=``. The name of a breaker, and no other name, ends in ``:breaker``."""
    kind: Literal["concurrency", "rate", "smooth", "breaker"] = "concurrency"
    """``concurrency``: at most ``size`` running jobs at any moment. ``rate``: starts with a total cost of ``size`` in
    any window of ``per``. ``smooth``: one unit each ``per / size``, up to ``burst`` at once, so at most ``size +
    burst`` in a window. ``breaker``: opens for ``per`` after ``burst`` failures in a row, then lets ``size`` probes
    through at once."""
    size: int
    per: int = 0
    """Microseconds."""
    burst: int = 0
    share: int = 0
    """For a breaker, in millionths. If it is not 0, the breaker opens when this share of at least ``burst`` ends within
    ``span`` are failures."""
    span: int = 0
    """Microseconds."""


class Bucket(msgspec.Struct, frozen=True):
    """What a job needs capacity in: an unkeyed limit, or the part of a limit that belongs to one key."""

    limit: str
    key: str = ""
    cost: int = 1
    """The units of a rate that a start uses."""

    @property
    def name(self) -> str:
        return f"{self.limit}={self.key}" if self.key else self.limit


class BucketRow(msgspec.Struct, frozen=True, kw_only=True):
    """The size and use of a bucket, as a claim would find them now."""

    name: str
    limit: str
    kind: str
    size: int
    """The size of the limit, or the size set in its place."""
    used: int
    """Running jobs and holders; of a rate, the units started within the window (``smooth``: not yet available
    again)."""
    next_at: int | None = None
    """When a start of the cost asked for fits; None if it fits now, or if the moment is unknown."""
    holders: tuple[bytes, ...] = ()
    """The ids of at most ten running jobs that name the bucket, the oldest claims first; perhaps none for a closed
    breaker. An engine may examine the oldest 10,000 running jobs only."""
    breaker: BreakerRow | None = None
    """For a breaker, its state; ``used`` is the number of its probes then."""


class LimitRow(msgspec.Struct, frozen=True, kw_only=True):
    """A limit as the store has it."""

    limit: Limit
    """The last declaration."""
    size: int | None = None
    """The size set in place of the declared size, if there is one."""


HOLDER_REST = 1_000_000
"""Microseconds after a holder has released capacity of a bucket for which no capacity of it is reserved for holders."""


class HoldResult(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to a hold."""

    ok: bool
    now: int
    until: int = 0
    """When the hold ends unless the holder renews it."""
    next_at: int | None = None
    """When to ask again; None if that is unknown, because another holder or a job has to end first."""
    full: str = ""
    """The bucket that had no capacity."""
    kept: bool = False
    """The next capacity in each full bucket is reserved for holders: ask again soon."""
    token: int = 0
    """The fencing number of the hold, if it is fenced."""


class HolderRow(msgspec.Struct, frozen=True, kw_only=True):
    """A holder in one of its buckets."""

    holder: bytes
    bucket: str
    token: int
    """The fencing number; 0 if the hold is not fenced."""
    since: int
    """When the hold began."""
    until: int
    left: int
    """Microseconds until then, at the moment of the reply."""
    info: bytes = b""


PLENTIFUL = 100
"""An unkeyed concurrency limit is *plentiful* while, after the claim, at least half of its size and at least this much
capacity is left. A breaker is plentiful while it is closed. Keyed limits and rates are never plentiful: a start of a
rate counts at the claim, so the job must start at once. A job is claimed ahead of a free slot only if all its limits
are plentiful."""
