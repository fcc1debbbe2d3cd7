"""The time of a store that is a file: the clock of the machine, which here never goes back."""

from __future__ import annotations

import time
from collections.abc import Callable

from mainspring.common.clock import boottime


def _realtime() -> int:
    """The kernel's clock: the same for every process of the machine, also for one whose ``time.time`` was shifted."""
    if hasattr(time, "clock_gettime_ns"):
        return time.clock_gettime_ns(time.CLOCK_REALTIME) // 1_000
    return time.time_ns() // 1_000


class WallClock:
    """Microseconds since 1970. After the clock of the machine was set back, time goes on from the last value returned,
    by the seconds since boot, until the clock of the machine has caught up."""

    def __init__(self, wall: Callable[[], int] = _realtime, flow: Callable[[], float] = boottime) -> None:
        self._wall = wall
        self._flow = flow
        self._returned = (0, 0.0)

    def __call__(self) -> int:
        now, flown = self._wall(), self._flow()
        last, since = self._returned
        if now < last:
            now = last + max(0, int((flown - since) * 1e6))
        self._returned = (now, flown)
        return now
