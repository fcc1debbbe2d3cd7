"""Histories of schedules, good and bad, for the checker."""

from __future__ import annotations

from mainspring.schedules.rules import Every, RuleWindow
from mainspring.testing.history import History, Occurrence, Promise
from tests.unit.histories import PLAIN, h

RULES = {"often": RuleWindow(Every(10, anchor=0))}


def history(*occurrences: tuple[int, str, str]) -> History:
    return History(
        rules=RULES,
        occurrences=tuple(Occurrence(schedule="often", at=at, what=what, job=job) for at, what, job in occurrences),
    )


TICKS_GOOD = {
    "a schedule with all kinds of occurrences": history(
        (10, "fired", "a"), (20, "skipped", ""), (25, "triggered", "b"), (30, "coalesced", ""), (40, "fired", "c"),
    ),
    "occurrences that were missed together": History(
        rules=RULES,
        occurrences=(
            Occurrence(schedule="often", at=10, what="missed", count=3),
            Occurrence(schedule="often", at=40, what="fired", job="a"),
        ),
    ),
}  # fmt: skip

TICKS_BAD = {
    "I27": [
        history((10, "fired", "a"), (10, "fired", "b")),
        history((10, "fired", "a"), (20, "fired", "a")),
        history((10, "fired", "")),
        history((10, "skipped", "a")),
        h(*PLAIN, promises={"j": Promise(schedule="often")}),
    ],
    "I28": [
        history((10, "fired", "a"), (30, "fired", "b")),
        history((10, "fired", "a"), (15, "fired", "b"), (20, "fired", "c")),
        History(rules=RULES, occurrences=(Occurrence(schedule="often", at=10, what="missed", count=3),)),
    ],
}
