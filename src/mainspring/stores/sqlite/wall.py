"""The time of a store that is a file: that of the machine, but it never stands still and never goes back."""

from __future__ import annotations

import time
from collections.abc import Callable

from mainspring.common.clock import boottime


def _realtime() -> int:
    """The kernel's clock, the same for every process on the machine, also for one whose ``time.time`` was shifted."""
    if hasattr(time, "clock_gettime_ns"):
        return time.clock_gettime_ns(time.CLOCK_REALTIME) // 1_000
    return time.time_ns() // 1_000


class WallClock:
    """While the machine's clock is behind what was told already, for it was set back, time goes on at its own pace."""

    def __init__(self, wall: Callable[[], int] = _realtime, flow: Callable[[], float] = boottime) -> None:
        self._wall = wall
        self._flow = flow
        self._told = (0, 0.0)

    def __call__(self) -> int:
        now, flown = self._wall(), self._flow()
        last, since = self._told
        if now < last:
            now = last + max(0, int((flown - since) * 1e6))
        self._told = (now, flown)
        return now
