"""Makes the rule of a schedule from its options, or raises an error that names the option."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from mainspring.common.duration import Duration, to_us
from mainspring.errors import InvalidOption
from mainspring.schedules.rules.cron import Cron
from mainspring.schedules.rules.every import Every
from mainspring.schedules.rules.occurrences import Rule
from mainspring.schedules.rules.once import Once

_HINT = 'Give exactly one of cron="0 3 * * *", every="90s", at=datetime(..., tzinfo=UTC) and after="10m".'


def make_rule(
    *,
    cron: str | None = None,
    every: Duration | None = None,
    at: datetime | None = None,
    after: Duration | None = None,
    tz: Any = None,
    immediate: bool = False,
    schedule: str | None = None,
) -> Rule:
    """Return the rule. Exactly one of ``cron``, ``every``, ``at`` and ``after`` must be given.

    ``tz`` works with ``cron`` only; the default is UTC. ``immediate`` works with ``every`` only; it is only checked
    here, and ``anchored`` applies it. ``schedule`` is the name of the schedule, which chooses the value of ``H``.
    """
    given = {"cron": cron, "every": every, "at": at, "after": after}
    said = [name for name, value in given.items() if value is not None]
    if len(said) != 1:
        name = said[-1] if said else "cron"
        why = f"cannot be combined with {said[0]}=" if said else "the schedule has no rule that says when it runs"
        raise InvalidOption(name, given[name], why, hint=_HINT)
    _require_owner("tz", tz, "cron", cron, "A datetime has its own time zone, and an interval needs none.")
    hint = "For other rules, run the schedule once with app.schedules.trigger(name)."
    _require_owner("immediate", immediate or None, "every", every, hint)
    if cron is not None:
        return Cron.of(cron, tz="UTC" if tz is None else tz, schedule=schedule)
    if every is not None:
        return Every.of(every)
    return Once.at(at) if at is not None else Once.after(after or 0)


def check_jitter(value: Duration | None, rule: Rule, *, name: str = "jitter") -> int:
    """Return the jitter in microseconds; 0 for None. A jitter longer than the interval would reorder the runs."""
    us = 0 if value is None else to_us(value, what=name)
    if isinstance(rule, Every) and us > rule.period:
        raise InvalidOption(name, value, "is longer than the interval", hint="Give at most the duration of every=.")
    return us


def _require_owner(name: str, value: Any, owner: str, owned: Any, hint: str) -> None:
    if value is not None and owned is None:
        raise InvalidOption(name, value, f"works with {owner}= only", hint=hint)
