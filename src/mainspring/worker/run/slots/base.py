"""What the pools have in common: a number of slots, and the claims that wait for one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from mainspring.jobs.outcomes import Ack
from mainspring.worker.run.attempt import RunningAttempt

AHEAD_MAX = 256
"""Most claims that wait for a slot."""
AHEAD_US = 50_000
"""At most this much work waits for each slot."""
SHORT_US = 10_000
"""Bodies whose median is longer are not claimed ahead."""

Done = Callable[[RunningAttempt, Ack], None]


class SlotPool(Protocol):
    """Runs attempts in at most ``slots`` slots; the others wait in line."""

    slots: int
    pace: ClaimAhead
    held: int
    """Attempts that run or wait here."""

    def submit(self, attempt: RunningAttempt) -> None:
        """Run it in a free slot, or when one becomes free."""
        ...

    def waiting(self, before: float) -> list[RunningAttempt]:
        """Take out the attempts that were claimed before this moment and have not started."""
        ...

    def bodies(self) -> list[RunningAttempt]:
        """The attempts whose body runs."""
        ...

    def close(self) -> None: ...


class ClaimAhead:
    """How many claims ahead are sensible, from the recent run times."""

    __slots__ = ("_recent", "ran", "slots")

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._recent: deque[int] = deque(maxlen=32)
        self.ran: Callable[[int], None] = self._recent.append
        """Tell how many microseconds a body ran."""

    def slow_down(self) -> None:
        """Claims ahead were not used in time: none until bodies are seen to be short again."""
        self._recent.clear()

    def ahead(self) -> int:
        """Claims beyond the slots: none until 16 bodies were short, then up to 50 ms of work, at most 256."""
        recent = self._recent
        if len(recent) < 16:
            return 0
        median = sorted(recent)[len(recent) // 2]
        if median >= SHORT_US:
            return 0
        return min(AHEAD_MAX, self.slots * AHEAD_US // max(median, 1))
