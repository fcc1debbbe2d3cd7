"""Invariants of locks: the holders and their fencing numbers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise

from mainspring.testing.history._events import Found, History, Holding


def one_holder_at_a_time(history: History) -> Found:
    """I29: the numbers of a lock grow from holder to holder, and two processes never hold it at once."""
    found = defaultdict[str, list[Holding]](list)
    for each in sorted(history.holdings, key=lambda each: each.token):
        found[each.lock].append(each)
    for lock, holdings in found.items():
        latest = -math.inf
        for before, after in pairwise(holdings):
            latest = max(latest, before.asked)
            if before.token == after.token:
                yield lock, f"had two holders under the number {after.token}"
            if after.began < latest:
                yield lock, f"gave the number {after.token} before a smaller one was asked for"
            if after.began < (free := _free_at(before)):
                yield lock, f"had a holder {after.token} for {free - after.began:.3f} s beside {before.token}"


def _free_at(holding: Holding) -> float:
    """The first moment at which another process may hold the lock."""
    ended = math.inf if holding.ended is None else holding.ended
    return ended if holding.kept else min(ended, holding.asked + holding.ttl)


LOCKS: dict[str, Callable[[History], Found]] = {
    "I29": one_holder_at_a_time,
}
