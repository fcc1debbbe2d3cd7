"""How long this machine stalls, and time limits that allow for a stall.

Most limits in tests are about order, not about seconds: a lock must not be lost while its holder lives, a lease must
not end while heartbeats go on. A machine that runs nothing for a second breaks such a test if its TTL is half a second.
So one process per test run (`measure`, started by `tests/plugins/stalls.py`) sleeps and syncs a small file again and
again, and writes into that file how much longer this took than it should. `patience` reads the file.

A process that mostly sleeps is scheduled at once even on a crowded machine, where a process that computes gets a tenth
of a core. So the meter also computes for a few milliseconds now and then, and measures how long that took.

A short TTL, lease or deadline beside real processes or real servers is `patience(seconds)`. Call it when the test needs
the value, not when its module is imported: at that time nothing is measured yet.
"""

from __future__ import annotations

import os
import select
import struct
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

FILE = "MAINSPRING_TEST_STALLS"
"""Names the file, for test processes and the programs that they start."""
MOST = 3.0
"""Seconds: the longest stall that limits are stretched for."""
MEMORY = 120.0
"""Seconds for which a stall counts."""
TICK = 0.05
SYNC_EVERY = 20
"""Ticks from one sync to the next."""
BURST = 0.01
"""Seconds of processor time of one measurement of the crowd."""
USUAL_CROWD = 4.0
"""How many times longer than alone a computation takes while the test processes themselves keep all cores busy."""
STALL_OF_CROWD = 0.2
"""Seconds of stall that each further multiple counts as."""
_SECONDS = struct.Struct("d")


def patience(seconds: float) -> float:
    """``seconds`` on a machine that never stalls. With a stall of 1 s: twice as long, and 2 s more."""
    worst = stall()
    return seconds * (1 + worst) + 2 * worst


def milliseconds(seconds: float) -> str:
    """``patience`` as an option of a worker, such as "1500ms"."""
    return f"{round(patience(seconds) * 1000)}ms"


def short_settings() -> dict[str, Any]:
    """Settings of a worker whose lease is soon over and that looks often."""
    return {
        "lease": milliseconds(3), "sweep": "500ms", "poll": "200ms", "grace": milliseconds(1), "drain": milliseconds(5),
    }  # fmt: skip


def stall() -> float:
    """The longest stall of the last two minutes, in seconds."""
    name = os.environ.get(FILE)
    try:
        data = Path(name).read_bytes() if name else b""
    except OSError:
        return 0.0
    return min(MOST, *_SECONDS.unpack(data)) if len(data) == _SECONDS.size else 0.0


def crowd() -> float:
    """How many times longer than on an idle core a computation takes now."""
    wall, cpu = time.monotonic(), time.process_time()
    while (used := time.process_time() - cpu) < BURST:
        pass
    return (time.monotonic() - wall) / used


def measure(path: Path) -> None:
    """Write the longest stall of the last two minutes to ``path``, until standard input is closed."""
    worst: deque[tuple[float, float]] = deque()  # (when, how long): each longer than all that came after it
    written, tick = -1.0, 0
    with path.open("wb", buffering=0) as file:
        while True:
            began = time.monotonic()
            if select.select([sys.stdin], [], [], TICK)[0]:
                return
            tick += 1
            if tick % SYNC_EVERY == 0:
                os.fsync(file.fileno())
            now = time.monotonic()
            late = max(0.0, now - began - TICK)
            if tick % SYNC_EVERY == 0:
                late = max(late, (crowd() - USUAL_CROWD) * STALL_OF_CROWD)
            while worst and worst[-1][1] <= late:
                worst.pop()
            worst.append((now, late))
            while worst[0][0] < now - MEMORY:
                worst.popleft()
            if worst[0][1] != written or tick % SYNC_EVERY == 0:
                written = worst[0][1]
                os.pwrite(file.fileno(), _SECONDS.pack(written), 0)


if __name__ == "__main__":
    measure(Path(sys.argv[1]))
