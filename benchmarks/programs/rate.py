"""A rate that binds: ``rate WORKER ...``. Prints how much of it two workers use, and the most starts in any second.

Counted from the moment at which the first window is used up: until then it is the start of the workers that takes time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from bisect import bisect_left
from datetime import datetime

from benchmarks.programs.mainspring_app import app, paced
from benchmarks.programs.produce import chunks

COUNT = 8_000
SIZE = 1_000


def main(worker: list[str]) -> None:
    batches = chunks(COUNT, 1_000)  # the most that an enqueue on Redis takes
    jobs = [job for numbers in batches for job in app.enqueue_many([paced.s(n) for n in numbers])]
    workers = [subprocess.Popen(worker, env=os.environ) for _ in range(2)]
    try:
        starts = sorted(_start(job.join(timeout="120s").started) for job in jobs)
    finally:
        for each in workers:
            each.terminate()
        for each in workers:
            each.wait()
    most = max(bisect_left(starts, at + 1.0) - n for n, at in enumerate(starts))
    used = (COUNT - SIZE) / (starts[-1] - starts[SIZE - 1]) / SIZE * 100
    print(json.dumps({"used": used, "most": most}))


def _start(moment: datetime | None) -> float:
    assert moment is not None
    return moment.timestamp()


if __name__ == "__main__":
    main(sys.argv[1:])
