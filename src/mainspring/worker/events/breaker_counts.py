"""What one worker has to count for breakers: the ends of its jobs, until the store has the rows that count them.

The ends travel in the turn that carries their acks: :meth:`BreakerCounts.next_swaps` computes the next row of each
breaker from the row that the worker saw last. If another worker has written the row since, the reply brings the new
row, and the ends are counted again with the next turn, which follows at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainspring.breakers.counting import BreakerEnd, Counted, changed_rows, count_ends, declared
from mainspring.breakers.records import BREAKER_SUFFIX, BreakerRow, BreakerSwap, StoredBreaker
from mainspring.common.clock import LONG_AGO
from mainspring.jobs.lanes import limits_in
from mainspring.jobs.outcomes import Ack
from mainspring.limits.records import Limit
from mainspring.states import State

if TYPE_CHECKING:
    from mainspring.worker.run.attempt import RunningAttempt

EVERY = 1.0
"""Seconds between two reports of successes alone, for a breaker with a share."""


class CountedBreaker:
    """One breaker: the row that the worker saw last, and the ends that the store may not have."""

    __slots__ = ("_counted", "_ends", "_known", "_probe", "_reported_at", "_sent", "is_late", "name")

    def __init__(self, name: str, limit: Limit | None) -> None:
        """``limit``: as the code declares it, until the store shows the row; None if the code does not know it."""
        self.name = name
        self.is_late = False
        """The store has another row than expected, in which the ends have to be counted."""
        self._known = None if limit is None else declared(limit)
        self._ends: list[BreakerEnd] = []
        self._probe = 0
        """The start of a claim that may be a probe; 0 if there is none."""
        self._sent = 0, 0
        """How many of the ends the turn in flight counts, and which probe."""
        self._counted = Counted(None, ())
        self._reported_at = LONG_AGO

    def add(self, end: BreakerEnd) -> None:
        """Several successes in a row are kept as one end."""
        last = self._ends[-1] if len(self._ends) > self._sent[0] else None
        if end.kind == "start":
            self._probe = end.started
        elif last is not None and last.kind == end.kind == "success":
            self._ends[-1] = BreakerEnd("success", max(last.started, end.started), last.n + end.n)
        else:
            self._ends.append(end)

    def is_due(self, now: float) -> bool:
        """Whether the next turn names the breaker."""
        return self._probe > 0 or self._are_ends_due(now)

    def next_swap(self, now: float, store_now: int) -> BreakerSwap:
        n = len(self._ends) if self._are_ends_due(now) else 0
        self._sent = n, self._probe
        if n:
            self._reported_at = now
        self._counted = Counted(None, ())
        if self._known is not None:
            self._known = replace(self._known, now=store_now)
            self._counted = count_ends(self._known, self._to_count(n))
        return self._counted.swap or BreakerSwap(name=self.name)

    def apply(self, found: StoredBreaker | None) -> list[BreakerRow]:
        """Compare the row that the turn found with the one that was expected. Returns the changes of the state."""
        known, swap, (n, probe) = self._known, self._counted.swap, self._sent
        self._known, self._sent, self.is_late = found, (0, 0), False
        if found is not None and (known is None or found.rev != (known.rev if swap is None else swap.rev)):
            self.is_late = count_ends(found, self._to_count(len(self._ends))).swap is not None
            if self.is_late:
                return []
        del self._ends[:n]
        if self._probe == probe:
            self._probe = 0
        if known is None or found is None or swap is None or found.rev != swap.rev:
            return []
        return changed_rows(known, found, self._counted.changes)

    def _are_ends_due(self, now: float) -> bool:
        """Successes alone of a closed breaker with a share wait for a second, but not for a second write."""
        known = self._known
        if known is None or self.is_late or not known.share or known.until or now - self._reported_at >= EVERY:
            return bool(self._ends)
        return any(end.kind == "failure" for end in self._ends)

    def _to_count(self, n: int) -> list[BreakerEnd]:
        start = [BreakerEnd("start", self._probe)] if self._probe else []
        return [*start, *self._ends[:n]]


class BreakerCounts:
    """The breakers of one worker. Loop thread only."""

    def __init__(self) -> None:
        self._breakers: dict[str, CountedBreaker] = {}
        self.has_late = False
        """The store had other rows than expected in the last turn: the next turn has to follow at once."""

    @property
    def has_any(self) -> bool:
        """Whether the worker has seen a job that names a breaker."""
        return bool(self._breakers)

    def add_ack(self, ack: Ack, attempt: RunningAttempt) -> None:
        """An attempt has ended."""
        names_breaker = attempt.spec.breaker is not None or BREAKER_SUFFIX in attempt.claim.lane
        if names_breaker and (ack.fault or ack.to is State.SUCCEEDED):
            self.add(end_of(ack), attempt.claim.lane, _limit_of(attempt))

    def add_probe(self, attempt: RunningAttempt) -> None:
        """A job was claimed for a free slot: it may be the first probe of a breaker."""
        self.add(BreakerEnd("start", attempt.claim.token), attempt.claim.lane, _limit_of(attempt))

    def add(self, end: BreakerEnd, lane: str, limit: Limit | None = None) -> None:
        """An end of a job in this lane, whose task has this breaker. The lane may name a breaker of older code."""
        if limit is not None:
            self._find(limit.name, limit).add(end)
        for label in limits_in(lane) if BREAKER_SUFFIX in lane else ():
            if label.endswith(BREAKER_SUFFIX) and (limit is None or label != limit.name):
                self._find(label, None).add(end)

    def forget(self) -> None:
        """The worker is lost, which counts as one failure: drop the ends that the store does not have."""
        self._breakers.clear()
        self.has_late = False

    def next_swaps(self, now: float, store_now: int) -> tuple[BreakerSwap, ...]:
        """The breakers of the next turn."""
        return tuple([each.next_swap(now, store_now) for each in self._breakers.values() if each.is_due(now)])

    def apply(self, swaps: Iterable[BreakerSwap], found: Sequence[StoredBreaker]) -> list[BreakerRow]:
        """The store has answered a turn with these breakers. Returns the changes of their states."""
        rows = {row.name: row for row in found}
        changed: list[BreakerRow] = []
        for swap in swaps:
            changed += self._breakers[swap.name].apply(rows.get(swap.name))
        self.has_late = any([self._breakers[swap.name].is_late for swap in swaps])  # noqa: C419 - a list is faster
        return changed

    def _find(self, name: str, limit: Limit | None) -> CountedBreaker:
        found = self._breakers.get(name)
        if found is None:
            found = self._breakers[name] = CountedBreaker(name, limit)
        return found


def end_of(ack: Ack) -> BreakerEnd:
    """The end to count for an ack that is a success or has a fault. The token is the moment of the claim."""
    return BreakerEnd("failure" if ack.fault else "success", ack.token, error=ack.fault)


def _limit_of(attempt: RunningAttempt) -> Limit | None:
    """The breaker of the task, as the code declares it."""
    breaker = attempt.spec.breaker
    return None if breaker is None else breaker.limit(attempt.spec.name)
