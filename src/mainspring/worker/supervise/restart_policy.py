"""When a supervisor starts a replacement for a worker that ended.

The first replacement starts at once. After several deaths in a row the pauses grow. A worker that lived for a while
resets the count. If no worker could ever start, the supervisor gives up after a few tries. If workers did start before,
the fault came later and may be repaired while the supervisor waits, so it does not give up.
"""

from __future__ import annotations

from collections.abc import Iterable

from mainspring.common.clock import boottime
from mainspring.common.pause import jittered

TRIES = 3
"""Failed starts in a row, per worker, after which the supervisor gives up if no worker ever started."""
MAX_PAUSE = 30.0
LIVED = 10.0
"""Seconds after which a worker's life counts as a success."""
LIVED_ORDERLY = 1.0
"""The same for a worker that ended in order, or that the supervisor killed because of one job."""


class RestartPolicy:
    """Decides for ``count`` workers, numbered from 0, when each is started. All are due at once."""

    def __init__(self, count: int) -> None:
        self._due = dict.fromkeys(range(count), 0.0)
        self._deaths = dict.fromkeys(range(count), 0)
        self._started: dict[int, float] = {}
        self._failures = 0
        self._reported: set[str] = set()
        self._ever_started = False

    @property
    def all_finished(self) -> bool:
        """Every worker has finished for good."""
        return not self._due

    @property
    def gives_up(self) -> bool:
        """No worker ever started, and each was tried often enough."""
        return not self._ever_started and self._failures >= TRIES * max(1, len(self._due))

    def list_due(self, now: float, running: Iterable[int]) -> list[int]:
        """The numbers of the workers to start now. ``running`` are those that run."""
        held = set(running)
        return [number for number, at in self._due.items() if number not in held and at <= now]

    def next_due(self) -> float:
        """When the next worker is due to start; infinite if none is."""
        ahead = [at for at in self._due.values() if at > boottime()]
        return min(ahead, default=float("inf"))

    def record_start(self, number: int) -> None:
        """The worker is registered. May be called again and again."""
        self._ever_started = True
        if number not in self._started:
            self._started[number] = boottime()
            self._failures = 0

    def record_end(self, number: int, *, orderly: bool) -> None:
        """The worker ended and must be replaced."""
        lived = boottime() - self._started.pop(number, boottime())
        if lived > (LIVED_ORDERLY if orderly else LIVED):
            self._deaths[number] = 0
        self._pause(number)

    def record_failed_start(self, number: int, why: str) -> str:
        """The worker could not start. Returns a message for people; empty if this reason was reported before."""
        self._started.pop(number, None)
        self._failures += 1
        self._deaths[number] = max(1, self._deaths[number])
        self._pause(number)
        if why in self._reported:
            return ""
        self._reported.add(why)
        return f"mainspring: a worker cannot start:\n{why.rstrip()}\n"

    def record_finish(self, number: int) -> None:
        """The worker had no more work. It is not replaced."""
        self._due.pop(number, None)

    def _pause(self, number: int) -> None:
        deaths = self._deaths[number]
        pause = jittered(min(MAX_PAUSE, 0.25 * 2**deaths)) if deaths else 0.0
        self._deaths[number] = deaths + 1
        self._due[number] = boottime() + pause
