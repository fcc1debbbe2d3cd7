"""Functions of every rule: a window, the next occurrences, and the missed occurrences."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, takewhile

import msgspec

from mainspring.errors import InvalidOption
from mainspring.schedules.rules.cron import Cron
from mainspring.schedules.rules.every import Every
from mainspring.schedules.rules.once import Once

Rule = Cron | Every | Once
"""When a schedule is due. Each kind can be encoded, and has ``next``, ``walk``, ``anchored`` and ``declared``."""

COUNTED = 1_000
"""The number of missed occurrences of a cron rule that are counted one by one."""


class RuleWindow(msgspec.Struct, frozen=True, omit_defaults=True):
    """The occurrences of a rule in [start, end)."""

    rule: Rule
    start: int | None = None
    end: int | None = None

    def anchored(self, now: int, *, immediate: bool = False) -> RuleWindow:
        """Return the window as it is stored. If ``start`` is in the future, an interval begins there."""
        if isinstance(self.rule, Every) and self.start is not None and self.start > now:
            now, immediate = self.start, True
        return msgspec.structs.replace(self, rule=self.rule.anchored(now, immediate=immediate))

    @property
    def declared(self) -> RuleWindow:
        """The window before it was anchored."""
        return msgspec.structs.replace(self, rule=self.rule.declared)

    def next(self, after: int) -> int | None:
        """Return the first occurrence in the window that is later than ``after``, or None."""
        return next(self.walk(after), None)

    def walk(self, after: int) -> Iterator[int]:
        """Iterate over all occurrences in the window that are later than ``after``, in order."""
        walk = self.rule.walk(after if self.start is None else max(after, self.start - 1))
        return walk if self.end is None else _take_until(walk, self.end - 1)


class MissedOccurrences(msgspec.Struct, frozen=True):
    """Past occurrences that no scheduler has handled."""

    count: int
    last: tuple[int, ...]
    """The newest of them, in order of time."""
    exact: bool = True
    """False if there are more than ``count``: only the first 1,000 are counted one by one."""


def make_window(rule: Rule, start: int | None = None, end: int | None = None) -> RuleWindow:
    """Return the window of a rule; ``InvalidOption`` if it has no occurrence."""
    found = RuleWindow(rule, start, end)
    if start is not None and end is not None and start >= end:
        raise InvalidOption("end", _shown(end), f"is not later than start={_shown(start)}")
    needs_anchor = isinstance(rule, Every) or (isinstance(rule, Once) and rule.moment is None)
    if not needs_anchor and found.next(-1) is None:
        name, moment = ("start", start) if end is None else ("end", end)
        hint = "The rule has no occurrence in this window: change start= or end=."
        raise InvalidOption(name, None if moment is None else _shown(moment), "leaves no occurrence", hint=hint)
    return found


def _shown(moment: int) -> str:
    from mainspring.common.clock import to_datetime

    return to_datetime(moment).isoformat()


def next_occurrences(rule: Rule | RuleWindow, after: int, n: int) -> list[int]:
    """Return the first ``n`` occurrences later than ``after``."""
    return list(islice(rule.walk(after), n))


def find_missed(rule: Rule | RuleWindow, after: int, until: int, cap: int) -> MissedOccurrences:
    """Return the number of occurrences in (after, until], and the newest ``cap`` of them."""
    if isinstance(rule, RuleWindow):
        after = after if rule.start is None else max(after, rule.start - 1)
        until = until if rule.end is None else min(until, rule.end - 1)
        rule = rule.rule
    if until <= after:
        return MissedOccurrences(0, ())
    if isinstance(rule, Every):
        return _missed_intervals(rule, after, until, cap)
    found = list(islice(_take_until(rule.walk(after), until), COUNTED + 1))
    if len(found) <= COUNTED:
        return MissedOccurrences(len(found), tuple(found[max(len(found) - cap, 0) :]))
    return MissedOccurrences(COUNTED, tuple(_newest(rule, after, until, cap)), exact=False)


def _missed_intervals(rule: Every, after: int, until: int, cap: int) -> MissedOccurrences:
    count = rule.count(after, until)
    last = rule.next(after) + (count - 1) * rule.period
    newest = range(last - (min(cap, count) - 1) * rule.period, last + 1, rule.period) if count else ()
    return MissedOccurrences(count, tuple(newest))


def _newest(rule: Rule, after: int, until: int, cap: int) -> list[int]:
    """Return the last ``cap`` occurrences in (after, until], where there are many more.

    The function searches for the time span before ``until`` that holds between ``cap`` and ``4 * cap`` occurrences.
    """
    if cap <= 0:
        return []
    short, long, span = 0, until - after, min(cap * 1_000_000, until - after)
    while True:
        found = list(islice(_take_until(rule.walk(until - span), until), 4 * cap + 1))
        if cap <= len(found) <= 4 * cap:
            return found[-cap:]
        short, long = (span, long) if len(found) < cap else (short, span)
        span = min(2 * span, (short + long) // 2) if len(found) < cap else (short + long) // 2


def _take_until(walk: Iterator[int], until: int) -> Iterator[int]:
    return takewhile(lambda moment: moment <= until, walk)
