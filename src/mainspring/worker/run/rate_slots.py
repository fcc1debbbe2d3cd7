"""When a claimed job with a rate limit may start, so that the receiver of its calls sees the rate, too.

The store counts the start of a job at the claim. The body starts a little later, and not always equally late: the
worker may be busy, or wait for a thread. If the jobs of one window start late and the jobs of the next window start in
time, there are too many starts in between.

So a worker that has started as many jobs within the last window as the limit says lets the next job wait: until the
window has room, or until all jobs in it were claimed within one window, the next job included. In the second case the
store has let them through together: an operator has set a larger size, or jobs have costs.

The moment of a claim is its token, by the store's clock; starts are measured by the clock of this process. The rule
holds in one worker process: two processes may be differently late.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from mainspring.common.clock import boottime
from mainspring.jobs.lanes import limit_label, limits_in

if TYPE_CHECKING:
    from mainspring.limits.declare import BoundLimit
    from mainspring.limits.records import Limit
    from mainspring.worker.run.attempt import RunningAttempt

_SLACK = 0.0005
"""Seconds from this check to the first statement of a body."""
_PIECES = 500
"""Claims within this part of a window share one entry."""
_MANY = 1_000
"""The number of buckets at which unused buckets are removed."""


class Window(NamedTuple):
    """What is declared of a rate."""

    per: int
    """Microseconds."""
    size: int
    """Jobs within a window; 0 if jobs cost more than one unit, so that their number says nothing."""


Bucket = tuple[str, Window]
"""The labels of a limit and of its key in the name of a lane, and the window."""


def windows_of(bounds: Iterable[BoundLimit], others: Iterable[Limit] = ()) -> dict[str, Window]:
    """The rates among the limits of tasks, and among other limits, by their labels in the names of lanes."""
    found = [(each, each.size) for each in others]
    found += [(bound.limit, bound.limit.size if bound.cost == 1 else 0) for bound in bounds]
    return {limit_label(each.name): Window(each.per, size) for each, size in found if each.kind in ("rate", "smooth")}


class RateSlots:
    """The starts of jobs with rate limits in this process. Safe to use from any thread."""

    def __init__(self, windows: Mapping[str, Window], clock: Callable[[], float] = boottime) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._windows: dict[str, Window] = {}
        self._in_lane: dict[str, tuple[Bucket, ...]] = {}
        self._starts: dict[Bucket, _Starts] = {}
        self._sweep_at = _MANY
        self.add(windows)

    def add(self, windows: Mapping[str, Window]) -> None:
        """Know these rates too."""
        with self._lock:
            self._windows |= windows
            self._in_lane.clear()

    def seconds_until_start(self, attempts: Iterable[RunningAttempt]) -> float:
        """0.0 if bodies of these attempts start now, together; they are recorded. Otherwise the seconds to wait."""
        claims = [each.claim for each in attempts]
        with self._lock:
            now = self._clock()
            uses = [(claim.token, bucket) for claim in claims for bucket in self._buckets(claim.lane)]
            wait = max((self._starts_of(bucket).wait(token, now) for token, bucket in uses), default=0.0)
            if wait <= 0:
                for token, bucket in uses:
                    self._starts_of(bucket).record(token, now)
        return max(0.0, wait)

    def _buckets(self, lane: str) -> tuple[Bucket, ...]:
        found = self._in_lane.get(lane)
        if found is None:
            if len(self._in_lane) > _MANY:
                self._in_lane.clear()
            found = self._in_lane[lane] = tuple(
                (_with_key(lane, label), self._windows[label]) for label in limits_in(lane) if label in self._windows
            )
        return found

    def _starts_of(self, bucket: Bucket) -> _Starts:
        found = self._starts.get(bucket)
        if found is None:
            if len(self._starts) >= self._sweep_at:
                now = self._clock()
                self._starts = {each: starts for each, starts in self._starts.items() if not starts.is_over(now)}
                self._sweep_at = max(_MANY, 2 * len(self._starts))
            found = self._starts[bucket] = _Starts(bucket[1])
        return found


class _Entry:
    """Jobs of one bucket that were claimed at about the same time."""

    __slots__ = ("claimed", "count", "last")

    def __init__(self, claimed: int) -> None:
        self.claimed = claimed
        self.count = 0
        self.last = 0.0
        """When the last of them started."""


class _Starts:
    """The starts of one bucket that matter still, in the order of their claims."""

    __slots__ = ("_count", "_entries", "_per", "_size", "_window")

    def __init__(self, window: Window) -> None:
        self._per, self._size = window
        self._window = window.per / 1e6 + _SLACK
        self._entries: deque[_Entry] = deque()
        self._count = 0

    def wait(self, claimed: int, now: float) -> float:
        """How long a job that was claimed then must wait; 0.0 or less for no time."""
        self._forget(now)
        entries = self._entries
        if self._count < self._size or not entries:
            return 0.0
        if max(claimed, entries[-1].claimed) - min(claimed, entries[0].claimed) < self._per:
            return 0.0
        by_start = sorted(entries, key=_start_of)
        claimed_within = self._last_outside(claimed, by_start)
        return min(claimed_within, self._last_in_excess(by_start)) + self._window - now

    def _last_outside(self, claimed: int, by_start: list[_Entry]) -> float:
        """The start after which the job was claimed within one window with all that started later."""
        low = high = claimed
        for entry in reversed(by_start):
            low, high = min(low, entry.claimed), max(high, entry.claimed)
            if high - low >= self._per:
                return entry.last
        return -math.inf

    def _last_in_excess(self, by_start: list[_Entry]) -> float:
        """The start that must be a window ago so that there is room for one more."""
        excess = self._count - self._size + 1
        for entry in by_start if self._size else ():
            excess -= entry.count
            if excess <= 0:
                return entry.last
        return math.inf

    def _forget(self, now: float) -> None:
        entries, window = self._entries, self._window
        while entries and entries[0].last + window <= now:
            self._count -= entries.popleft().count
        if self._count >= self._size and any(entry.last + window <= now for entry in entries):
            self._entries = deque(entry for entry in entries if entry.last + window > now)
            self._count = sum(entry.count for entry in self._entries)

    def record(self, claimed: int, now: float) -> None:
        entries = self._entries
        at = len(entries)
        while at and entries[at - 1].claimed > claimed:  # it was claimed before the last one and starts after it: rare
            at -= 1
        if at == 0 or claimed - entries[at - 1].claimed >= self._per / _PIECES:
            entries.insert(at, _Entry(claimed))
            at += 1
        entries[at - 1].last = now
        entries[at - 1].count += 1
        self._count += 1

    def is_over(self, now: float) -> bool:
        return all(entry.last + self._window <= now for entry in self._entries)


def _start_of(entry: _Entry) -> float:
    return entry.last


def _with_key(lane: str, label: str) -> str:
    """The label of a limit with the label of its key, if the lane has one."""
    keyed = lane.partition("?")[0].partition("#")[2].partition("=")[2].rstrip("!")
    return next((each for each in keyed.split(",") if each.startswith(label + "=")), label)
