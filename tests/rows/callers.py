"""A program that enqueues one call from many threads at once: ``python -m tests.rows.callers URL FOLDER THREADS``."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

from mainspring import Key, Mainspring

NAME = "callers.once"


def once(n: int) -> int:
    return n


def at_once(task: Any, count: int) -> list[Any]:
    """The handles that this many threads get, all started at the same moment."""
    jobs: list[Any] = []
    barrier = threading.Barrier(count)

    def enqueue(n: int) -> None:
        barrier.wait()
        jobs.append(task.enqueue(n))

    threads = [threading.Thread(target=enqueue, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return jobs


def main(url: str, folder: str, threads: str) -> None:
    task = Mainspring(url).task(name=NAME, key=Key("one"))(once)
    print("ready", flush=True)
    while not (Path(folder) / "go").exists():
        time.sleep(0.001)
    for job in at_once(task, int(threads)):
        print(job.id, job.created)


if __name__ == "__main__":
    main(*sys.argv[1:])
