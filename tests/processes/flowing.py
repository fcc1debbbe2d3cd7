"""Tasks of flows, one of which arms a failpoint of its process; as a program: a worker of them, or a producer.

``python -m tests.processes.flowing`` is a worker. ``... flow|batch N KEY`` enqueues a flow of N jobs, or opens a batch
and adds N jobs, under a key: killed and started again, it goes on. ``... retry ID`` retries a flow.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from mainspring import Context, Mainspring, group
from mainspring.common import failpoints
from tests.processes.playground import is_first, note
from tests.timing import short_settings

PIECE = 100
"""Jobs that the producer of a batch adds at once."""


def arm(die: str) -> None:
    """``path=point``: the first process that gets here dies at this point."""
    path, _, point = die.partition("=")
    if path and is_first(path):
        failpoints.arm(point)


def begin(ctx: Context, n: int, die: str = "") -> int:
    note("START", ctx)
    arm(die)
    note("END", ctx)
    return n


def double(ctx: Context, n: int, die: str = "") -> int:
    note("START", ctx)
    arm(die)
    note("END", ctx)
    return 2 * n


def numbers(ctx: Context, n: int, die: str = "") -> list[int]:
    note("START", ctx)
    arm(die)
    note("END", ctx)
    return list(range(n))


def total(ctx: Context, values: list[int], die: str = "") -> int:
    note("START", ctx)
    arm(die)
    note("END", ctx)
    return sum(values)


def quiet(n: int) -> int:
    return n


def gated(n: int, path: str) -> int:
    """Fails until the file exists."""
    if not Path(path).exists():
        raise ValueError(f"no {path}")
    return n


def sum_up(values: list[int]) -> int:
    return sum(values)


def finished() -> None:
    """The callback of a batch."""


class Flowing:
    """The tasks, declared on ``app``."""

    def __init__(self, app: Mainspring) -> None:
        self.app = app
        self.begin = app.task(name="begin", retries=0)(begin)
        self.double = app.task(name="double", retries=0)(double)
        self.numbers = app.task(name="numbers", retries=0)(numbers)
        self.total = app.task(name="total", retries=0)(total)
        self.quiet = app.task(name="quiet", retries=0)(quiet)
        self.gated = app.task(name="gated", retries=0)(gated)
        self.sum_up = app.task(name="sum_up", retries=0)(sum_up)
        self.finished = app.task(name="finished", retries=0)(finished)

    def produce(self, what: str, n: int, key: str) -> None:
        """A flow or a batch under a key."""
        if what == "flow":
            chord = group(self.quiet.s(each) for each in range(n)) | self.sum_up
            chord.flow(key=key).enqueue()
            return
        batch = self.app.flows.batch("large", key=key, on_success=self.finished.s()).open()
        for first in range(0, n, PIECE):  # from the beginning, whatever an earlier process has added
            batch.add_many((self.quiet.s(each) for each in range(first, min(n, first + PIECE))), at=first)
        batch.close()


app = Mainspring()
tasks = Flowing(app)

if __name__ == "__main__":
    if sys.argv[1:2] == ["retry"]:
        app.flows.retry(sys.argv[2])
    elif sys.argv[1:]:
        tasks.produce(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    else:
        with app.worker(**short_settings()):
            signal.pause()
