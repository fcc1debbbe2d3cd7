"""When a pool starts the next child, and when it gives up: pure rules.

A child that had done a job is replaced at once. Children that die before they have done any job are replaced after
growing pauses. After a number of such deaths in a row the pool has failed.
"""

from __future__ import annotations

from mainspring.common.clock import boottime
from mainspring.common.pause import jittered

DEATHS = 8
"""Deaths in a row without a job done in between, after which the pool has failed."""
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 30.0


class PoolRestarts:
    """The deaths of the children of one pool."""

    def __init__(self, most: int = DEATHS) -> None:
        self.deaths = 0
        """In a row, without a job done in between."""
        self._most = most
        self._due = 0.0

    @property
    def has_failed(self) -> bool:
        return self.deaths >= self._most

    def record_work(self) -> None:
        """A child has ended a job in order."""
        self.deaths = 0

    def record_death(self, *, served: bool) -> None:
        """A child died. ``served``: it had done a job before."""
        if served:
            return
        self.deaths += 1
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self.deaths - 1)) if self.deaths > 1 else 0.0
        self._due = boottime() + (jittered(pause) if pause else 0.0)

    def pause(self, now: float) -> float:
        """Seconds until the next child may be started; 0 for now."""
        return max(0.0, self._due - now)
