"""Histories of locks, good and bad, for the checker."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from mainspring.testing.history import History, Holding

FIRST = Holding(lock="nightly", token=10, asked=1.0, began=1.1, ttl=5.0, ended=3.0, kept=True)
SECOND = Holding(lock="nightly", token=20, asked=3.0, began=3.1, ttl=5.0, ended=4.0, kept=True)


def held(*holdings: Holding) -> History:
    return History(holdings=holdings)


def first(**changes: Any) -> Holding:
    return replace(FIRST, **changes)


def second(**changes: Any) -> Holding:
    return replace(SECOND, **changes)


LOCKS_GOOD = {
    "a lock that is handed on": held(FIRST, SECOND),
    "a lock that was asked for while another had it": held(FIRST, second(asked=1.5)),
    "a lock that was renewed for long": held(first(ended=60.0), second(asked=59.0, began=60.1, ended=None, kept=False)),
    "a holder that was killed": held(first(ended=None, kept=False), second(began=6.1)),
    "a holder that was stopped, and lost it": held(first(ended=30.0, kept=False), second(began=6.1)),
    "a holder that does not know whether it gave it back": held(first(kept=False), SECOND),
    "two locks": held(FIRST, second(lock="hourly", token=10, began=1.2)),
}

LOCKS_BAD = {
    "I29": [
        held(FIRST, second(began=2.9)),
        held(first(ended=60.0), second(began=30.0)),
        held(FIRST, second(token=10)),
        held(FIRST, second(token=9)),
        held(first(ended=None, kept=False), second(began=5.9)),
        held(first(ended=30.0, kept=False), second(began=5.9)),
        held(first(kept=False), second(began=2.9)),
    ],
}
