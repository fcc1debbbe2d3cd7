"""A task whose jobs end at the same time in two worker processes; as a program: a worker of one queue.

``python -m tests.processes.meeting QUEUE``
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

from mainspring import Context, Mainspring
from tests.processes.playground import note
from tests.timing import patience, short_settings

LIMIT = 60.0


def meet(ctx: Context, folder: str, side: str, n: int) -> int:
    """Returns at the moment at which the job of the other side is here as well."""
    note("START", ctx)
    here, there = (Path(folder) / f"{n}.{name}" for name in (side, "right" if side == "left" else "left"))
    here.touch()
    end = time.monotonic() + patience(LIMIT)
    while not there.exists() and time.monotonic() < end:
        time.sleep(0.001)
    note("END", ctx)
    return n


def both(ctx: Context, values: list[int]) -> int:
    note("START", ctx)
    note("END", ctx)
    return sum(values)


class Meeting:
    """The tasks, declared on ``app``."""

    def __init__(self, app: Mainspring) -> None:
        self.app = app
        self.meet = app.task(name="meet", retries=0)(meet)
        self.both = app.task(name="both", retries=0)(both)


app = Mainspring()
tasks = Meeting(app)

if __name__ == "__main__":
    with app.worker(queues=[sys.argv[1], "default"], thread_slots=4, **short_settings()):
        signal.pause()
