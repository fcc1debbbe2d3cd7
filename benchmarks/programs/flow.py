"""A producer of flows: ``flow PROGRAM SHAPE N [TIMES]``. Prints as JSON when it began and what the enqueue took.

``plain``: N jobs that return a number, in bulk. ``chain``, ``chord``, ``batch``, ``dag``: what the program has, of N
jobs, ``TIMES`` times. The last job of a chain, a chord or a batch notes its start (``stamps``). The moment is that of
the monotonic clock, as in the notes.
"""

from __future__ import annotations

import importlib
import json
import sys
import time

from benchmarks.programs.produce import chunks

BULK = 1000


def main(program: str, shape: str, n: int, times: int = 1) -> None:
    app = importlib.import_module("benchmarks.programs." + program)
    app.many("noop", [0])  # the connection is open
    began = time.monotonic_ns()
    for _ in range(times):
        if shape == "plain":
            for numbers in chunks(n, BULK):
                app.many("echo", numbers)
        else:
            getattr(app, shape)(n)
    print(json.dumps({"began": began, "seconds": (time.monotonic_ns() - began) / 1e9}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
