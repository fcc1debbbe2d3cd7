"""``at=`` and ``after=``: one occurrence, at a given time or a given duration after the schedule is first stored."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from mainspring.common.clock import from_datetime
from mainspring.common.duration import Duration, to_us
from mainspring.errors import InvalidOption


class Once(msgspec.Struct, frozen=True, tag_field="kind", tag="once", omit_defaults=True):
    """One occurrence."""

    moment: int | None = None
    delay: int | None = None
    """Microseconds after the schedule was first stored. Kept, so that a repeated declaration compares as equal."""

    @classmethod
    def at(cls, moment: datetime, *, name: str = "at") -> Once:
        """Return the rule of a datetime, which must have a time zone."""
        us = from_datetime(moment, what=name)
        if us < 0:
            raise InvalidOption(name, moment, "is before 1970")
        return cls(us)

    @classmethod
    def after(cls, delay: Duration, *, name: str = "after") -> Once:
        """Return the rule of a delay, counted from when the schedule is first stored."""
        return cls(delay=to_us(delay, what=name))

    def anchored(self, now: int, *, immediate: bool = False) -> Once:  # noqa: ARG002 - `make_rule` refuses it for this kind
        """Return the rule as it is stored: a delay becomes a moment."""
        return self if self.moment is not None else Once(now + (self.delay or 0), self.delay)

    @property
    def declared(self) -> Once:
        """The rule before it was anchored."""
        return self if self.delay is None else Once(delay=self.delay)

    def next(self, after: int) -> int | None:
        """Return the occurrence if it is later than ``after``, otherwise None."""
        if self.moment is None:
            raise ValueError("a delay has no occurrence before it is anchored: rule.anchored(now)")
        return self.moment if after < self.moment else None

    def walk(self, after: int) -> Iterator[int]:
        """Iterate over the occurrence, if it is later than ``after``."""
        if (moment := self.next(after)) is not None:
            yield moment
