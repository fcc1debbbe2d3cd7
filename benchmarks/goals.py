"""What is wanted, by engine. Ratios are between systems of one run; microseconds are of processor time a job.

`docs/operate/performance.md` shows the goals of a simpler, faster core: those of ``FLOOR``, single and bulk enqueue,
pick-up, idle workers, start, import and a limit that does not bind.
"""

from __future__ import annotations

import dataclasses

ASYNC, THREAD, NORMAL = "mainspring async", "mainspring thread", "mainspring async normal"
PYTHON_PEERS = {
    "sqlite": ("huey", "taskito"),
    "postgres": ("chancy", "oban", "procrastinate", "taskito"),
    "redis": ("dramatiq", "taskiq", "huey", "taskito"),
}
PEERS = PYTHON_PEERS | {"redis": (*PYTHON_PEERS["redis"], "bullmq")}


@dataclasses.dataclass(frozen=True)
class Ratio:
    """How often the best of some is to be in ours; without a number it is only told."""

    column: str
    ours: str
    of: tuple[str, ...]
    at_least: float | None = None


DRAIN = {
    "sqlite": (
        Ratio("drain async", ASYNC, ("huey",), 6),
        Ratio("drain sync", THREAD, ("huey",), 2.5),
        Ratio("drain async", ASYNC, ("floor",), 0.35),
        Ratio("drain async", ASYNC, ("taskito",)),
    ),
    "postgres": (
        Ratio("drain async", ASYNC, ("chancy",), 3),
        Ratio("drain async", ASYNC, ("oban",), 4),
        Ratio("drain async", ASYNC, ("procrastinate",), 30),
        Ratio("drain sync", THREAD, PEERS["postgres"], 2),
        Ratio("drain async", ASYNC, ("floor",), 0.4),
        Ratio("drain async", ASYNC, ("taskito",)),
    ),
    "redis": (
        Ratio("drain async", ASYNC, ("dramatiq", "taskiq", "taskito"), 4),
        Ratio("drain async", ASYNC, ("bullmq",), 1.25),
        Ratio("drain sync", THREAD, PYTHON_PEERS["redis"], 2),
        Ratio("drain async", ASYNC, ("huey",)),
        Ratio("drain async", ASYNC, ("floor",), 0.5),
        Ratio("drain async", ASYNC, ("taskito",)),
    ),
}
WORKER_CPU = {"sqlite": 80.0, "postgres": 90.0, "redis": 80.0}
SERVER_CPU = {"postgres": 35.0}
TWO_PROCESSES = 1.2
LIMITS = {("concurrency", 4): 0.95}
"""By name and number of processes: what a drain keeps of its rate without a limit."""
RATE_USED = 98.0

ENQUEUE_ONE = {
    "sqlite": (Ratio("enqueue one, full", ASYNC, ("huey",), 1.1), Ratio("enqueue one, normal", NORMAL, ("huey",), 5)),
    "postgres": (Ratio("enqueue one", ASYNC, PEERS["postgres"], 1), Ratio("enqueue one", ASYNC, ("floor",))),
    "redis": (
        Ratio("enqueue one", ASYNC, ("huey",), 1.1),
        Ratio("enqueue one", ASYNC, PEERS["redis"], 1),
        Ratio("enqueue one", ASYNC, ("floor",)),
    ),
}
ENQUEUE_ONE_RATE = {"postgres": 2500.0}
ENQUEUE_ONE_CPU = {"postgres": 180.0}
ENQUEUE_BULK = {
    "sqlite": (
        Ratio("enqueue bulk, full", ASYNC, ("floor",), 0.5),
        Ratio("enqueue bulk, normal", NORMAL, ("floor normal",)),
    ),
    "postgres": (Ratio("enqueue bulk", ASYNC, PEERS["postgres"], 5), Ratio("enqueue bulk", ASYNC, ("floor",), 0.5)),
    "redis": (
        Ratio("enqueue bulk", ASYNC, PEERS["redis"], 5),
        Ratio("enqueue bulk", ASYNC, ("bullmq",)),
        Ratio("enqueue bulk", ASYNC, ("taskito",)),
        Ratio("enqueue bulk", ASYNC, ("floor",), 0.5),
    ),
}
BESIDE = {
    "sqlite": (Ratio("enqueue beside a worker", ASYNC, ("huey",), 1.5),),
    "postgres": (Ratio("enqueue beside a worker", ASYNC, PEERS["postgres"]),),
    "redis": (Ratio("enqueue beside a worker", ASYNC, PEERS["redis"]),),
}
PRODUCERS = {
    "redis": (Ratio("50 producers", ASYNC, ("floor",), 2), Ratio("50 producers", ASYNC, ("bullmq",), 1.6)),
    "postgres": (Ratio("50 producers", ASYNC, ("floor",)),),
}

PICK_UP_OF_FLOOR = 1.5
IDLE_CPU = 0.4
IDLE_ROUND_TRIPS = 2.0
FLEET_CPU = 3.0
"""Per cent of a core of the server for a thousand idle workers."""
START_MS = {"sqlite": 400.0}
START_OF_ASYNCIO = {"sqlite": 5.0}
IMPORT_OF_ASYNCIO = 1.6
RSS_MB = 45.0
FLAT = 1.3
FAIR = 1.1
SCHEDULER_CPU = 1.0
HERD_SECONDS = 5.0
FLOW_PEERS = {"sqlite": ("taskito",), "postgres": ("taskito",), "redis": ("celery", "dramatiq flows", "taskito")}
CHORD_BEYOND = {"sqlite": 20.0, "postgres": 10.0, "redis": 10.0}
"""Seconds that a chord of 100,000 members takes beyond these members as plain jobs."""
CHORD_MEMORY_MB = 50.0
DAG_ROUND_TRIPS = 1.0
