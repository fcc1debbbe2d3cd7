"""``every="90s"``: an interval that is anchored once, so that it neither drifts nor moves when a process starts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import msgspec

from mainspring.common.duration import Duration, to_us
from mainspring.errors import InvalidOption

SHORTEST_US = 1_000
"""Whatever is shorter is a mistake."""


class Every(msgspec.Struct, frozen=True, tag_field="kind", tag="every", omit_defaults=True):
    """Occurrences at ``anchor``, ``anchor + period`` and so on.

    >>> rule = Every.of("90s").anchored(now=0, immediate=True)
    >>> rule.next(0), rule.next(89_999_999), rule.next(90_000_000)
    (90000000, 90000000, 180000000)
    """

    period: int
    """Microseconds."""
    anchor: int | None = None
    """The first occurrence, given when the schedule is first stored."""

    @classmethod
    def of(cls, period: Duration, *, name: str = "every") -> Every:
        """From a duration; ``name`` names the option in an error."""
        us = to_us(period, what=name)
        if us < SHORTEST_US:
            why = "must be longer than nothing" if us == 0 else "is too short: the least is 1ms"
            raise InvalidOption(name, period, why, hint='every="90s", every="1h30m"')
        return cls(us)

    def anchored(self, now: int, *, immediate: bool = False) -> Every:
        """As it is stored: the first occurrence is now if it is immediate, else after one period."""
        return self if self.anchor is not None else Every(self.period, now if immediate else now + self.period)

    @property
    def declared(self) -> Every:
        """As it was before it was stored: what tells whether a new declaration changes it."""
        return Every(self.period)

    def next(self, after: int) -> int:
        """The first occurrence later than ``after``."""
        anchor = self._anchor
        return anchor if after < anchor else anchor + ((after - anchor) // self.period + 1) * self.period

    def walk(self, after: int) -> Iterator[int]:
        """All occurrences later than ``after``, in order."""
        return count(self.next(after), self.period)

    def amount(self, after: int, until: int) -> int:
        """How many occurrences lie in (after, until]."""
        first = self.next(after)
        return 0 if until < first else (until - first) // self.period + 1

    @property
    def _anchor(self) -> int:
        if self.anchor is None:
            raise ValueError("an interval has no occurrences before it is anchored: rule.anchored(now)")
        return self.anchor
