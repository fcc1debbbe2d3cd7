"""Moves the clock of every process that has this folder on its PYTHONPATH.

``SKEW_FILE`` holds the seconds, read at each look at a clock, so a test can step it. ``SKEW_OF=process``
moves what a program sees (``time.time``, ``time.time_ns``); ``SKEW_OF=machine`` moves the kernel's
wall clock as well. Monotonic clocks are never touched: no step of a clock touches them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_file = Path(os.environ["SKEW_FILE"])
_time, _time_ns, _gettime, _gettime_ns = time.time, time.time_ns, time.clock_gettime, time.clock_gettime_ns


def _skew() -> float:
    return float(_file.read_text() or 0)


time.time = lambda: _time() + _skew()
time.time_ns = lambda: _time_ns() + int(_skew() * 1e9)
if os.environ["SKEW_OF"] == "machine":
    wall = time.CLOCK_REALTIME
    time.clock_gettime = lambda clock: _gettime(clock) + (_skew() if clock == wall else 0.0)
    time.clock_gettime_ns = lambda clock: _gettime_ns(clock) + (int(_skew() * 1e9) if clock == wall else 0)
