"""``every="90s"``: an interval. It is anchored once, so it does not drift and does not move when a process starts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec

from mainspring.common.duration import Duration, to_us
from mainspring.errors import InvalidOption

SHORTEST_US = 1_000
"""The shortest interval, in microseconds."""


class Every(msgspec.Struct, frozen=True, tag_field="kind", tag="every", omit_defaults=True):
    """Occurrences at ``anchor``, ``anchor + period`` and so on.

    >>> rule = Every.of("90s").anchored(now=0, immediate=True)
    >>> rule.next(0), rule.next(89_999_999), rule.next(90_000_000)
    (90000000, 90000000, 180000000)
    """

    period: int
    """Microseconds."""
    anchor: int | None = None
    """The first occurrence; None until the schedule is first stored."""

    @classmethod
    def of(cls, period: Duration, *, name: str = "every") -> Every:
        """Return the rule of a duration; ``name`` is the option in error messages."""
        us = to_us(period, what=name)
        if us < SHORTEST_US:
            why = "must be greater than zero" if us == 0 else "is too short: the minimum is 1ms"
            raise InvalidOption(name, period, why, hint='every="90s", every="1h30m"')
        return cls(us)

    def anchored(self, now: int, *, immediate: bool = False) -> Every:
        """Return the rule as it is stored: the first occurrence is now if ``immediate``, otherwise after one period."""
        return self if self.anchor is not None else Every(self.period, now if immediate else now + self.period)

    @property
    def declared(self) -> Every:
        """The rule before it was anchored, to compare it with a new declaration."""
        return Every(self.period)

    def next(self, after: int) -> int:
        """Return the first occurrence later than ``after``."""
        anchor = self._anchor
        return anchor if after < anchor else anchor + ((after - anchor) // self.period + 1) * self.period

    def walk(self, after: int) -> Iterator[int]:
        """Iterate over all occurrences later than ``after``, in order."""
        return itertools.count(self.next(after), self.period)

    def count(self, after: int, until: int) -> int:
        """Return the number of occurrences in (after, until]."""
        first = self.next(after)
        return 0 if until < first else (until - first) // self.period + 1

    @property
    def _anchor(self) -> int:
        if self.anchor is None:
            raise ValueError("an interval has no occurrences before it is anchored: rule.anchored(now)")
        return self.anchor
