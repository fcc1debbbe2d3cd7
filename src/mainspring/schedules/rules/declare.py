"""From the options of a schedule to its rule, or an error that names the option."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from mainspring.common.duration import Duration, to_us
from mainspring.errors import InvalidOption
from mainspring.schedules.rules.cron import Cron
from mainspring.schedules.rules.every import Every
from mainspring.schedules.rules.occurrences import Rule
from mainspring.schedules.rules.once import Once

_HINT = 'Give one of cron="0 3 * * *", every="90s", at=datetime(..., tzinfo=UTC) and after="10m".'


def rule(
    *,
    cron: str | None = None,
    every: Duration | None = None,
    at: datetime | None = None,
    after: Duration | None = None,
    tz: Any = None,
    immediate: bool = False,
    schedule: str | None = None,
) -> Rule:
    """The rule that is declared by exactly one of ``cron``, ``every``, ``at`` and ``after``.

    ``tz`` is of cron alone, and UTC unless given; ``immediate`` is of every alone, and only checked here:
    ``anchored`` takes it. ``schedule`` is the name of the schedule, which ``H`` is chosen by.
    """
    given = {"cron": cron, "every": every, "at": at, "after": after}
    said = [name for name, value in given.items() if value is not None]
    if len(said) != 1:
        name = said[-1] if said else "cron"
        why = f"cannot be given with {said[0]}=" if said else "a schedule needs to know when it is due"
        raise InvalidOption(name, given[name], why, hint=_HINT)
    _only("tz", tz, "cron", cron, "A moment has its own zone, an interval needs none.")
    _only("immediate", immediate or None, "every", every, "Others run when their moment comes: trigger it by hand.")
    if cron is not None:
        return Cron.of(cron, tz="UTC" if tz is None else tz, schedule=schedule)
    if every is not None:
        return Every.of(every)
    return Once.at(at) if at is not None else Once.after(after or 0)


def jitter_us(value: Duration | None, rule: Rule, *, name: str = "jitter") -> int:
    """The option in microseconds; 0 without it. Longer than its interval, it would put runs out of their order."""
    us = 0 if value is None else to_us(value, what=name)
    if isinstance(rule, Every) and us > rule.period:
        raise InvalidOption(name, value, "is longer than the interval", hint="Give at most every=.")
    return us


def _only(name: str, value: Any, owner: str, owned: Any, hint: str) -> None:
    if value is not None and owned is None:
        raise InvalidOption(name, value, f"is for {owner}= alone", hint=hint)
