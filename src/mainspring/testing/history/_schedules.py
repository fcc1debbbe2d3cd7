"""Invariants of schedules: their occurrences and the records of these."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import takewhile

from mainspring.testing.history._events import Found, History, promise_of

_DECIDED = ("fired", "skipped", "coalesced", "rejected", "missed")


def each_occurrence_has_one_end(history: History) -> Found:
    """I27: every occurrence has one record, and one job if it fired; a run has one occurrence."""
    records = defaultdict[tuple[str, int], list[str]](list)
    owners = defaultdict[str, set[tuple[str, int]]](set)
    for each in history.occurrences:
        records[each.schedule, each.at].append(each.what)
        if each.job:
            owners[each.job].add((each.schedule, each.at))
        if (each.what == "fired") is not bool(each.job) and each.what in _DECIDED:
            yield each.job or f"{each.schedule} at {each.at}", f"is {each.what} and has {each.job or 'no job'}"
    for (schedule, at), found in records.items():
        if len(found) > 1:
            yield f"{schedule} at {at}", f"has {len(found)} records: {', '.join(found)}"
    for job, places in owners.items():
        if len(places) > 1:
            yield job, f"is of {len(places)} occurrences"
    for job in {event.job for event in history.events} - owners.keys():
        if schedule := promise_of(history, job).schedule:
            yield job, f"is a run of {schedule}, and of none of its occurrences"


def occurrences_are_those_of_the_rule(history: History) -> Found:
    """I28: from the first to the last decided occurrence, the occurrences are exactly those of the rule."""
    for name, rule in history.rules.items():
        mine = [each for each in history.occurrences if each.schedule == name and each.what in _DECIDED]
        found = {each.at for each in mine}
        if not found:
            continue
        last = max(found)
        said = list(takewhile(lambda at: at <= last, rule.walk(min(found) - 1)))  # noqa: B023 - used up here
        for at in sorted(found.difference(said)):
            yield f"{name} at {at}", "is no occurrence of its rule"
        absent = len(set(said) - found)
        together = sum(each.count - 1 for each in mine)
        if absent != together:
            yield name, f"lacks {absent} occurrences, and {together} are counted in the records of others"


SCHEDULES: dict[str, Callable[[History], Found]] = {
    "I27": each_occurrence_has_one_end,
    "I28": occurrences_are_those_of_the_rule,
}
