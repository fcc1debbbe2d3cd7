"""A producer: ``produce PROGRAM TASK one|many|fill|probe COUNT [SIZE]``. Prints what it took as JSON.

``one``: call by call. ``many``: in batches of SIZE. ``fill``: exactly COUNT, to prepare a drain.
``probe``: now and then, with the moment of the call as argument.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
import time
from typing import Any

WARM_UP = 20


def one(app: Any, task: str, count: int, _size: int) -> None:
    for n in range(count):
        app.one(task, n)


def many(app: Any, task: str, count: int, size: int) -> None:
    for start in range(0, count, size):
        app.many(task, range(start, min(start + size, count)))


def probe(app: Any, task: str, count: int, _size: int) -> None:
    for _ in range(count):
        time.sleep(random.uniform(0.02, 0.06))
        app.one(task, time.monotonic_ns())


MODES = {"one": one, "many": many, "fill": many, "probe": probe}


def main(program: str, task: str, mode: str, count: int, size: int = 1000) -> None:
    app = importlib.import_module("benchmarks.programs." + program)
    if mode in ("one", "many"):
        MODES[mode](app, task, WARM_UP, WARM_UP)
    began, used = time.perf_counter(), time.process_time()
    MODES[mode](app, task, count, size)
    print(json.dumps({"seconds": time.perf_counter() - began, "cpu": time.process_time() - used}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], *map(int, sys.argv[4:]))
