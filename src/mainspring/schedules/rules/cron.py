"""``cron="0 3 * * *"``: the moments at which the clocks of a time zone show what an expression says."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mainspring.errors import InvalidOption
from mainspring.schedules.rules.fields import normal
from mainspring.schedules.rules.ticks import LAST_YEAR, Calendar, fixed, real
from mainspring.schedules.rules.zones import load, zone_name

_SECOND = 1_000_000
_LATEST = (LAST_YEAR - 1970) * 365 * 86_400 * _SECOND
_PROBE = 1_767_225_600 * _SECOND  # 2026: if nothing comes within 50 years of it, nothing ever does


class Cron(msgspec.Struct, frozen=True, tag_field="kind", tag="cron"):
    """Occurrences by a cron expression in a time zone; make one with ``Cron.of``, which checks it.

    >>> from mainspring.common.clock import to_datetime
    >>> rule = Cron.of("30 2 * * *", tz="Europe/Berlin")
    >>> str(to_datetime(rule.next(0)))
    '1970-01-01 01:30:00+00:00'
    """

    expression: str
    """In normal form: without macros and ``H``."""
    tz: str = "UTC"

    @classmethod
    def of(cls, expression: str, *, tz: object = "UTC", schedule: str | None = None, name: str = "cron") -> Cron:
        """From what people write. ``H`` is chosen by the name of the schedule; ``name`` is the option's, for errors."""
        rule = cls(normal(expression, schedule, name), zone_name(tz))
        if rule.next(_PROBE) is None:
            hint = "Look at the days: some do not meet, and some times are always left out by a change of clocks."
            raise InvalidOption(name, expression, f"never comes in {rule.tz}", hint=hint)
        return rule

    @property
    def fixed(self) -> bool:
        """Whether no field of the time begins with ``*``: then it comes once a day also when clocks change."""
        return not any(field.startswith("*") for field in self.expression.split()[:-3])

    def anchored(self, now: int, *, immediate: bool = False) -> Cron:  # noqa: ARG002 - `rule` refuses it for this kind
        """The same: cron is anchored to the calendar."""
        return self

    @property
    def declared(self) -> Cron:
        """The same."""
        return self

    def next(self, after: int) -> int | None:
        """The first occurrence later than ``after``, or None if there is none for 50 years."""
        return next(self.walk(after), None)

    def walk(self, after: int) -> Iterator[int]:
        """All occurrences later than ``after``, in order."""
        if after >= _LATEST:
            return iter(())
        ticks = fixed if self.fixed else real
        since = max(after, -1) // _SECOND
        return (tick * _SECOND for tick in ticks(Calendar(self.expression), load(self.tz), since))
