"""The arithmetic of smooth rates (GCRA) and the cost of a bucket that a job names twice, as every engine counts them.

A smooth rate keeps one number for each bucket: ``tat``, the moment at which its whole burst is available again, in
whole microseconds. All arithmetic is in whole numbers, so the three engines agree to the microsecond. SQL and Lua
repeat the formulas of :class:`SmoothRate`; ``mainspring.testing.contract`` compares an engine with this class.

- A start of cost ``c`` moves ``tat`` by ``ceil(c * per / size)`` microseconds. The time is rounded up for each start,
  also where one step starts several. So a rate is never exceeded, and a start loses less than one microsecond.
- ``slack = min(burst, ceil(per / size) - 1)`` makes up for the rounding: ``burst`` starts fit at one moment, in one
  step or one by one. It is 0 where ``per`` is a multiple of ``size``: then nothing is rounded. The slack is less than
  the time of one unit, so a window of ``per`` never has starts of more than ``size + burst``.
- ``used = ceil(max(tat - slack - now, 0) * size / per)`` and ``available = burst - used``, never below 0.
- A start of cost ``c`` fits while ``available >= min(c, burst)``. The first such moment is
  ``tat - slack - floor((max(burst, c) - c) * per / size)``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from mainspring.limits.records import Bucket


class SmoothRate(NamedTuple):
    """One unit each ``per / size`` microseconds, up to ``burst`` at once. ``size`` is greater than 0.

    >>> rate = SmoothRate(size=3, per=1_000_000, burst=2)
    >>> rate.time(1), rate.next_at(tat=0, now=0, cost=1)
    (333334, None)
    >>> tat = rate.start(tat=0, now=0, cost=1)
    >>> tat = rate.start(tat=tat, now=0, cost=1)
    >>> tat, rate.available(tat=tat, now=0), rate.next_at(tat=tat, now=0, cost=1)
    (666668, 0, 333333)
    """

    size: int
    per: int
    burst: int

    def cost(self, cost: int) -> int:
        """The cost that a start is checked with: at least 1, at most the size."""
        return min(max(cost, 1), self.size)

    def time(self, cost: int) -> int:
        """The microseconds that a start of ``cost`` takes."""
        return -(-cost * self.per // self.size)

    @property
    def slack(self) -> int:
        """Microseconds that ``tat`` may be late by because of rounding."""
        return min(max(self.burst, 1), self.time(1) - 1) if self.per % self.size else 0

    def used(self, *, tat: int, now: int) -> int:
        """The units that are not available again yet."""
        return -(-max(tat - self.slack - now, 0) * self.size // max(self.per, 1))

    def available(self, *, tat: int, now: int) -> int:
        """How many starts of cost 1 fit now."""
        return max(max(self.burst, 1) - self.used(tat=tat, now=now), 0)

    def fits(self, *, tat: int, now: int, cost: int) -> bool:
        return self.available(tat=tat, now=now) >= min(self.cost(cost), max(self.burst, 1))

    def start(self, *, tat: int, now: int, cost: int, n: int = 1) -> int:
        """``tat`` after ``n`` starts of ``cost``; a start that costs more than the size counts as the size."""
        return max(tat, now) + n * self.time(min(cost, self.size))

    def correct(self, *, tat: int, now: int, cost: int, spent: int) -> int:
        """``tat`` after a start of ``cost`` that really cost ``spent``."""
        return max(tat, now) + self.time(max(spent, 0)) - self.time(min(cost, self.size))

    def next_at(self, *, tat: int, now: int, cost: int) -> int | None:
        """The first moment at which a start of ``cost`` fits; None if the start fits now."""
        cost = self.cost(cost)
        at = tat - self.slack - (max(self.burst, cost) - cost) * self.per // self.size
        return at if at > now else None


def highest_costs(buckets: Iterable[Bucket]) -> dict[Bucket, int]:
    """The cost of each bucket; a bucket that is named twice counts once, with the highest cost named.

    >>> highest_costs([Bucket("api", cost=2), Bucket("api", cost=5)])
    {Bucket(limit='api', key='', cost=1): 5}
    """
    found: dict[Bucket, int] = {}
    for bucket in buckets:
        same = Bucket(bucket.limit, bucket.key)
        found[same] = max(found.get(same, 0), bucket.cost)
    return found
