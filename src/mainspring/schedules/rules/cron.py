"""``cron="0 3 * * *"``: the moments at which the local time of a time zone matches a cron expression."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mainspring.errors import InvalidOption
from mainspring.schedules.rules.fields import normalise
from mainspring.schedules.rules.ticks import LAST_YEAR, Calendar, fixed_times, repeating_times
from mainspring.schedules.rules.zones import check_zone, load_zone

_SECOND = 1_000_000
_LATEST = (LAST_YEAR - 1970) * 365 * 86_400 * _SECOND
_PROBE = (
    1_767_225_600 * _SECOND
)  # the year 2026: an expression with no occurrence in the 50 years after it never occurs


class Cron(msgspec.Struct, frozen=True, tag_field="kind", tag="cron"):
    """The occurrences of a cron expression in a time zone. ``Cron.of`` checks the expression.

    >>> from mainspring.common.clock import to_datetime
    >>> rule = Cron.of("30 2 * * *", tz="Europe/Berlin")
    >>> str(to_datetime(rule.next(0)))
    '1970-01-01 01:30:00+00:00'
    """

    expression: str
    """The normal form: macros and ``H`` are resolved."""
    tz: str = "UTC"

    @classmethod
    def of(cls, expression: str, *, tz: object = "UTC", schedule: str | None = None, name: str = "cron") -> Cron:
        """Check what the user wrote.

        The name ``schedule`` chooses the value of ``H``; ``name`` is the option in error messages.
        """
        rule = cls(normalise(expression, schedule, name), check_zone(tz))
        if rule.next(_PROBE) is None:
            hint = (
                "Check the days and the time: some days never coincide, and a clock change can skip a time each year."
            )
            raise InvalidOption(name, expression, f"never occurs in {rule.tz}", hint=hint)
        return rule

    @property
    def fixed(self) -> bool:
        """Whether no time field begins with ``*``. Then it occurs once a day, also on a day when clocks change."""
        return not any(field.startswith("*") for field in self.expression.split()[:-3])

    def anchored(self, now: int, *, immediate: bool = False) -> Cron:  # noqa: ARG002 - `make_rule` refuses it for this kind
        """Return the same rule: cron follows the calendar and needs no anchor."""
        return self

    @property
    def declared(self) -> Cron:
        """The same rule."""
        return self

    def next(self, after: int) -> int | None:
        """Return the first occurrence later than ``after``; None if there is none for 50 years."""
        return next(self.walk(after), None)

    def walk(self, after: int) -> Iterator[int]:
        """Iterate over all occurrences later than ``after``, in order."""
        if after >= _LATEST:
            return iter(())
        ticks = fixed_times if self.fixed else repeating_times
        since = max(after, -1) // _SECOND
        return (tick * _SECOND for tick in ticks(Calendar(self.expression), load_zone(self.tz), since))
