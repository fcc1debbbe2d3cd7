"""The places for workers under a supervisor, and when an empty one is filled again.

The first death costs no wait; deaths in a row wait longer and longer; a worker that lived for a while
starts the count anew. A worker that never could start is tried a few times and then given up, unless
others did start before: then the fault came later and may be mended while the supervisor waits.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from mainspring.common.clock import boottime

TRIES = 3
"""Failed starts in a row after which there is no hope if nobody ever started."""
CAP = 30.0
LIVED = 10.0
"""Seconds after which a worker's life counts as a success."""
ORDERLY = 1.0
"""The same for a worker that ended in good order or that we killed for one job's sake."""


class RestartPolicy:
    """``count`` seats, all empty and due now."""

    def __init__(self, count: int) -> None:
        self._due = dict.fromkeys(range(count), 0.0)
        self._deaths = dict.fromkeys(range(count), 0)
        self._ready: dict[int, float] = {}
        self._failures = 0
        self._told: set[str] = set()
        self._ever_started = False

    @property
    def settled(self) -> bool:
        """Every seat's worker has finished for good."""
        return not self._due

    @property
    def hopeless(self) -> bool:
        return not self._ever_started and self._failures >= TRIES * max(1, len(self._due))

    def due(self, now: float, taken: Iterable[int]) -> list[int]:
        """The empty seats whose time has come."""
        held = set(taken)
        return [seat for seat, at in self._due.items() if seat not in held and at <= now]

    def next_due(self) -> float:
        ahead = [at for at in self._due.values() if at > boottime()]
        return min(ahead, default=float("inf"))

    def started(self, seat: int) -> None:
        """The seat's worker is registered; may be said again and again."""
        self._ever_started = True
        if seat not in self._ready:
            self._ready[seat] = boottime()
            self._failures = 0

    def left(self, seat: int, *, orderly: bool) -> None:
        """The seat's worker ended and a successor is wanted."""
        lived = boottime() - self._ready.pop(seat, boottime())
        if lived > (ORDERLY if orderly else LIVED):
            self._deaths[seat] = 0
        self._wait(seat)

    def failed(self, seat: int, why: str) -> str:
        """The seat's worker could not start. Returns what to tell people: each reason once."""
        self._ready.pop(seat, None)
        self._failures += 1
        self._deaths[seat] = max(1, self._deaths[seat])
        self._wait(seat)
        if why in self._told:
            return ""
        self._told.add(why)
        return f"mainspring: a worker cannot start:\n{why.rstrip()}\n"

    def finished(self, seat: int) -> None:
        """The seat's worker had nothing more to do; nobody follows."""
        self._due.pop(seat, None)

    def _wait(self, seat: int) -> None:
        deaths = self._deaths[seat]
        pause = min(CAP, 0.25 * 2**deaths) * random.uniform(0.5, 1.0) if deaths else 0.0
        self._deaths[seat] = deaths + 1
        self._due[seat] = boottime() + pause
